#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// Calls body(row) for every row, on all threads.
template <class Body>
void for_rows(const Context& ctx, const Tensor& x, const Body& body) {
  parallel_ranges(ctx, x.shape().rows(), row_grain(x.shape()[-1]),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t row = first; row < last; ++row) body(row);
                  });
}

// Gradients of weights: calls body(row, part) to add a row to the sums (count * columns floats from
// `part`) of its part of the rows, then adds the parts in order to `targets`, each (columns).
template <class Body>
void sum_rows(Context& ctx, const Tensor& x, std::initializer_list<float*> targets,
              const Body& body) {
  const std::int64_t columns = x.shape()[-1];
  const std::int64_t rows = x.shape().rows();
  const auto sums = static_cast<std::int64_t>(targets.size());
  const std::int64_t grain = rows_per_part(rows);
  const std::int64_t count = (rows + grain - 1) / grain;
  const Tensor parts = ctx.allocate({sums, count, columns}, DType::kF32, MemoryUse::kWorkspace);
  float* base = parts.data<float>();
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t last) {
    float* part = base + first / grain * columns;
    for (std::int64_t s = 0; s < sums; ++s) {
      std::fill_n(part + s * count * columns, columns, 0.0f);
    }
    for (std::int64_t row = first; row < last; ++row) body(row, part, count * columns);
  });
  for (float* target : targets) {
    if (target != nullptr) add_parts(ctx, base, count, columns, target);
    base += count * columns;
  }
}

// Returns null if x is undefined.
const float* read_row(const Tensor& x, std::int64_t row, const ThreadRows& stage) {
  if (!x.defined()) return nullptr;
  const std::int64_t n = x.shape()[-1];
  return read_fp32(x, row * n, n, stage.mine());
}

// Computes x + branch row by row, so that each row is still in the cache when it is read again.
class RowSums {
 public:
  RowSums(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& sum)
      : x_(x),
        branch_(branch),
        sum_(sum),
        in_x_(ctx, x.shape()[-1]),
        in_branch_(ctx, x.shape()[-1]),
        out_(ctx, x.shape()[-1]) {}

  // Computes a row and returns it as rounded to sum's type.
  const float* operator()(std::int64_t row) const {
    const std::int64_t n = x_.shape()[-1];
    float* to = write_place(sum_, row * n, out_.mine());
    kernels().elementwise.add(read_row(x_, row, in_x_), read_row(branch_, row, in_branch_), to, n);
    write_back(sum_, row * n, n, to);
    return read_row(sum_, row, out_);
  }

 private:
  const Tensor &x_, &branch_, &sum_;
  ThreadRows in_x_, in_branch_, out_;
};

// row_of(row) returns the row to normalize, in fp32.
template <class RowOf>
void layer_norm_rows(Context& ctx, const RowOf& row_of, const Tensor& weight, const Tensor& bias,
                     float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const std::int64_t n = y.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const Tensor b = as_fp32(ctx, bias);
  const float* shift = b.defined() ? b.data<float>() : nullptr;
  const ThreadRows out(ctx, n);
  for_rows(ctx, y, [&](std::int64_t row) {
    const float* from = row_of(row);
    float* to = write_place(y, row * n, out.mine());
    kernels().norm.layer_norm(from, w.data<float>(), shift, epsilon, to, mean.data<float>() + row,
                              rstd.data<float>() + row, n);
    write_back(y, row * n, n, to);
  });
}

template <class RowOf>
void rms_norm_rows(Context& ctx, const RowOf& row_of, const NormFactor& factor, float epsilon,
                   const Tensor& y, const Tensor& rstd) {
  const std::int64_t n = y.shape()[-1];
  const Tensor w = as_fp32(ctx, factor);
  const ThreadRows out(ctx, n);
  for_rows(ctx, y, [&](std::int64_t row) {
    const float* from = row_of(row);
    float* to = write_place(y, row * n, out.mine());
    kernels().norm.rms_norm(from, w.data<float>(), epsilon, to, rstd.data<float>() + row, n);
    write_back(y, row * n, n, to);
  });
}

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const ThreadRows in(ctx, x.shape()[-1]);
  layer_norm_rows(
      ctx, [&](std::int64_t row) { return read_row(x, row, in); }, weight, bias, epsilon, y, mean,
      rstd);
}

