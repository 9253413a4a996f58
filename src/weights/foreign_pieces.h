// How ranks share the tensors of a foreign model among themselves, and how the elements of a part
// are ordered in a foreign file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/io/tensor_slice.h"
#include "trireme/models/foreign.h"

namespace trireme {

// A box of one of our tensors in the memory of this rank, fp32, and where its elements lie in a
// foreign tensor (models::ForeignPart).
struct ForeignPiece {
  std::size_t tensor = 0;  // in ForeignModel::tensors
  TensorSlice slice;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
  std::vector<float> memory = {};  // of the slice, once allocate() was called

  void allocate();
};

// Returns what rank `rank` of `ranks` moves of tensors [first, last). Large parts are divided among
// all ranks so that each has long runs in the foreign tensor; a small one is one rank's.
std::vector<ForeignPiece> foreign_pieces(const models::ForeignModel& model, std::size_t first,
                                         std::size_t last, int rank, int ranks);

// `count` elements of a piece that are contiguous in the foreign tensor, from element `foreign` on.
struct ForeignRun {
  struct Dimension {
    std::int64_t extent, stride;  // in the piece's memory
  };
  std::int64_t foreign = 0, count = 0;
  std::int64_t memory = 0;            // of the first element
  std::vector<Dimension> dimensions;  // in the order of the foreign tensor
};
// Visits runs of at most about `most` elements, which together are all of the piece.
void for_each_run(const ForeignPiece& piece, std::int64_t most,
                  const std::function<void(const ForeignRun&)>& visit);

// Copies between the elements of a run, in the order of the foreign tensor, and the piece's memory.
void take_run(ForeignPiece& piece, const ForeignRun& run, std::span<const float> values);
void give_run(const ForeignPiece& piece, const ForeignRun& run, std::span<float> values);

}  // namespace trireme
