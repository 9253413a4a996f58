#include "trireme/nn/placement.h"

#include <algorithm>
#include <array>
#include <span>

#include "trireme/base/rounding.h"

namespace trireme::nn {
namespace {

// The slab of a box of local memory. Its extent is empty where the box holds padding alone.
Slab clipped(const Placement& placement, const Box& box) {
  Slab slab{box.start, placement.extent, Shape(std::span<const std::int64_t>(box.count)), 0};
  for (int i = 0; i < placement.global.rank(); ++i) {
    const auto dimension = static_cast<std::size_t>(i);
    slab.at = slab.at * placement.local[i] + box.start[dimension];
    slab.start[dimension] += placement.offset[dimension];
    const std::int64_t left = placement.extent[i] - box.start[dimension];
    slab.extent = slab.extent.with(i, std::clamp<std::int64_t>(left, 0, box.count[dimension]));
  }
  return slab;
}

}  // namespace

Placement Placement::whole(const Shape& global) {
  const auto rank = static_cast<std::size_t>(global.rank());
  return {.global = global,
          .local = global,
          .offset = std::vector<std::int64_t>(rank, 0),
          .extent = global};
}

Placement Placement::split(const Shape& global, int dimension, int parts, int index,
                           std::int64_t multiple) {
  Placement placement = whole(global);
  const std::int64_t each = quotient_up(global[dimension], parts);
  const std::int64_t begin = std::min(each * index, global[dimension]);
  placement.local = global.with(dimension, rounded_up(each, multiple));
  placement.offset[static_cast<std::size_t>(dimension)] = begin;
  placement.extent = global.with(dimension, std::min(each, global[dimension] - begin));
  placement.dimension = dimension;
  placement.parts = parts;
  placement.multiple = multiple;
  return placement;
}

std::vector<Slab> slabs_of(const Placement& placement, const FlatRange& range) {
  std::vector<Slab> slabs;
  for (const Box& box : decompose(placement.local, range.begin, range.end)) {
    Slab slab = clipped(placement, box);
    if (slab.extent.elements() > 0) slabs.push_back(std::move(slab));
  }
  return slabs;
}

SlabRow row_of(const Placement& placement, const Slab& slab, std::int64_t number) {
  const int rank = placement.global.rank();
  std::array<std::int64_t, Shape::kMaxRank> index{};
  for (int i = rank - 2; i >= 0; --i) {
    index[static_cast<std::size_t>(i)] = number % slab.extent[i];
    number /= slab.extent[i];
  }
  SlabRow row{0, 0, slab.extent[rank - 1]};
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    row.local = row.local * slab.local[i] + index[at];
    row.global = row.global * placement.global[i] + index[at] + slab.start[at];
  }
  row.local += slab.at;
  return row;
}

}  // namespace trireme::nn
