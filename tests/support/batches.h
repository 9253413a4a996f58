// Micro-batches of made-up tokens, the same on every rank.
#pragma once

#include <vector>

#include "trireme/nn/block.h"

namespace trireme::testing {

struct BatchShape {
  std::int64_t vocabulary = 67;
  std::int64_t micro = 2;  // sequences per micro-batch
  std::int64_t length = 16;
};

// Returns micro-batches first, ..., first + count - 1 of a step's data. Some targets are masked,
// unevenly.
std::vector<nn::MicroBatch> make_batches(ops::Context& ctx, const BatchShape& shape, int first,
                                         int count, bool training);

}  // namespace trireme::testing
