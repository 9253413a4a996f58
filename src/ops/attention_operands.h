// The operands of attention as a library of tensors in four dimensions sees them: (batch, heads,
// length, head_size) by strides into rows where query, key and value heads lie side by side.
#pragma once

#include <array>
#include <cstdint>

#include "trireme/ops/attention.h"

namespace trireme::ops {

enum class AttentionOperand {
  kQuery = 1,  // of qkv, as key and value
  kKey,
  kValue,
  kOut,
  kLogSum,  // (batch, heads, length, 1) fp32
  kOutGradient,
  kQueryGradient,  // of dqkv, as those of key and value
  kKeyGradient,
  kValueGradient
};

struct OperandLayout {
  std::array<std::int64_t, 4> extent, stride;  // in elements
  std::int64_t offset;                         // of its first element in the tensor that holds it
};
OperandLayout layout_of(AttentionOperand operand, const AttentionShape& shape);

}  // namespace trireme::ops
