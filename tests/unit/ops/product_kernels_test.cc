// The kernels of matrix products, of every instruction set that the processor has, on memory of
// exactly the length that they may touch: the address sanitizer sees what they read or write
// beyond.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu {
namespace {

std::vector<const ProductKernels*> all_kernels() {
  std::vector<const ProductKernels*> all = {&baseline::kProduct};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) all.push_back(&avx2::kProduct);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    all.push_back(&avx512::kProduct);
  }
  return all;
}

float value(std::int64_t i) {
  return static_cast<float>((i * 7919) % 1009) / 1009.0f - 0.5f;
}

// Lines of `terms` terms, and a stride that is longer, but not behind the last.
struct Lines {
  Lines(bool is_across, std::int64_t line_count, std::int64_t term_count)
      : lines(line_count), terms(term_count), across(is_across) {
    x.resize(static_cast<std::size_t>((outer() - 1) * stride() + inner()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(static_cast<std::int64_t>(i));
  }
  std::int64_t outer() const { return across ? terms : lines; }
  std::int64_t inner() const { return across ? lines : terms; }
  std::int64_t stride() const { return inner() + 3; }
  float at(std::int64_t line, std::int64_t term) const {
    return x[static_cast<std::size_t>(across ? term * stride() + line : line * stride() + term)];
  }
  PanelSource source() const { return {x.data(), stride(), across, lines, terms}; }

  std::int64_t lines, terms;
  bool across;
  std::vector<float> x;
};

std::int64_t panels_of(std::int64_t lines, std::int64_t width) {
  return (lines + width - 1) / width;
}

TEST(ProductKernels, PackEveryLayoutAndFillUpWithZeros) {
  for (const ProductKernels* kernels : all_kernels()) {
    for (const bool of_a : {true, false}) {
      const std::int64_t width = of_a ? kernels->rows : kernels->columns;
      for (const bool across : {false, true}) {
        for (const std::int64_t lines : {std::int64_t{1}, width - 1, width, 5 * width + 2}) {
          for (const std::int64_t terms : {1, 3, 4, 9}) {
            const Lines from(across, lines, terms);
            std::vector<float> panels(
                static_cast<std::size_t>(panels_of(lines, width) * width * terms), 7.0f);
            (of_a ? kernels->pack_a : kernels->pack_b)(from.source(), panels.data());
            for (std::int64_t line = 0; line < panels_of(lines, width) * width; ++line) {
              for (std::int64_t term = 0; term < terms; ++term) {
                const std::int64_t at = line / width * width * terms + term * width + line % width;
                ASSERT_EQ(panels[static_cast<std::size_t>(at)],
                          line < lines ? from.at(line, term) : 0.0f)
                    << "width " << width << " across " << across << " line " << line << " of "
                    << lines << " term " << term << " of " << terms;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ProductKernels, MultiplyWholeTilesAndPartsOfThem) {
  for (const ProductKernels* kernels : all_kernels()) {
    const std::int64_t rows = kernels->rows, columns = kernels->columns;
    for (const std::int64_t terms : {1, 4, 7}) {
      std::vector<float> a, b;
      for (std::int64_t i = 0; i < rows * terms; ++i) a.push_back(value(i));
      for (std::int64_t i = 0; i < columns * terms; ++i) b.push_back(value(i + 500));
      for (const std::int64_t m : {std::int64_t{1}, rows - 1, rows}) {
        for (const std::int64_t n :
             {std::int64_t{1}, columns / 2, columns / 2 + 1, columns - 1, columns}) {
          for (const bool accumulate : {false, true}) {
            const std::int64_t stride = n + 2;
            std::vector<float> c(static_cast<std::size_t>((m - 1) * stride + n), 0.25f);
            kernels->multiply(a.data(), b.data(), terms, {c.data(), stride, m, n, accumulate});
            for (std::int64_t i = 0; i < static_cast<std::int64_t>(c.size()); ++i) {
              double expected = 0.25;
              if (i % stride < n) {
                expected = accumulate ? 0.25 : 0.0;
                for (std::int64_t p = 0; p < terms; ++p) {
                  expected +=
                      static_cast<double>(a[static_cast<std::size_t>(p * rows + i / stride)]) *
                      static_cast<double>(b[static_cast<std::size_t>(p * columns + i % stride)]);
                }
              }
              ASSERT_NEAR(c[static_cast<std::size_t>(i)], expected, 1e-5)
                  << rows << " x " << columns << ": " << m << " x " << n << " x " << terms;
            }
          }
        }
      }
    }
  }
}

TEST(ProductKernels, DotsOfAnyNumberOfLines) {
  for (const ProductKernels* kernels : all_kernels()) {
    for (const std::int64_t terms : {1, 16, 37}) {
      for (const std::int64_t lines : {1, 4, 7}) {
        const Lines w(false, lines, terms);
        std::vector<float> x, y(static_cast<std::size_t>(lines));
        for (std::int64_t p = 0; p < terms; ++p) x.push_back(value(p + 100));
        kernels->dots(x.data(), w.x.data(), w.stride(), lines, terms, y.data());
        for (std::int64_t line = 0; line < lines; ++line) {
          double expected = 0.0;
          for (std::int64_t p = 0; p < terms; ++p) {
            expected += static_cast<double>(x[static_cast<std::size_t>(p)]) *
                        static_cast<double>(w.at(line, p));
          }
          ASSERT_NEAR(y[static_cast<std::size_t>(line)], expected, 1e-5) << terms;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::ops::cpu
