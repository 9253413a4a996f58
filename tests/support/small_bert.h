// A BERT small enough to train on every grid in a test, and micro-batches of made-up texts for it.
#pragma once

#include <cstdint>

#include "trireme/nn/host_micro_batch.h"

#include "models/bert/bert.h"

namespace trireme::testing {

// A vocabulary that no count of ranks divides.
models::BertConfig small_bert();

inline constexpr std::int64_t kMostMasked = 3;  // targets of a sample

// A micro-batch whose contents are undefined, as dry runs make them.
nn::HostMicroBatch undefined_masked_texts(ops::Context& ctx, std::int64_t samples,
                                          std::int64_t length);
// Micro-batch `number` of a step's data, the same on every rank. Samples have from a third to all
// of the context's tokens and from one target to kMostMasked, by their number alone.
nn::MicroBatch make_masked_texts(ops::Context& ctx, const models::BertConfig& model, int number,
                                 std::int64_t samples, bool training);

}  // namespace trireme::testing
