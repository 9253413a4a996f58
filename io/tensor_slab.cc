#include "tensor_slab.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::size_t index(int dimension) {
  return static_cast<std::size_t>(dimension);
}

struct Decomposer {
  const Shape& extent;
  std::vector<hdf5::Box> boxes{};

  // Elements of one step along a dimension.
  std::int64_t inner(int dimension) const {
    std::int64_t product = 1;
    for (int d = dimension + 1; d < extent.rank(); ++d) product *= extent[d];
    return product;
  }

  void add(const hdf5::Extents& prefix, std::int64_t begin, std::int64_t end) {
    hdf5::Box box;
    for (const std::int64_t at : prefix) {
      box.start.push_back(at);
      box.count.push_back(1);
    }
    box.start.push_back(begin);
    box.count.push_back(end - begin);
    for (int d = static_cast<int>(box.start.size()); d < extent.rank(); ++d) {
      box.start.push_back(0);
      box.count.push_back(extent[d]);
    }
    boxes.push_back(std::move(box));
  }

  // Elements [begin, end) of the part of the tensor that `prefix` points at: a part of a first row,
  // whole rows, a part of a last row.
  void divide(hdf5::Extents prefix, std::int64_t begin, std::int64_t end) {
    const int dimension = static_cast<int>(prefix.size());
    const std::int64_t row = inner(dimension);
    std::int64_t first = begin / row;
    const std::int64_t last = end / row;
    prefix.push_back(0);
    if (begin % row != 0) {
      prefix.back() = first;
      divide(prefix, begin - first * row, std::min(end, (first + 1) * row) - first * row);
      ++first;
    }
    if (first < last) {
      const hdf5::Extents before(prefix.begin(), prefix.end() - 1);
      add(before, first, last);
    }
    if (last >= first && last * row < end) {
      prefix.back() = last;
      divide(prefix, 0, end - last * row);
    }
  }
};

// Elements between neighbours along each dimension, in a row-major tensor.
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

std::int64_t TensorSlice::elements() const {
  return range ? range->end - range->begin : extent.elements();
}

std::vector<hdf5::Box> decompose(const Shape& extent, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return {};
  if (extent.rank() == 0) return {hdf5::Box{}};
  Decomposer decomposer{extent};
  decomposer.divide({}, begin, end);
  return std::move(decomposer.boxes);
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

void for_each_run(const TensorSlice& slice, const hdf5::Box& box,
                  const std::function<void(const Run&)>& visit) {
  const int rank = slice.global.rank();
  const Shape& memory_shape = slice.range ? slice.extent : slice.local.shape();
  const auto global_strides = strides_of(slice.global);
  const auto memory_strides = strides_of(memory_shape);

  // Dimensions past `outer` are whole in the tensor and in memory: they make one run with it.
  int outer = rank - 1;
  std::int64_t length = rank > 0 ? box.count[index(outer)] : 1;
  while (outer > 0 && box.count[index(outer)] == slice.global[outer] &&
         box.count[index(outer)] == memory_shape[outer]) {
    --outer;
    length *= box.count[index(outer)];
  }

  hdf5::Extents at = box.start;
  for (;;) {
    Run run{0, slice.range ? -slice.range->begin : 0, length};
    for (int d = 0; d < rank; ++d) {
      run.global += (at[index(d)] + slice.start[index(d)]) * global_strides[index(d)];
      run.memory += at[index(d)] * memory_strides[index(d)];
    }
    visit(run);
    int d = outer - 1;
    while (d >= 0 && ++at[index(d)] == box.start[index(d)] + box.count[index(d)]) {
      at[index(d)] = box.start[index(d)];
      --d;
    }
    if (d < 0) return;
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
  const std::size_t size = size_of(slice.local.dtype());
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
