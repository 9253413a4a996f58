// A micro-batch as the host makes it, before it is where blocks compute.
#pragma once

#include <cstdint>

#include "trireme/nn/block.h"

namespace trireme::nn {

// Tensors of the host for a micro-batch of batch x length positions.
struct HostMicroBatch {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  Tensor tokens, targets;  // (batch * length) int32
  Tensor first_key;        // (batch * length) int32, or undefined
  Tensor samples;          // (batch) int64

  // Returns the same in memory that operations of the context read, with a loss of zero.
  // `target_count` is the number of targets that are not masked.
  MicroBatch to_device(ops::Context& ctx, std::int64_t target_count, bool training) const;
};

// The contents are undefined; whoever makes a micro-batch fills them.
HostMicroBatch make_host_micro_batch(ops::Context& ctx, std::int64_t batch, std::int64_t length,
                                     bool with_first_key);

}  // namespace trireme::nn
