#include <algorithm>
#include <cmath>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// Kernels get blocks of as many rows as stay in the cache nearest to the processor.
std::int64_t rows_of_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, 4096 / columns);
}

// Neighbouring rows of a tensor for a kernel: where it reads or writes them as fp32.
class Rows {
 public:
  Rows(Context& ctx, const Tensor& x)
      : x_(x),
        columns_(x.defined() ? x.shape()[1] : 0),
        stage_(ctx,
               x.defined() && x.dtype() != DType::kF32 ? rows_of_block(columns_) * columns_ : 1) {}

  const float* read(std::int64_t row, std::int64_t rows) const {
    if (!x_.defined()) return nullptr;
    return read_fp32(x_, row * columns_, rows * columns_, stage_.mine());
  }
  float* place(std::int64_t row) const {
    return x_.defined() ? write_place(x_, row * columns_, stage_.mine()) : nullptr;
  }
  void write(std::int64_t row, std::int64_t rows, const float* values) const {
    if (x_.defined()) write_back(x_, row * columns_, rows * columns_, values);
  }

 private:
  const Tensor& x_;
  std::int64_t columns_;
  ThreadRows stage_;
};

// Calls body(row, rows) for blocks that cover [first, end).
template <class Body>
void for_blocks(std::int64_t first, std::int64_t end, std::int64_t columns, const Body& body) {
  const std::int64_t step = rows_of_block(columns);
  for (std::int64_t row = first; row < end; row += step) body(row, std::min(step, end - row));
}

// What the kernels need of a norm.
class Columns {
 public:
  Columns(Context& ctx, const BatchNorm& norm)
      : bias_(as_fp32(ctx, norm.bias)),
        made_(ctx.allocate({2, norm.bias.elements()}, DType::kF32, MemoryUse::kWorkspace)) {
    const Tensor weight = as_fp32(ctx, norm.weight);
    const std::int64_t n = norm.bias.elements();
    const float* mean = norm.moments.data<float>();
    float* rstd = made_.data<float>();
    on_this_thread(ctx, [&] {
      for (std::int64_t i = 0; i < n; ++i) {
        rstd[i] = 1.0f / std::sqrt(mean[n + i] + norm.epsilon);
        rstd[n + i] = rstd[i] * weight.data<float>()[i];
      }
    });
    columns_ = {mean, rstd, rstd + n, bias_.data<float>(), norm.clamp.low, norm.clamp.high};
  }
  const BatchNormColumns& operator*() const { return columns_; }

 private:
  Tensor bias_, made_;
  BatchNormColumns columns_;
};

}  // namespace

// Each part of the rows has moments of its own, which are merged in order.
void batch_moments(Context& ctx, const Tensor& x, const Tensor& moments) {
  const std::int64_t rows = x.shape()[0], n = x.shape()[1];
  const std::int64_t grain = rows_per_part(rows), count = (rows + grain - 1) / grain;
  const Tensor parts = ctx.allocate({count, 2, n}, DType::kF32, MemoryUse::kWorkspace);
  const Rows in(ctx, x);
  const ThreadRows block(ctx, 2 * n);
  const auto& kernel = kernels().batch_norm;
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t end) {
    float* mean = parts.data<float>() + first / grain * 2 * n;
    for_blocks(first, end, n, [&](std::int64_t row, std::int64_t some) {
      float* to = row == first ? mean : block.mine();
      kernel.moments(in.read(row, some), some, n, to, to + n);
      if (row == first) return;
      kernel.merge_moments(mean, mean + n, static_cast<float>(row - first), to, to + n,
                           static_cast<float>(some), n);
    });
  });
  on_this_thread(ctx, [&] {
    float* mean = moments.data<float>();
    std::copy_n(parts.data<float>(), 2 * n, mean);
    for (std::int64_t part = 1; part < count; ++part) {
      const float* more = parts.data<float>() + part * 2 * n;
      const std::int64_t before = part * grain;
      kernel.merge_moments(mean, mean + n, static_cast<float>(before), more, more + n,
                           static_cast<float>(std::min(grain, rows - before)), n);
    }
    for (std::int64_t i = 0; i < n; ++i) mean[n + i] /= static_cast<float>(rows);
  });
}

