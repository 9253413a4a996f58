// The table of changes of this program that change the bits of results: across one of them results
// agree to rounding. Checkpoints hold the number of the last one, and a resume from an earlier one
// says so. modules/CHANGES.md has the table for users.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/ops/context.h"

namespace trireme::ops {

// What of a model decides which changes touch it.
struct Arithmetic {
  DType compute = DType::kF32;
  std::int64_t classes = 0;  // of a rank, in a loss that works through slices of rows; else 0
  bool batch_norms = false;
};

struct ArithmeticChange {
  int number = 0;
  std::string_view what;  // for the user: "products in fp32 ..."
  // Whether it touches results of such a model in this context.
  bool (*touches)(const Context&, const Arithmetic&) = nullptr;
};
// The table, in ascending order, from 2 on. 1 is what came before it: checkpoints without a number.
std::span<const ArithmeticChange> arithmetic_changes();

// The number of the last one.
int arithmetic_now();
// What has changed since then and touches results of the model in this context: "products in fp32
// ..."; empty if nothing.
std::string arithmetic_since(int number, const Context& ctx, const Arithmetic& model);

}  // namespace trireme::ops
