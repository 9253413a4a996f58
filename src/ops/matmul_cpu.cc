#include <algorithm>

#include <fmt/format.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

// The order of all sums depends on the extents alone, not on the number of threads.
constexpr std::int64_t kTerms = 256;       // of a panel; one of b stays in the first cache
constexpr std::int64_t kPackedRows = 144;  // whose panels stay in the second one
constexpr std::int64_t kBlockRows = 512;   // of the block that a thread computes in one go
constexpr std::int64_t kBlockColumns = 384;
constexpr std::int64_t kLeastColumns = 96;
constexpr std::int64_t kLeastTerms = 2048;
constexpr std::int64_t kFairParts = 4;         // for threads to share them fairly
constexpr double kLeastPart = kOneThread / 2;  // multiplications worth the start of a thread
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kDotsAtOnce = 131072;  // elements of b worth the start of a thread

std::int64_t parts_of(std::int64_t extent, std::int64_t size) {
  return (extent + size - 1) / size;
}

struct Range {
  std::int64_t begin, size;
};

// An extent in ranges of one size, a multiple of `unit`; the last may be shorter.
class Ranges {
 public:
  Ranges(std::int64_t extent, std::int64_t count, std::int64_t unit)
      : extent_(extent),
        each_(parts_of(parts_of(extent, std::max<std::int64_t>(1, count)), unit) * unit) {}

  std::int64_t count() const { return parts_of(extent_, each_); }
  std::int64_t largest() const { return std::min(extent_, each_); }
  Range operator[](std::int64_t i) const {
    return {i * each_, std::min(each_, extent_ - i * each_)};
  }

 private:
  std::int64_t extent_, each_;
};

// The loops of Goto and van de Geijn (2008), within a block of the result: both operands are packed
// into panels, so that the kernel reads them in order. A thread packs what its block needs itself.
// To wake threads a second time would take longer than to pack the same rows for several blocks.
class OwnMatmul : public MatmulEngine {
 public:
  OwnMatmul() : description_(fmt::format("own kernels ({})", cpu::kernels().name)) {}

  void run(Context& ctx, const MatmulCall& call) override {
    TRIREME_CHECK(call.dtype == DType::kF32 && call.c_dtype == DType::kF32,
                  "own kernels multiply fp32 only");
    // To pack b would take longer than the product.
    if (call.m <= kFewRows && !call.transpose_a && call.transpose_b && !call.accumulate) {
      return multiply_rows(ctx, call);
    }
    const Division division(call, ctx.threads);
    const cpu::ThreadRows panels(ctx, division.of_a + division.of_b);
    const std::int64_t blocks = division.rows.count() * division.columns.count();
    const std::int64_t shares = division.shares.count();
    // The first share's sums go to c, those of the others here.
    const Tensor sums =
        ctx.allocate({(shares - 1) * call.m * call.n}, DType::kF32, MemoryUse::kWorkspace);
    const auto compute = [&](std::int64_t part) {
      const std::int64_t share = part / blocks, block = part % blocks;
      const Block of{.rows = division.rows[block / division.columns.count()],
                     .columns = division.columns[block % division.columns.count()],
                     .terms = division.shares[share],
                     .c = share == 0 ? static_cast<float*>(call.c)
                                     : sums.data<float>() + (share - 1) * call.m * call.n,
                     .accumulate = share == 0 && call.accumulate};
      multiply_block(call, of, panels.mine(), panels.mine() + division.of_a);
    };
    if (is_short(call)) {
      cpu::on_this_thread(ctx, [&] {
        for (std::int64_t part = 0; part < shares * blocks; ++part) compute(part);
      });
    } else {
      cpu::parallel_for_uneven(ctx, shares * blocks, compute);
    }
    if (shares > 1) {
      cpu::add_parts(ctx, sums.data<float>(), shares - 1, call.m * call.n,
                     static_cast<float*>(call.c));
    }
  }

  std::string_view description(DType) const override { return description_; }

