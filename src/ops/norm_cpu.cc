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

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const Tensor b = as_fp32(ctx, bias);
  const float* shift = b.defined() ? b.data<float>() : nullptr;
  const ThreadRows in(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    const float* from = read_fp32(x, row * n, n, in.mine());
    float* to = write_place(y, row * n, out.mine());
    kernels().norm.layer_norm(from, w.data<float>(), shift, epsilon, to, mean.data<float>() + row,
                              rstd.data<float>() + row, n);
    write_back(y, row * n, n, to);
  });
}

void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& dx) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const ThreadRows in_x(ctx, n), in_dy(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    float* to = write_place(dx, row * n, out.mine());
    kernels().norm.layer_norm_backward_input(
        read_fp32(dy, row * n, n, in_dy.mine()), read_fp32(x, row * n, n, in_x.mine()),
        w.data<float>(), mean.data<float>()[row], rstd.data<float>()[row], to, n);
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
                 read_fp32(dy, row * n, n, in_dy.mine()), read_fp32(x, row * n, n, in_x.mine()),
                 mean.data<float>()[row], rstd.data<float>()[row], part,
                 shift == nullptr ? nullptr : part + stride, n);
           });
}

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
              const Tensor& rstd) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const ThreadRows in(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    const float* from = read_fp32(x, row * n, n, in.mine());
    float* to = write_place(y, row * n, out.mine());
    kernels().norm.rms_norm(from, w.data<float>(), epsilon, to, rstd.data<float>() + row, n);
    write_back(y, row * n, n, to);
  });
}

void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                             const Tensor& rstd, const Tensor& dx) {
  const std::int64_t n = x.shape()[-1];
  const Tensor w = as_fp32(ctx, weight);
  const ThreadRows in_x(ctx, n), in_dy(ctx, n), out(ctx, n);
  for_rows(ctx, x, [&](std::int64_t row) {
    float* to = write_place(dx, row * n, out.mine());
    kernels().norm.rms_norm_backward_input(read_fp32(dy, row * n, n, in_dy.mine()),
                                           read_fp32(x, row * n, n, in_x.mine()), w.data<float>(),
                                           rstd.data<float>()[row], to, n);
    write_back(dx, row * n, n, to);
  });
}

void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight) {
  const std::int64_t n = x.shape()[-1];
  const ThreadRows in_x(ctx, n), in_dy(ctx, n);
  sum_rows(ctx, x, {dweight.data<float>()}, [&](std::int64_t row, float* part, std::int64_t) {
    kernels().norm.rms_norm_backward_weight(read_fp32(dy, row * n, n, in_dy.mine()),
                                            read_fp32(x, row * n, n, in_x.mine()),
                                            rstd.data<float>()[row], part, n);
  });
}

}  // namespace trireme::ops::cpu
