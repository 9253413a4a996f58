#include "support/checkpoint_model.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/base/philox.h"
#include "trireme/base/rounding.h"

namespace trireme::testing {
namespace {

constexpr unsigned char kPattern = 0xA5;

// Allocates a tensor of this shape and fills it with the pattern.
Tensor memory(const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  static const auto allocator = make_caching_allocator(Device{});
  Tensor tensor = Tensor::allocate(*allocator, Stream(), shape, dtype, MemoryUse::kParameters);
  std::memset(tensor.raw(), kPattern, bytes);
  return tensor;
}

// Returns any bits, including those of NaN.
std::uint32_t word_of(std::uint64_t key, std::int64_t element, std::size_t word) {
  const auto index = static_cast<std::uint64_t>(element);
  return philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
      key)[word];
}

// The coordinates of element `index` of a row-major shape.
std::array<std::int64_t, Shape::kMaxRank> coordinates(const Shape& shape, std::int64_t index) {
  std::array<std::int64_t, Shape::kMaxRank> at{};
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[static_cast<std::size_t>(d)] = index % shape[d];
    index /= shape[d];
  }
  return at;
}

// Returns the index in the whole tensor of an element of the slice's memory. -1: padding.
std::int64_t global_element(const TensorSlice& slice, std::int64_t memory_element) {
  std::array<std::int64_t, Shape::kMaxRank> at{};
  if (slice.range) {
    if (memory_element >= slice.elements()) return -1;
    at = coordinates(slice.extent, slice.range->begin + memory_element);
  } else {
    at = coordinates(slice.local.shape(), memory_element);
  }
  std::int64_t element = 0;
  for (int d = 0; d < slice.global.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (at[i] >= slice.extent[d]) return -1;
    element = element * slice.global[d] + slice.start[i] + at[i];
  }
  return element;
}

void set_part(TensorSlice& slice, int dimension, int part, int parts) {
  const std::int64_t size = quotient_up(slice.global[dimension], parts);
  const std::int64_t begin = std::min(slice.global[dimension], size * part);
  const std::int64_t end = std::min(slice.global[dimension], begin + size);
  slice.start[static_cast<std::size_t>(dimension)] = begin;
  slice.extent = slice.extent.with(dimension, end - begin);
  slice.local = memory(slice.global.with(dimension, size), slice.local.dtype());
}

void set_flat(TensorSlice& slice, int part, int parts) {
  const std::int64_t size = quotient_up(slice.extent.elements(), parts);
  const std::int64_t begin = std::min(slice.extent.elements(), size * part);
  slice.range = FlatRange{begin, std::min(slice.extent.elements(), begin + size)};
  slice.local = memory({size}, slice.local.dtype());
}

}  // namespace

std::vector<NamedTensor> small_model() {
  return {{"parameters/embedding.weight", {37, 12}},
          {"parameters/blocks.0.cube", {8, 5, 6}},
          {"parameters/blocks.0.bias", {13}},
          {"optimizer/blocks.0.bias/exp_avg", {13}},
          {"optimizer/embedding.weight/exp_avg_sq", {37, 12}},
          {"state/scale", {}},
          {"state/counters", {3}, DType::kI64},
          {"state/empty", {0, 4}}};
}

std::vector<TensorSlice> deal(const std::vector<NamedTensor>& tensors, Split split, int rank,
                              int ranks, std::uint64_t version, bool filled) {
  std::vector<TensorSlice> slices;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const NamedTensor& tensor = tensors[i];
    TensorSlice slice = TensorSlice::whole(tensor.name, memory(tensor.shape, tensor.dtype));
    const int last = tensor.shape.rank() - 1;
    const bool divisible = last >= 0 && tensor.shape.elements() > 0;
    if (split == Split::kWhole || !divisible) {
      if (static_cast<int>(i) % ranks != rank) continue;
    } else if (split == Split::kRows) {
      set_part(slice, 0, rank, ranks);
    } else if (split == Split::kColumns) {
      set_part(slice, last, rank, ranks);
    } else if (split == Split::kFlat || ranks % 2 != 0) {
      set_flat(slice, rank, ranks);
    } else {
      set_part(slice, last, rank % 2, 2);
      set_flat(slice, rank / 2, ranks / 2);
    }
    if (filled) {
      const std::size_t words = size_of(tensor.dtype) / 4;
      const std::uint64_t key = philox_key(version, tensor.name);
      auto* to = static_cast<std::uint32_t*>(slice.local.raw());
      for (std::int64_t e = 0; e < slice.local.elements(); ++e) {
        const std::int64_t element = global_element(slice, e);
        for (std::size_t w = 0; w < words; ++w, ++to) {
          if (element >= 0) *to = word_of(key, element, w);
        }
      }
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

std::int64_t wrong_bytes(const std::vector<TensorSlice>& slices, std::uint64_t version) {
  std::int64_t wrong = 0;
  for (const TensorSlice& slice : slices) {
    const std::size_t words = size_of(slice.local.dtype()) / 4;
    const std::uint64_t key = philox_key(version, slice.name);
    const auto* at = static_cast<const std::uint32_t*>(slice.local.raw());
    for (std::int64_t e = 0; e < slice.local.elements(); ++e) {
      const std::int64_t element = global_element(slice, e);
      for (std::size_t w = 0; w < words; ++w, ++at) {
        const std::uint32_t right =
            element >= 0 ? word_of(key, element, w) : 0x01010101u * kPattern;
        if (*at != right) wrong += 4;
      }
    }
  }
  return wrong;
}

}  // namespace trireme::testing
