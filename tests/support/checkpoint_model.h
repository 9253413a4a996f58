// Tensors with known values, split over the ranks in several ways, which checkpoint tests write and
// read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/io/tensor_slice.h"

namespace trireme::testing {

enum class Split {
  kWhole,        // each tensor on one rank, round-robin
  kRows,         // first dimension; memory padded to equal parts
  kColumns,      // last dimension; memory padded to equal parts
  kFlat,         // ranges of the flattened tensor, in equal parts
  kFlatColumns,  // columns over pairs of ranks, and flat ranges of each half
};
inline constexpr Split kSplits[] = {Split::kWhole, Split::kRows, Split::kColumns, Split::kFlat,
                                    Split::kFlatColumns};

struct NamedTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
};

// Returns tensors of several numbers of dimensions and types: rows that need padding, three
// dimensions, a scalar, a tensor without elements.
std::vector<NamedTensor> small_model();

// Returns the slices that a rank holds. `version` distinguishes the values of different
// checkpoints. With `filled` they hold their values; otherwise a pattern that is no valid value.
std::vector<TensorSlice> deal(const std::vector<NamedTensor>& tensors, Split split, int rank,
                              int ranks, std::uint64_t version, bool filled);

// Returns the number of wrong bytes in the slices: the extent must hold the values, the padding the
// pattern of unfilled memory.
std::int64_t wrong_bytes(const std::vector<TensorSlice>& slices, std::uint64_t version);

}  // namespace trireme::testing