void merge_batch_moments(Context& ctx, const Tensor& parts, const Tensor& moments) {
  const std::int64_t count = parts.shape()[0], n = parts.shape()[2];
  on_this_thread(ctx, [&] {
    const float* of = parts.data<float>();
    float *mean = moments.data<float>(), *variance = mean + n;
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = 0.0f, squares = 0.0f;
      for (std::int64_t part = 0; part < count; ++part) sum += of[part * 2 * n + i];
      const float merged = sum / static_cast<float>(count);
      for (std::int64_t part = 0; part < count; ++part) {
        const float difference = of[part * 2 * n + i] - merged;
        squares += of[(part * 2 + 1) * n + i] + difference * difference;
      }
      mean[i] = merged;
      variance[i] = squares / static_cast<float>(count);
    }
  });
}

void batch_norm(Context& ctx, const BatchNorm& norm, const Tensor& x, const Tensor& residual,
                const Tensor& y) {
  const std::int64_t n = x.shape()[1];
  const Columns columns(ctx, norm);
  const Rows in(ctx, x), in_residual(ctx, residual), out(ctx, y);
  parallel_ranges(ctx, x.shape()[0], row_grain(n), [&](std::int64_t first, std::int64_t end) {
    for_blocks(first, end, n, [&](std::int64_t row, std::int64_t some) {
      float* to = out.place(row);
      kernels().batch_norm.normalize(*columns, in.read(row, some), in_residual.read(row, some), to,
                                     some, n);
      out.write(row, some, to);
    });
  });
}

void batch_norm_backward_sums(Context& ctx, const BatchNorm& norm, const Tensor& dy,
                              const Tensor& x, const Tensor& y, const Tensor& sums) {
  const std::int64_t rows = x.shape()[0], n = x.shape()[1];
  const std::int64_t grain = rows_per_part(rows), count = (rows + grain - 1) / grain;
  const Tensor parts = ctx.allocate({count, 2 * n}, DType::kF32, MemoryUse::kWorkspace);
  const Columns columns(ctx, norm);
  const Rows in_dy(ctx, dy), in_x(ctx, x), in_y(ctx, y);
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t end) {
    float* part = parts.data<float>() + first / grain * 2 * n;
    std::fill_n(part, 2 * n, 0.0f);
    for_blocks(first, end, n, [&](std::int64_t row, std::int64_t some) {
      kernels().batch_norm.backward_sums(*columns, in_dy.read(row, some), in_x.read(row, some),
                                         in_y.read(row, some), part, part + n, some, n);
    });
  });
  on_this_thread(ctx, [&] { std::fill_n(sums.data<float>(), 2 * n, 0.0f); });
  add_parts(ctx, parts.data<float>(), count, 2 * n, sums.data<float>());
}

void batch_norm_backward(Context& ctx, const BatchNorm& norm, const Tensor& dy, const Tensor& x,
                         const Tensor& y, const Tensor& sums, std::int64_t count,
                         const Tensor& dresidual, const Tensor& dx) {
  const std::int64_t n = x.shape()[1];
  const Columns columns(ctx, norm);
  // The mean of g, and what a difference from the mean of x is multiplied with.
  const Tensor factors = ctx.allocate({2, n}, DType::kF32, MemoryUse::kWorkspace);
  float* mean_g = factors.data<float>();
  on_this_thread(ctx, [&] {
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(count));
    for (std::int64_t i = 0; i < n; ++i) {
      mean_g[i] = sums.data<float>()[i] * inverse;
      mean_g[n + i] = sums.data<float>()[n + i] * inverse * (*columns).rstd[i];
    }
  });
  const Rows in_dy(ctx, dy), in_x(ctx, x), in_y(ctx, y), out_residual(ctx, dresidual), out(ctx, dx);
  parallel_ranges(ctx, x.shape()[0], row_grain(n), [&](std::int64_t first, std::int64_t end) {
    for_blocks(first, end, n, [&](std::int64_t row, std::int64_t some) {
      float *to = out.place(row), *to_residual = out_residual.place(row);
      kernels().batch_norm.backward(*columns, in_dy.read(row, some), in_x.read(row, some),
                                    in_y.read(row, some), mean_g, mean_g + n, to_residual, to, some,
                                    n);
      out_residual.write(row, some, to_residual);
      out.write(row, some, to);
    });
  });
}

}  // namespace trireme::ops::cpu