 private:
  // What threads divide among themselves: blocks of the result, and where these are few also the
  // terms of their sums. How the terms are divided decides the bits, so the number of threads has
  // no say in it. How the columns are divided decides nothing.
  struct Division {
    Division(const MatmulCall& call, int threads)
        : rows(call.m, (call.m + kBlockRows / 2) / kBlockRows, kernels.rows),
          columns(columns_for(call, rows,
                              threads == 1 ? 1 : std::max<std::int64_t>(kFairParts, 2 * threads))),
          shares(call.k,
                 std::min(parts_worth(call, kFairParts) /
                              (rows.count() * columns_for(call, rows, kFairParts).count()),
                          call.k / kLeastTerms),
                 kTerms),
          of_a(parts_of(std::min(rows.largest(), kPackedRows), kernels.rows) * kernels.rows *
               kTerms),
          of_b(parts_of(columns.largest(), kernels.columns) * kernels.columns * kTerms) {}

    const cpu::ProductKernels& kernels = cpu::kernels().product;
    Ranges rows, columns, shares;
    std::int64_t of_a, of_b;  // elements of a thread's panels
  };

  static Ranges columns_for(const MatmulCall& call, const Ranges& rows, std::int64_t most) {
    const std::int64_t wanted = parts_of(parts_worth(call, most), rows.count());
    return {call.n,
            std::max(parts_of(call.n, kBlockColumns), std::min(wanted, call.n / kLeastColumns)),
            cpu::kernels().product.columns};
  }

  // Whether the product takes less time than to wake a thread for a part of it.
  static bool is_short(const MatmulCall& call) { return call.multiplications() < kOneThread; }

  // How many parts are worth a thread, up to `most`.
  static std::int64_t parts_worth(const MatmulCall& call, std::int64_t most) {
    const double multiplications = call.multiplications();
    return multiplications >= kLeastPart * static_cast<double>(most)
               ? most
               : std::max<std::int64_t>(1, static_cast<std::int64_t>(multiplications / kLeastPart));
  }

  struct Block {
    Range rows, columns, terms;
    float* c;  // of the whole result
    bool accumulate;
  };

  static void multiply_block(const MatmulCall& call, const Block& of, float* a_panels,
                             float* b_panels) {
    const cpu::ProductKernels& kernels = cpu::kernels().product;
    const std::int64_t packed = kPackedRows / kernels.rows * kernels.rows;
    float* const c = of.c + of.rows.begin * call.n + of.columns.begin;
    for (std::int64_t p = 0; p < of.terms.size; p += kTerms) {
      const Range terms = {of.terms.begin + p, std::min(kTerms, of.terms.size - p)};
      const auto lines_of = [&](const void* x, bool across, std::int64_t stride, Range lines) {
        const std::int64_t at =
            across ? terms.begin * stride + lines.begin : lines.begin * stride + terms.begin;
        return cpu::PanelSource{static_cast<const float*>(x) + at, stride, across, lines.size,
                                terms.size};
      };
      kernels.pack_b(
          lines_of(call.b, !call.transpose_b, call.transpose_b ? call.k : call.n, of.columns),
          b_panels);
      for (std::int64_t first = 0; first < of.rows.size; first += packed) {
        const std::int64_t end = std::min(of.rows.size, first + packed);
        kernels.pack_a(lines_of(call.a, call.transpose_a, call.transpose_a ? call.m : call.k,
                                {of.rows.begin + first, end - first}),
                       a_panels);
        for (std::int64_t j = 0; j < of.columns.size; j += kernels.columns) {
          for (std::int64_t i = first; i < end; i += kernels.rows) {
            kernels.multiply(
                a_panels + (i - first) * terms.size, b_panels + j * terms.size, terms.size,
                {c + i * call.n + j, call.n, std::min(kernels.rows, end - i),
                 std::min(kernels.columns, of.columns.size - j), of.accumulate || p > 0});
          }
        }
      }
    }
  }

  static void multiply_rows(const Context& ctx, const MatmulCall& call) {
    const std::int64_t lines = std::max<std::int64_t>(4, kDotsAtOnce / call.k / 4 * 4);
    cpu::parallel_ranges(ctx, call.n, lines, [&](std::int64_t begin, std::int64_t end) {
      // The lines of b stay in a cache for all rows of a.
      for (std::int64_t i = 0; i < call.m; ++i) {
        cpu::kernels().product.dots(static_cast<const float*>(call.a) + i * call.k,
                                    static_cast<const float*>(call.b) + begin * call.k, call.k,
                                    end - begin, call.k,
                                    static_cast<float*>(call.c) + i * call.n + begin);
      }
    });
  }

  std::string description_;
};

}  // namespace

std::unique_ptr<MatmulEngine> make_own_matmul() {
  return std::make_unique<OwnMatmul>();
}

}  // namespace trireme::ops
