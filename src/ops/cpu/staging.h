// All arithmetic is fp32: a range of a bf16 or fp16 tensor is converted on its way into and out of
// a kernel, through a small buffer that stays in the cache. A range of an fp32 tensor is used where
// it lies.
#pragma once

#include "trireme/ops/context.h"

#include "ops/cpu/kernels.h"

namespace trireme::ops::cpu {

// Elementwise kernels run on this many elements at a time.
inline constexpr std::int64_t kStageElements = 1024;
struct Stage {
  alignas(64) float values[kStageElements];
};

// n elements from `begin` as fp32; `stage` holds them where x is of another type.
const float* read_fp32(const Tensor& x, std::int64_t begin, std::int64_t n, float* stage);

// Where a kernel may write elements from `begin` of y; write_back must follow, with the same
// arguments.
float* write_place(const Tensor& y, std::int64_t begin, float* stage);
void write_back(const Tensor& y, std::int64_t begin, std::int64_t n, const float* stage);

// The whole tensor in fp32: itself, or a converted copy in workspace. Undefined stays undefined.
Tensor as_fp32(Context& ctx, const Tensor& x);

// A row's worth of fp32 for each thread: row(thread_number()) of a workspace block.
class ThreadRows {
 public:
  ThreadRows(Context& ctx, std::int64_t columns);
  float* mine() const;

 private:
  std::int64_t stride_;
  Buffer block_;
};

// Adds `parts` (count, columns) to y in the order of their numbers; columns are shared out.
void add_parts(const Context& ctx, const float* parts, std::int64_t count, std::int64_t columns,
               float* y);

// Splits rows into at most 64 parts of at least 16, by the number of rows alone.
std::int64_t rows_per_part(std::int64_t rows);

}  // namespace trireme::ops::cpu
