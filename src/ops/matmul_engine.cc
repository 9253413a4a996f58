#include "ops/matmul_engine.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <ranges>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/printable.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/libraries.h"

#include "ops/convolution_engine.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

// Storage in bf16 or fp16, compute in fp32. The product is divided so that the converted blocks
// stay within a few MiB. k is never divided, so that a sum is rounded once.
class ConvertingMatmul : public MatmulEngine {
 public:
  explicit ConvertingMatmul(std::shared_ptr<MatmulEngine> fp32)
      : fp32_(std::move(fp32)),
        description_(fmt::format("{}, converted to fp32", fp32_->description(DType::kF32))) {}

  void run(Context& ctx, const MatmulCall& call) override {
    const std::int64_t block = std::max<std::int64_t>(64, kBlockElements / call.k / 64 * 64);
    // On a dry context the first block and the last say what workspace all of them need.
    const auto after = [&](std::int64_t begin, std::int64_t extent) {
      const std::int64_t last = (extent - 1) / block * block;
      return ctx.dry && begin < last ? last : begin + block;
    };
    for (std::int64_t i = 0; i < call.m; i = after(i, call.m)) {
      const std::int64_t rows = std::min(block, call.m - i);
      const Tensor a =
          converted(ctx, call.dtype, call.a, call.transpose_a, call.m, call.k, i, rows);
      for (std::int64_t j = 0; j < call.n; j = after(j, call.n)) {
        const std::int64_t columns = std::min(block, call.n - j);
        const Tensor b =
            converted(ctx, call.dtype, call.b, !call.transpose_b, call.n, call.k, j, columns);
        multiply_block(ctx, call, a, b, i, rows, j, columns);
      }
    }
  }

  std::string_view description(DType) const override { return description_; }
  bool is_native(DType) const override { return false; }

 private:
  static constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

  // `count` rows from `first` on of an operand (extent, k), or columns if it is stored as (k,
  // extent).
  static Tensor converted(Context& ctx, DType dtype, const void* data, bool transposed,
                          std::int64_t extent, std::int64_t k, std::int64_t first,
                          std::int64_t count) {
    const Tensor from = Tensor::wrap(const_cast<void*>(data), {extent, k}, dtype);
    const Shape shape = transposed ? Shape{k, count} : Shape{count, k};
    const Tensor block = ctx.allocate(shape, DType::kF32, MemoryUse::kWorkspace);
    if (!transposed) {
      cpu::cast(ctx, from.rows(first, first + count), block);
      return block;
    }
    cpu::parallel_ranges(ctx, k, cpu::row_grain(count), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        cpu::read_fp32(from, row * extent + first, count, block.data<float>() + row * count);
      }
    });
    return block;
  }

  void multiply_block(Context& ctx, const MatmulCall& call, const Tensor& a, const Tensor& b,
                      std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
    const Tensor product = ctx.allocate({rows, columns}, DType::kF32, MemoryUse::kWorkspace);
    const Tensor c = Tensor::wrap(call.c, {call.m * call.n}, call.c_dtype);
    auto at = [&](std::int64_t row) { return (i + row) * call.n + j; };
    auto line = [&](std::int64_t row) { return product.data<float>() + row * columns; };
    const auto for_lines = [&](const auto& body) {
      cpu::parallel_ranges(ctx, rows, cpu::row_grain(columns),
                           [&](std::int64_t begin, std::int64_t end) {
                             for (std::int64_t row = begin; row < end; ++row) body(row);
                           });
    };
    if (call.accumulate) {
      for_lines([&](std::int64_t row) {
        const float* old = cpu::read_fp32(c, at(row), columns, line(row));
        if (old != line(row)) std::copy_n(old, columns, line(row));
      });
    }
    fp32_->run(ctx, {.m = rows,
                     .n = columns,
                     .k = call.k,
                     .transpose_a = call.transpose_a,
                     .transpose_b = call.transpose_b,
                     .a = a.raw(),
                     .b = b.raw(),
                     .c = product.raw(),
                     .accumulate = call.accumulate});
    for_lines([&](std::int64_t row) {
      if (call.c_dtype == DType::kF32) {
        std::copy_n(line(row), columns, c.data<float>() + at(row));
      } else {
        cpu::write_back(c, at(row), columns, line(row));
      }
    });
  }

  std::shared_ptr<MatmulEngine> fp32_;
  std::string description_;
};

class CpuMatmul : public MatmulEngine {
 public:
  CpuMatmul(std::shared_ptr<MatmulEngine> fp32, std::shared_ptr<MatmulEngine> bf16,
            std::shared_ptr<MatmulEngine> fp16)
      : fp32_(std::move(fp32)),
        bf16_(std::move(bf16)),
        fp16_(std::move(fp16)),
        e4m3_(make_scaled_matmul(bf16_)) {}

  void run(Context& ctx, const MatmulCall& call) override { engine(call.dtype).run(ctx, call); }
  bool fuses(const MatmulCall& call) override { return engine(call.dtype).fuses(call); }
  std::string_view description(DType dtype) const override {
    return engine(dtype).description(dtype);
  }
  bool is_native(DType dtype) const override { return engine(dtype).is_native(dtype); }

