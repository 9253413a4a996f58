// The operands of attention for a library that takes four-dimensional tensors: (batch, heads,
// length, head_size), with strides into rows of packed QKV.
#pragma once

#include <array>
#include <cstdint>

#include "trireme/ops/attention.h"

namespace trireme::ops {

enum class AttentionOperand {
  kQuery = 1,  // in qkv, as are kKey and kValue
  kKey,
  kValue,
  kOut,
  kLogSum,  // (batch, heads, length, 1) fp32
  kOutGradient,
  kQueryGradient,  // in dqkv, as are those of key and value
  kKeyGradient,
  kValueGradient
};

struct OperandLayout {
  std::array<std::int64_t, 4> extent, stride;  // in elements
  std::int64_t offset;                         // of the first element in the tensor that holds it
};
OperandLayout layout_of(AttentionOperand operand, const AttentionShape& shape);

}  // namespace trireme::ops
