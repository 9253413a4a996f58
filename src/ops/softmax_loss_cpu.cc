#include <cmath>
#include <limits>
#include <optional>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// What an operation reads and writes; what it does not use is undefined.
struct Loss {
  Tensor logits, targets;
  std::int64_t first_class, valid;
  Tensor row_max, row_sum, target_logit, dlogits;
  LogitBend bend = {};

  std::int64_t classes() const { return logits.shape()[1]; }
  std::int32_t target(std::int64_t row) const { return targets.data<std::int32_t>()[row]; }
  // The row's target is the valid class `local`; outside of [0, valid): it has none here.
  std::int64_t local_target(std::int64_t row) const {
    return target(row) == kMaskedTarget ? -1 : target(row) - first_class;
  }
};

// Reads rows of logits as fp32, where they are or converted to memory of each thread.
class LogitRows {
 public:
  LogitRows(Context& ctx, const Tensor& logits) : logits_(logits) {
    if (logits.dtype() != DType::kF32) converted_.emplace(ctx, logits.shape()[1]);
  }
  const float* operator()(std::int64_t row) const {
    const std::int64_t classes = logits_.shape()[1];
    return read_fp32(logits_, row * classes, classes, converted_ ? converted_->mine() : nullptr);
  }

 private:
  Tensor logits_;
  std::optional<ThreadRows> converted_;
};

void row_statistics(const Loss& loss, std::int64_t row, const float* x) {
  if (loss.valid == 0) {  // this rank holds no part of the vocabulary
    loss.row_max.data<float>()[row] = -std::numeric_limits<float>::infinity();
    loss.row_sum.data<float>()[row] = 0.0f;
  } else {
    kernels().softmax.statistics(x, loss.valid, loss.row_max.data<float>() + row,
                                 loss.row_sum.data<float>() + row);
  }
  const std::int64_t local = loss.local_target(row);
  loss.target_logit.data<float>()[row] = 0 <= local && local < loss.valid ? x[local] : 0.0f;
}

void row_gradient(const Loss& loss, std::int64_t row, const float* x, float scale,
                  const ThreadRows& out) {
  const std::int64_t classes = loss.classes(), valid = loss.valid;
  float* dx = write_place(loss.dlogits, row * classes, out.mine());
  if (loss.target(row) == kMaskedTarget) {
    std::fill_n(dx, classes, 0.0f);
  } else {
    const float maximum = loss.row_max.data<float>()[row], sum = loss.row_sum.data<float>()[row];
    // Bent logits are read after the softmax, which may be in their place.
    float* share = loss.bend.bends() ? out.mine() : dx;
    kernels().softmax.normalize(x, maximum, sum, share, valid);
    const std::int64_t local = loss.local_target(row);
    if (0 <= local && local < valid) share[local] -= 1.0f;
    if (loss.bend.bends()) {
      kernels().softmax.unbend(x, loss.bend.scale, loss.bend.cap, share, valid);
      if (share != dx) std::copy_n(share, valid, dx);
    }
    std::fill_n(dx + valid, classes - valid, 0.0f);
    if (scale != 1.0f) kernels().elementwise.scale(dx, scale, valid);
  }
  write_back(loss.dlogits, row * classes, classes, dx);
}

// Calls body(row) for every row, on all threads.
template <class Body>
void for_rows(const Context& ctx, const Loss& loss, const Body& body) {
  parallel_ranges(ctx, loss.logits.shape()[0], row_grain(loss.classes()),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) body(row);
                  });
}

}  // namespace

void bend_logits(Context& ctx, const Tensor& logits, const LogitBend& bend) {
  parallel_ranges(ctx, logits.elements(), kStageElements,
                  [&](std::int64_t begin, std::int64_t end) {
                    Stage stage;
                    float* x = write_place(logits, begin, stage.values);
                    read_fp32(logits, begin, end - begin, stage.values);
                    if (bend.cap > 0.0f) {
                      kernels().elementwise.bend(x, end - begin, bend.scale, bend.cap);
                    } else {
                      kernels().elementwise.scale(x, bend.scale, end - begin);
                    }
                    write_back(logits, begin, end - begin, x);
                  });
}

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  const Loss loss{logits, targets, first_class, valid, row_max, row_sum, target_logit, {}, {}};
  const LogitRows rows(ctx, logits);
  for_rows(ctx, loss, [&](std::int64_t row) { row_statistics(loss, row, rows(row)); });
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits, const LogitBend& bend) {
  const Loss loss{logits, targets, first_class, valid, row_max, row_sum, {}, dlogits, bend};
  const float scale = ctx.step_state->loss_scale;
  const LogitRows rows(ctx, logits);
  const ThreadRows out(ctx, loss.classes());
  for_rows(ctx, loss, [&](std::int64_t row) { row_gradient(loss, row, rows(row), scale, out); });
}

