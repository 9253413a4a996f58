#include "ops/cpu/staging.h"

#include <algorithm>

#include "ops/cpu/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace trireme::ops::cpu {

int thread_number() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

const float* read_fp32(const Tensor& x, std::int64_t begin, std::int64_t n, float* stage) {
  if (x.dtype() == DType::kF32) return static_cast<const float*>(x.raw()) + begin;
  const ElementwiseKernels& k = kernels().elementwise;
  const auto convert = x.dtype() == DType::kBF16 ? k.from_bf16 : k.from_fp16;
  convert(static_cast<const std::uint16_t*>(x.raw()) + begin, stage, n);
  return stage;
}

float* write_place(const Tensor& y, std::int64_t begin, float* stage) {
  return y.dtype() == DType::kF32 ? static_cast<float*>(y.raw()) + begin : stage;
}

void write_back(const Tensor& y, std::int64_t begin, std::int64_t n, const float* stage) {
  if (y.dtype() == DType::kF32) return;
  const ElementwiseKernels& k = kernels().elementwise;
  const auto convert = y.dtype() == DType::kBF16 ? k.to_bf16 : k.to_fp16;
  convert(stage, static_cast<std::uint16_t*>(y.raw()) + begin, n);
}

Tensor as_fp32(Context& ctx, const Tensor& x) {
  if (!x.defined() || x.dtype() == DType::kF32) return x;
  const Tensor copy = ctx.allocate(x.shape(), DType::kF32, MemoryUse::kWorkspace);
  parallel_ranges(ctx, x.elements(), 16 * kStageElements,
                  [&](std::int64_t begin, std::int64_t end) {
                    read_fp32(x, begin, end - begin, copy.data<float>() + begin);
                  });
  return copy;
}

Tensor as_fp32(Context& ctx, const NormFactor& factor) {
  if (factor.plus == 0.0f) return as_fp32(ctx, factor.weight);
  const std::int64_t n = factor.weight.elements();
  const Tensor sum = ctx.allocate({n}, DType::kF32, MemoryUse::kWorkspace);
  parallel_ranges(ctx, n, 16 * kStageElements, [&](std::int64_t begin, std::int64_t end) {
    float* const to = sum.data<float>() + begin;
    const float* const weight = read_fp32(factor.weight, begin, end - begin, to);
    for (std::int64_t i = 0; i < end - begin; ++i) to[i] = weight[i] + factor.plus;
  });
  return sum;
}

ThreadRows::ThreadRows(Context& ctx, std::int64_t columns)
    : stride_((columns + 31) / 16 * 16),
      block_(ctx.allocator->allocate(
          static_cast<std::size_t>(stride_ * std::max(1, ctx.threads)) * sizeof(float),
          MemoryUse::kWorkspace, ctx.stream)) {}

float* ThreadRows::mine() const {
  return reinterpret_cast<float*>(block_.get()) + stride_ * thread_number();
}

void add_parts(const Context& ctx, const float* parts, std::int64_t count, std::int64_t columns,
               float* y) {
  parallel_ranges(ctx, columns, 2048, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 0; part < count; ++part) {
      kernels().elementwise.add(y + begin, parts + part * columns + begin, y + begin, end - begin);
    }
  });
}

std::int64_t rows_per_part(std::int64_t rows) {
  return std::max<std::int64_t>(16, (rows + 63) / 64);
}

}  // namespace trireme::ops::cpu
