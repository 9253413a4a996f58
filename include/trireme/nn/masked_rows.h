// What a masked language model (Devlin et al. 2019) has besides the layers of other transformers.
#pragma once

#include "trireme/nn/layers.h"

namespace trireme::nn {

// The rows of x (outside rows, C) that the field kTargetRows names -> (targets, C), on every tensor
// rank. What follows must be the same on all of them: the backward sums nothing.
Value target_rows(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                  const Value& x);

// Adds the embedding of the first segment to x (outside rows, C), in place: a sample is one
// segment. Parameter NAME.weight (segments, C), whose other rows have a gradient of zero.
class SegmentEmbedding {
 public:
  SegmentEmbedding(const LayerContext& context, std::int64_t segments, std::int64_t width,
                   float deviation);
  Value forward(Tape& tape, const Value& x) const;

 private:
  Parameter* table_;
};

}  // namespace trireme::nn
