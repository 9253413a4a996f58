// How pictures become sequences (Dosovitskiy et al. 2021): a position for the class token, which
// gathers what the classifier reads, and one for each patch of the picture, row by row.
#pragma once

#include "trireme/nn/pictures.h"

namespace trireme::nn {

// The field kPixels (N, H, W, 3) -> (outside rows, C), of N * positions(H, W) rows: a convolution
// of patches that do not overlap, and before them the class token. Parameters NAME.patches.weight
// (C, patch, patch, 3), NAME.patches.bias (C), NAME.class_token (C). With sequence parallelism
// every tensor rank computes all rows and goes on with its own.
class PatchEmbedding {
 public:
  struct Options {
    std::int64_t patch, width;  // side of a patch, pixels; C
    float deviation = 0.02f;    // of the initial values
  };
  PatchEmbedding(const LayerContext& context, const Options& options);
  // Computes in the type `compute`.
  Value forward(Tape& tape, const MicroBatch& batch, DType compute) const;

 private:
  // All rows of a gradient, zero for those of other ranks.
  Tensor all_rows(ops::Context& ctx, const Tensor& dy, std::int64_t rows) const;

  TensorParallel parallel_;
  Convolution patches_;
  Parameter* class_token_;
};

// x (outside rows, C) of batch * length rows -> (batch, C): the first row of each sample, on every
// tensor rank. What follows must be the same on all of them: the backward sums nothing.
Value first_rows(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                 const Value& x);

}  // namespace trireme::nn