void add_layer_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                    const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd) {
  const RowSums sums(ctx, x, branch, sum);
  layer_norm_rows(ctx, sums, weight, bias, epsilon, y, mean, rstd);
}

void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& residual, const Tensor& dx) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const ThreadRows in_x(ctx, n), in_dy(ctx, n), in_residual(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    float* to = write_place(dx, row * n, out.mine());
    kernels().norm.layer_norm_backward_input(
        read_row(dy, row, in_dy), read_row(x, row, in_x), w.data<float>(), mean.data<float>()[row],
        rstd.data<float>()[row], read_row(residual, row, in_residual), to, n);
    write_back(dx, row * n, n, to);
  });
}

void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias) {
  const std::int64_t n = x.shape()[-1];
  const ThreadRows in_x(ctx, n), in_dy(ctx, n);
  float* shift = dbias.defined() ? dbias.data<float>() : nullptr;
  sum_rows(ctx, x, {dweight.data<float>(), shift},
           [&](std::int64_t row, float* part, std::int64_t stride) {
             kernels().norm.layer_norm_backward_weight(
                 read_row(dy, row, in_dy), read_row(x, row, in_x), mean.data<float>()[row],
                 rstd.data<float>()[row], part, shift == nullptr ? nullptr : part + stride, n);
           });
}

void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dx_sums) {
  cpu::layer_norm_backward_weight(ctx, dy, x, mean, rstd, dweight, dbias);
  cpu::layer_norm_backward_input(ctx, dy, x, weight, mean, rstd, residual, dx);
  if (dx_sums.defined()) cpu::add_column_sums(ctx, dx, dx_sums);
}

void rms_norm(Context& ctx, const Tensor& x, const NormFactor& factor, float epsilon,
              const Tensor& y, const Tensor& rstd) {
  const ThreadRows in(ctx, x.shape()[-1]);
  rms_norm_rows(
      ctx, [&](std::int64_t row) { return read_row(x, row, in); }, factor, epsilon, y, rstd);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const NormFactor& factor,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  const RowSums sums(ctx, x, branch, sum);
  rms_norm_rows(ctx, sums, factor, epsilon, y, rstd);
}

void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                             const NormFactor& factor, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, factor);
  const ThreadRows in_x(ctx, n), in_dy(ctx, n), in_residual(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    float* to = write_place(dx, row * n, out.mine());
    kernels().norm.rms_norm_backward_input(read_row(dy, row, in_dy), read_row(x, row, in_x),
                                           w.data<float>(), rstd.data<float>()[row],
                                           read_row(residual, row, in_residual), to, n);
    write_back(dx, row * n, n, to);
  });
}

void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight) {
  const std::int64_t n = x.shape()[-1];
  const ThreadRows in_x(ctx, n), in_dy(ctx, n);
  sum_rows(ctx, x, {dweight.data<float>()}, [&](std::int64_t row, float* part, std::int64_t) {
    kernels().norm.rms_norm_backward_weight(read_row(dy, row, in_dy), read_row(x, row, in_x),
                                            rstd.data<float>()[row], part, n);
  });
}

void rms_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                       const Tensor& rstd, const Tensor& residual, const Tensor& dx,
                       const Tensor& dweight) {
  cpu::rms_norm_backward_weight(ctx, dy, x, rstd, dweight);
  cpu::rms_norm_backward_input(ctx, dy, x, factor, rstd, residual, dx);
}

}  // namespace trireme::ops::cpu