// A row is in the cache when its gradient needs it.
void softmax_and_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                          std::int64_t valid, const Tensor& row_max, const Tensor& row_sum,
                          const Tensor& target_logit, const Tensor& dlogits,
                          const LogitBend& bend) {
  const Loss loss{logits, targets, 0, valid, row_max, row_sum, target_logit, dlogits, bend};
  const float scale = ctx.step_state->loss_scale;
  const LogitRows rows(ctx, logits);
  const ThreadRows out(ctx, loss.classes());
  for_rows(ctx, loss, [&](std::int64_t row) {
    const float* x = rows(row);
    row_statistics(loss, row, x);
    row_gradient(loss, row, x, scale, out);
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

namespace {

// The loss of one row and, where dx is not null, its gradient times scale.
double loss_of_row(const float* x, std::int64_t classes, std::int32_t target, float smoothing,
                   float scale, float* dx) {
  float maximum = 0.0f, total = 0.0f;
  kernels().softmax.statistics(x, classes, &maximum, &total);
  const double log_sum = std::log(static_cast<double>(total)) + static_cast<double>(maximum);
  double loss = log_sum - (1.0 - static_cast<double>(smoothing)) * static_cast<double>(x[target]);
  if (smoothing > 0.0f) {
    double all = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) all += static_cast<double>(x[c]);
    loss -= static_cast<double>(smoothing) * all / static_cast<double>(classes);
  }
  if (dx == nullptr) return loss;
  const float everywhere = smoothing / static_cast<float>(classes);
  kernels().softmax.normalize(x, maximum, total, dx, classes);
  for (std::int64_t c = 0; c < classes; ++c) dx[c] = (dx[c] - everywhere) * scale;
  dx[target] -= (1.0f - smoothing) * scale;
  return loss;
}

// How many logits of a row are larger than the target's; all of them if that is NaN.
std::int64_t rank_of_target(const float* x, std::int64_t classes, std::int32_t target) {
  const float mine = x[target];
  if (std::isnan(mine)) return classes;
  std::int64_t larger = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    larger += !(x[c] < mine || (x[c] == mine && c >= target)) ? 1 : 0;
  }
  return larger;
}

}  // namespace

void classification_loss(Context& ctx, const Tensor& logits, const Tensor& targets, float smoothing,
                         const Tensor& sum, const Tensor& dlogits) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const float scale = dlogits.defined() ? ctx.step_state->loss_scale : 1.0f;
  const Tensor losses = ctx.allocate({rows}, DType::kF64, MemoryUse::kWorkspace);
  const ThreadRows in(ctx, classes), out(ctx, classes);
  parallel_ranges(ctx, rows, row_grain(classes), [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      const std::int32_t target = targets.data<std::int32_t>()[row];
      // A copy: the gradient may take the place of the logits.
      float *x = in.mine(), *dx = nullptr;
      std::copy_n(read_fp32(logits, row * classes, classes, out.mine()), classes, x);
      if (dlogits.defined()) dx = write_place(dlogits, row * classes, out.mine());
      double& loss = losses.data<double>()[row];
      if (target != kMaskedTarget) {
        loss = loss_of_row(x, classes, target, smoothing, scale, dx);
      } else {
        loss = 0.0;
        if (dx != nullptr) std::fill_n(dx, classes, 0.0f);
      }
      if (dx != nullptr) write_back(dlogits, row * classes, classes, dx);
    }
  });
  on_this_thread(ctx, [&] {
    double total = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) total += losses.data<double>()[row];
    sum.data<double>()[0] += total;
  });
}

void count_correct(Context& ctx, const Tensor& logits, const Tensor& targets,
                   const Tensor& counts) {
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const ThreadRows in(ctx, classes);
  const Tensor ranks = ctx.allocate({rows}, DType::kI64, MemoryUse::kWorkspace);
  parallel_ranges(ctx, rows, row_grain(classes), [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      const std::int32_t target = targets.data<std::int32_t>()[row];
      ranks.data<std::int64_t>()[row] =
          target == kMaskedTarget
              ? classes
              : rank_of_target(read_fp32(logits, row * classes, classes, in.mine()), classes,
                               target);
    }
  });
  on_this_thread(ctx, [&] {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t rank = ranks.data<std::int64_t>()[row];
      counts.data<std::int64_t>()[0] += rank < 1 ? 1 : 0;
      counts.data<std::int64_t>()[1] += rank < 5 && rank < classes ? 1 : 0;
    }
  });
}

}  // namespace trireme::ops::cpu