 private:
  MatmulEngine& engine(DType dtype) const {
    switch (dtype) {
      case DType::kF32:
        return *fp32_;
      case DType::kBF16:
        return *bf16_;
      case DType::kE4M3:
        return *e4m3_;
      default:
        return *fp16_;
    }
  }

  std::shared_ptr<MatmulEngine> fp32_, bf16_, fp16_, e4m3_;
};

// fp32 with AVX-512. No way to a product is the fastest for all shapes; oneDNN's primitives take
// 1.6 to 2 times as long as its sgemm where the second operand has rows of 3072 floats. The rule is
// of perf/products.py.
class ByShapeMatmul : public MatmulEngine {
 public:
  explicit ByShapeMatmul(std::shared_ptr<MatmulEngine> primitives)
      : primitives_(std::move(primitives)),
        sgemm_(make_onednn_sgemm()),
        own_(make_own_matmul()),
        description_(onednn_description()) {}

  void run(Context& ctx, const MatmulCall& call) override { engine(call).run(ctx, call); }
  bool fuses(const MatmulCall& call) override { return engine(call).fuses(call); }
  std::string_view description(DType) const override { return description_; }

 private:
  static constexpr std::int64_t kFewRows = 4;
  // Multiplications from which a product of few rows, or few terms, is worth oneDNN's threads. Our
  // own kernels pack all of the weight for them.
  static constexpr double kLongOfFewRows = 1e6;

  MatmulEngine& engine(const MatmulCall& call) const {
    const bool few = std::min(call.m, call.k) <= kFewRows;
    // oneDNN wakes its threads for these, which takes longer than the product.
    if (call.multiplications() < (few ? kLongOfFewRows : kOneThread)) return *own_;
    const bool forward = call.transpose_b;
    return forward && call.m > kFewRows ? *primitives_ : *sgemm_;
  }

  std::shared_ptr<MatmulEngine> primitives_, sgemm_, own_;
  std::string description_;
};

enum class Fp32Engine { kByShape, kPrimitives, kSgemm, kOwn };

// With AVX-512, oneDNN; with only AVX2, our own kernels: see perf/RESULTS.md.
struct Fp32Choice {
  Fp32Engine engine;
  std::string reason;
};
Fp32Choice best_fp32_engine() {
  if (const char* asked = std::getenv("TRIREME_MATMUL"); asked != nullptr) {
    static const std::map<std::string_view, Fp32Engine> known = {
        {"onednn", Fp32Engine::kByShape},
        {"onednn-primitives", Fp32Engine::kPrimitives},
        {"onednn-sgemm", Fp32Engine::kSgemm},
        {"own", Fp32Engine::kOwn}};
    const auto found = known.find(asked);
    if (found == known.end()) {
      throw ConfigError(fmt::format("TRIREME_MATMUL is '{}'; it may be one of {}", shown(asked),
                                    fmt::join(std::views::keys(known), ", ")));
    }
    return {found->second, fmt::format("TRIREME_MATMUL={} asks for it", found->first)};
  }
#ifdef _OPENMP
  if (__builtin_cpu_supports("avx512f")) return {Fp32Engine::kByShape, "the processor has AVX-512"};
  return {Fp32Engine::kOwn, "the processor has no AVX-512"};
#else
  return {Fp32Engine::kOwn, "this build has no OpenMP"};  // oneDNN would start threads of its own
#endif
}

}  // namespace

std::string matmul_reason() {
  return best_fp32_engine().reason;
}

std::unique_ptr<MatmulEngine> make_converting_matmul(std::shared_ptr<MatmulEngine> fp32) {
  return std::make_unique<ConvertingMatmul>(std::move(fp32));
}

std::shared_ptr<ConvolutionEngine> make_cpu_convolution_engine() {
  if (best_fp32_engine().engine == Fp32Engine::kOwn) return nullptr;
  return make_onednn_convolution();
}

std::shared_ptr<MatmulEngine> make_cpu_matmul_engine() {
  const Fp32Engine engine = best_fp32_engine().engine;
  std::shared_ptr<MatmulEngine> primitives, fp32;
  if (engine != Fp32Engine::kOwn) primitives = make_onednn_primitives();
  switch (engine) {
    case Fp32Engine::kByShape:
      fp32 = std::make_shared<ByShapeMatmul>(primitives);
      break;
    case Fp32Engine::kPrimitives:
      fp32 = primitives;
      break;
    case Fp32Engine::kSgemm:
      fp32 = make_onednn_sgemm();
      break;
    case Fp32Engine::kOwn:
      fp32 = make_own_matmul();
      break;
  }
  // oneDNN 2.6 has no products of fp16 on a CPU.
  const std::shared_ptr<MatmulEngine> converting = make_converting_matmul(fp32);
  const bool native = primitives && onednn_has_native_bf16();
  return std::make_shared<CpuMatmul>(fp32, native ? primitives : converting, converting);
}

}  // namespace trireme::ops
