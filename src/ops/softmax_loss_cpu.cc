#include <cmath>
#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  const std::int64_t classes = logits.shape()[1];
  const auto* target = targets.data<std::int32_t>();
  parallel_ranges(ctx, logits.shape()[0], row_grain(classes),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      const float* x = logits.data<float>() + row * classes;
                      if (valid == 0) {  // this rank holds no part of the vocabulary
                        row_max.data<float>()[row] = -std::numeric_limits<float>::infinity();
                        row_sum.data<float>()[row] = 0.0f;
                      } else {
                        kernels().softmax.statistics(x, valid, row_max.data<float>() + row,
                                                     row_sum.data<float>() + row);
                      }
                      const std::int64_t local = target[row] - first_class;
                      const bool here = target[row] != kMaskedTarget && 0 <= local && local < valid;
                      target_logit.data<float>()[row] = here ? x[local] : 0.0f;
                    }
                  });
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits) {
  const std::int64_t classes = logits.shape()[1];
  const auto* target = targets.data<std::int32_t>();
  const float scale = ctx.step_state->loss_scale;
  const ThreadRows out(ctx, classes);
  parallel_ranges(ctx, logits.shape()[0], row_grain(classes),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      float* dx = write_place(dlogits, row * classes, out.mine());
                      if (target[row] == kMaskedTarget) {
                        std::fill_n(dx, classes, 0.0f);
                      } else {
                        kernels().softmax.normalize(logits.data<float>() + row * classes,
                                                    row_max.data<float>()[row],
                                                    row_sum.data<float>()[row], dx, valid);
                        std::fill_n(dx + valid, classes - valid, 0.0f);
                        const std::int64_t local = target[row] - first_class;
                        if (0 <= local && local < valid) dx[local] -= 1.0f;
                        if (scale != 1.0f) kernels().elementwise.scale(dx, scale, valid);
                      }
                      write_back(dlogits, row * classes, classes, dx);
                    }
                  });
}

void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& total) {
  on_this_thread(ctx, [&] {
    double sum = 0.0;
    for (std::int64_t row = 0; row < targets.elements(); ++row) {
      if (targets.data<std::int32_t>()[row] == kMaskedTarget) continue;
      sum += std::log(static_cast<double>(row_sum.data<float>()[row])) +
             static_cast<double>(row_max.data<float>()[row]) -
             static_cast<double>(target_logit.data<float>()[row]);
    }
    total.data<double>()[0] += sum;
  });
}

void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum) {
  on_this_thread(ctx, [&] {
    for (std::int64_t row = 0; row < row_sum.elements(); ++row) {
      row_sum.data<float>()[row] *=
          std::exp(local_max.data<float>()[row] - row_max.data<float>()[row]);
    }
  });
}

}  // namespace trireme::ops::cpu
