// All arithmetic is fp32. A range of a bf16 or fp16 tensor is converted before and after a kernel,
// in a small buffer that stays in the cache. A range of an fp32 tensor is used in place.
#pragma once

#include "trireme/ops/context.h"
#include "trireme/ops/norm.h"

#include "ops/cpu/kernels.h"

namespace trireme::ops::cpu {

// Elementwise kernels run on this many elements at a time.
inline constexpr std::int64_t kStageElements = 1024;
struct Stage {
  alignas(64) float values[kStageElements];
};

// Returns n elements of x from `begin` on, as fp32. They are in `stage` if x is of another type.
const float* read_fp32(const Tensor& x, std::int64_t begin, std::int64_t n, float* stage);

// Returns the memory to which a kernel writes the elements of y from `begin` on. write_back must
// follow, with the same arguments.
float* write_place(const Tensor& y, std::int64_t begin, float* stage);
void write_back(const Tensor& y, std::int64_t begin, std::int64_t n, const float* stage);

// The whole tensor in fp32: x itself, or a converted copy in workspace memory. Undefined if x is.
Tensor as_fp32(Context& ctx, const Tensor& x);

// A norm's factor in fp32.
Tensor as_fp32(Context& ctx, const NormFactor& factor);

// A row of `columns` fp32 elements of workspace memory for each thread.
class ThreadRows {
 public:
  ThreadRows(Context& ctx, std::int64_t columns);
  float* mine() const;

 private:
  std::int64_t stride_;
  Buffer block_;
};

// Adds the rows of `parts` (count, columns) to y in order. Threads share the columns.
void add_parts(const Context& ctx, const float* parts, std::int64_t count, std::int64_t columns,
               float* y);

// Rows per part, for a split into at most 64 parts of at least 16 rows. Depends on the number of
// rows alone.
std::int64_t rows_per_part(std::int64_t rows);

}  // namespace trireme::ops::cpu
