#include "io/checkpoints/tensor_slab.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::size_t index(int dimension) {
  return static_cast<std::size_t>(dimension);
}

// The strides of a row-major tensor, in elements.
std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(index(shape.rank()), 1);
  for (int d = shape.rank() - 2; d >= 0; --d) {
    strides[index(d)] = strides[index(d + 1)] * shape[d + 1];
  }
  return strides;
}

}  // namespace

TensorSlice TensorSlice::whole(std::string name, Tensor tensor) {
  TensorSlice slice;
  slice.name = std::move(name);
  slice.global = slice.extent = tensor.shape();
  slice.start.assign(index(tensor.shape().rank()), 0);
  slice.local = std::move(tensor);
  return slice;
}

DType TensorSlice::dtype() const {
  const DType type = local.dtype();
  return type == DType::kBF16 || type == DType::kF16 ? DType::kF32 : type;
}

std::int64_t TensorSlice::elements() const {
  return range ? range->end - range->begin : extent.elements();
}

std::vector<hdf5::Box> boxes_of(const TensorSlice& slice) {
  if (slice.range) return decompose(slice.extent, slice.range->begin, slice.range->end);
  return decompose(slice.extent, 0, slice.extent.elements());
}

std::vector<hdf5::Box> cut(const hdf5::Box& box, std::int64_t limit) {
  const auto longer = std::find_if(box.count.begin(), box.count.end(),
                                   [](std::int64_t count) { return count > 1; });
  if (box.elements() <= limit || longer == box.count.end()) return {box};
  const auto d = static_cast<std::size_t>(longer - box.count.begin());
  const std::int64_t row = box.elements() / box.count[d];
  const std::int64_t step = std::max<std::int64_t>(1, limit / row);
  std::vector<hdf5::Box> parts;
  for (std::int64_t at = 0; at < box.count[d]; at += step) {
    hdf5::Box part = box;
    part.start[d] += at;
    part.count[d] = std::min(step, box.count[d] - at);
    for (hdf5::Box& piece : cut(part, limit)) parts.push_back(std::move(piece));
  }
  return parts;
}

hdf5::Box globally(const TensorSlice& slice, hdf5::Box box) {
  for (std::size_t d = 0; d < box.start.size(); ++d) box.start[d] += slice.start[d];
  return box;
}

namespace {

// The runs of a box, by number.
class Runs {
 public:
  Runs(const TensorSlice& slice, const hdf5::Box& box)
      : slice_(slice),
        box_(box),
        global_strides_(strides_of(slice.global)),
        memory_strides_(strides_of(memory_shape())),
        outer_(slice.global.rank() - 1) {
    // The box is complete in all dimensions after `outer_`, both in the tensor and in memory, so
    // they form one run with it.
    if (outer_ >= 0) length_ = box.count[index(outer_)];
    while (outer_ > 0 && box.count[index(outer_)] == slice.global[outer_] &&
           box.count[index(outer_)] == memory_shape()[outer_]) {
      --outer_;
      length_ *= box.count[index(outer_)];
    }
    for (int d = 0; d < outer_; ++d) count_ *= box.count[index(d)];
  }

  std::int64_t count() const { return count_; }
  Run at(std::int64_t number) const {
    Run run{0, slice_.range ? -slice_.range->begin : 0, length_};
    for (int d = slice_.global.rank() - 1; d >= 0; --d) {
      std::int64_t place = box_.start[index(d)];
      if (d < outer_) {
        place += number % box_.count[index(d)];
        number /= box_.count[index(d)];
      }
      run.global += (place + slice_.start[index(d)]) * global_strides_[index(d)];
      run.memory += place * memory_strides_[index(d)];
    }
    return run;
  }

 private:
  const Shape& memory_shape() const { return slice_.range ? slice_.extent : slice_.local.shape(); }

  const TensorSlice& slice_;
  const hdf5::Box& box_;
  std::vector<std::int64_t> global_strides_, memory_strides_;
  int outer_;
  std::int64_t length_ = 1, count_ = 1;
};

}  // namespace

void for_each_run(const TensorSlice& slice, const hdf5::Box& box,
                  const std::function<void(const Run&)>& visit) {
  for_each_run(slice, box, {0, slice.global.elements()}, visit);
}

void for_each_run(const TensorSlice& slice, const hdf5::Box& box, const FlatRange& within,
                  const std::function<void(const Run&)>& visit) {
  const Runs runs(slice, box);
  const auto ends_before = [&](std::int64_t number) {
    const Run run = runs.at(number);
    return run.global + run.count <= within.begin;
  };
  std::int64_t first = 0;
  for (std::int64_t end = runs.count(); first < end;) {
    const std::int64_t middle = first + (end - first) / 2;
    if (ends_before(middle)) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  for (; first < runs.count(); ++first) {
    Run run = runs.at(first);
    if (run.global >= within.end) return;
    const std::int64_t skipped = std::max<std::int64_t>(0, within.begin - run.global);
    run = {run.global + skipped, run.memory + skipped,
           std::min(run.count, within.end - run.global) - skipped};
    visit(run);
  }
}

void check_slice(const TensorSlice& slice) {
  const auto refuse = [&](std::string_view reason) {
    throw InternalError(
        fmt::format("slice of tensor {} {}: {}", slice.name, slice.global.to_string(), reason));
  };
  const int rank = slice.global.rank();
  if (slice.extent.rank() != rank || slice.start.size() != index(rank)) {
    refuse("its dimensions are not the tensor's");
  }
  for (int d = 0; d < rank; ++d) {
    if (slice.start[index(d)] < 0 || slice.extent[d] > slice.global[d] - slice.start[index(d)]) {
      refuse("it lies beyond the tensor");
    }
  }
  if (slice.elements() == 0) return;
  if (!slice.local.defined()) refuse("it has no memory");
  if (slice.local.device() != slice.stream.device()) {
    refuse("it is on " + slice.local.device().to_string() + ", and its stream is not");
  }
  if (slice.low.defined() &&
      (slice.local.dtype() != DType::kBF16 || slice.low.dtype() != DType::kU16 ||
       slice.low.shape() != slice.local.shape() || slice.low.device() != slice.local.device())) {
    refuse("its memory has no two halves of its values");
  }
  const std::size_t size = size_of(slice.dtype());
  if (size != 4 && size != 8) refuse("only 4- and 8-byte elements are kept");
  if (slice.range) {
    if (slice.range->begin < 0 || slice.range->end < slice.range->begin ||
        slice.range->end > slice.extent.elements()) {
      refuse("its range lies beyond its extent");
    }
    if (slice.local.elements() < slice.elements()) refuse("its memory is shorter than its range");
    return;
  }
  if (slice.local.shape().rank() != rank) refuse("its memory has other dimensions");
  for (int d = 0; d < rank; ++d) {
    if (slice.local.shape()[d] < slice.extent[d]) refuse("its memory is smaller than its extent");
  }
}

}  // namespace trireme
