#include "ops/attention_operands.h"

namespace trireme::ops {

OperandLayout layout_of(AttentionOperand operand, const AttentionShape& s) {
  // Heads in rows of `row` elements; `before` other heads precede the first one in a row.
  const auto heads_of_rows = [&](std::int64_t heads, std::int64_t row, std::int64_t before) {
    return OperandLayout{{s.batch, heads, s.length, s.head_size},
                         {s.length * row, s.head_size, row, 1},
                         before * s.head_size};
  };
  switch (operand) {
    case AttentionOperand::kQuery:
    case AttentionOperand::kQueryGradient:
      return heads_of_rows(s.heads, s.row(), 0);
    case AttentionOperand::kKey:
    case AttentionOperand::kKeyGradient:
      return heads_of_rows(s.kv_heads, s.row(), s.heads);
    case AttentionOperand::kValue:
    case AttentionOperand::kValueGradient:
      return heads_of_rows(s.kv_heads, s.row(), s.heads + s.kv_heads);
    case AttentionOperand::kOut:
    case AttentionOperand::kOutGradient:
      return heads_of_rows(s.heads, s.heads * s.head_size, 0);
    case AttentionOperand::kLogSum:
      break;
  }
  return {{s.batch, s.heads, s.length, 1}, {s.heads * s.length, s.length, 1, 1}, 0};
}

}  // namespace trireme::ops
