// Which part of a global tensor this rank holds, and where its elements lie in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/box.h"

namespace trireme::nn {

// The slice of a global tensor that this rank holds: a hyperrectangle, row-major. Memory may hold
// padding after the slice (local extents larger than the slice's); padding stays zero.
struct Placement {
  Shape global;                      // (out, in) for weights
  Shape local;                       // the slice in memory, with padding
  std::vector<std::int64_t> offset;  // of the slice in the global tensor
  Shape extent;                      // of the slice; extent[i] <= local[i]
  // How split() made it.
  int dimension = 0, parts = 1;
  std::int64_t multiple = 1;

  static Placement whole(const Shape& global);
  // Divides one dimension into `parts` equal ranges and returns the index-th. The last ranges may
  // be shorter or empty. Memory pads all ranges to the same extent, a multiple of `multiple`.
  static Placement split(const Shape& global, int dimension, int parts, int index,
                         std::int64_t multiple = 1);
  // The index-th slice of the same split.
  Placement slice(int index) const { return split(global, dimension, parts, index, multiple); }
};

// A box of a global tensor whose elements lie in contiguous local memory, with padding between its
// rows where the placement has any.
struct Slab {
  std::vector<std::int64_t> start;  // in the global tensor
  Shape extent;
  Shape local;          // of the memory: extent[i] <= local[i]
  std::int64_t at = 0;  // of the first element in the local memory, in elements
  FlatRange memory() const { return {at, at + local.elements()}; }
};

// Returns the slabs that elements [range.begin, range.end) of the local memory hold, in the order
// of memory. There are at most 2d - 1 for d dimensions. Padding belongs to none of them.
std::vector<Slab> slabs_of(const Placement& placement, const FlatRange& range);

// A row of a slab: `count` elements that are contiguous in the global tensor, from element `global`
// on, and in the local memory, from element `local` on.
struct SlabRow {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t count = 0;
};
// Returns a row by its number in row-major order. A slab has slab.extent.rows() of them.
SlabRow row_of(const Placement& placement, const Slab& slab, std::int64_t number);

}  // namespace trireme::nn
