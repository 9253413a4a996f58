// Geometry of slices: boxes and contiguous runs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/io/hdf5.h"
#include "trireme/io/tensor_slice.h"

namespace trireme {

// Returns the boxes of a slice in row-major order, in coordinates of the slice's own box.
std::vector<hdf5::Box> boxes_of(const TensorSlice& slice);

// Cuts a box along its slowest dimensions until no part has more than `limit` elements.
std::vector<hdf5::Box> cut(const hdf5::Box& box, std::int64_t limit);

// Returns the same box in coordinates of the whole tensor.
hdf5::Box globally(const TensorSlice& slice, hdf5::Box box);

// `count` elements that are contiguous both in the whole tensor, from element `global` on, and in
// the slice's memory, from element `memory` on.
struct Run {
  std::int64_t global = 0;
  std::int64_t memory = 0;
  std::int64_t count = 0;
};

// Visits the runs of one box of a slice, each as long as possible, in row-major order.
void for_each_run(const TensorSlice& slice, const hdf5::Box& box,
                  const std::function<void(const Run&)>& visit);

// The same for only those elements whose index in the whole tensor is in `within`; the others cost
// no time.
void for_each_run(const TensorSlice& slice, const hdf5::Box& box, const FlatRange& within,
                  const std::function<void(const Run&)>& visit);

// Throws InternalError if the slice is not within its tensor, or if its memory is too small.
void check_slice(const TensorSlice& slice);

}  // namespace trireme
