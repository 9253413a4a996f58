// A micro-batch as the host makes it, before it is where blocks compute.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/nn/block.h"

namespace trireme::nn {

// Tensors of the host. Whoever makes a micro-batch adds its fields and fills them.
struct HostMicroBatch {
  // Makes one without fields.
  HostMicroBatch(ops::Context& ctx, std::int64_t batch, std::int64_t length);

  std::int64_t batch, length;  // see MicroBatch
  Fields fields;
  Tensor samples;  // (batch) int64

  // Adds a field and returns its tensor, whose contents are undefined.
  Tensor add(ops::Context& ctx, std::string_view name, const Shape& shape, DType dtype);

  // Returns the same in memory that operations of the context read, with a loss of zero.
  // `target_count` is the number of targets that are not masked.
  MicroBatch to_device(ops::Context& ctx, std::int64_t target_count, bool training) const;
};

}  // namespace trireme::nn
