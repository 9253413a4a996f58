#include "trireme/ops/softmax_loss.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/cpu/ops.h"

namespace trireme::ops {
namespace {

bool on_cpu(const Context& ctx) {
  return ctx.device.kind == DeviceKind::kCpu;
}

void check_logits(std::string_view op, const Tensor& logits, const Tensor& targets,
                  std::int64_t valid) {
  check_dtype(op, "logits", logits, {DType::kF32});
  check_rank(op, "logits", logits, 2);
  check_dtype(op, "targets", targets, {DType::kI32});
  check_shape(op, "targets", targets, {logits.shape()[0]});
  TRIREME_CHECK(0 <= valid && valid <= logits.shape()[1],
                fmt::format("{}: {} valid classes of {}", op, valid, logits.shape()[1]));
}

}  // namespace

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  check_logits("softmax_statistics", logits, targets, valid);
  check_fp32("softmax_statistics", "row_max", row_max, targets.shape());
  check_fp32("softmax_statistics", "row_sum", row_sum, targets.shape());
  check_fp32("softmax_statistics", "target_logit", target_logit, targets.shape());
  if (on_cpu(ctx)) {
    return cpu::softmax_statistics(ctx, logits, targets, first_class, valid, row_max, row_sum,
                                   target_logit);
  }
  throw no_device("softmax_statistics", ctx);
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits) {
  check_logits("softmax_gradient", logits, targets, valid);
  check_fp32("softmax_gradient", "row_max", row_max, targets.shape());
  check_fp32("softmax_gradient", "row_sum", row_sum, targets.shape());
  check_floating("softmax_gradient", "dlogits", dlogits);
  check_shape("softmax_gradient", "dlogits", dlogits, logits.shape());
  if (on_cpu(ctx)) {
    return cpu::softmax_gradient(ctx, logits, targets, first_class, valid, row_max, row_sum,
                                 dlogits);
  }
  throw no_device("softmax_gradient", ctx);
}

void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum) {
  check_dtype("softmax_loss_sum", "targets", targets, {DType::kI32});
  check_fp32("softmax_loss_sum", "row_max", row_max, targets.shape());
  check_fp32("softmax_loss_sum", "row_sum", row_sum, targets.shape());
  check_fp32("softmax_loss_sum", "target_logit", target_logit, targets.shape());
  check_dtype("softmax_loss_sum", "sum", sum, {DType::kF64});
  check_shape("softmax_loss_sum", "sum", sum, {1});
  if (on_cpu(ctx)) return cpu::softmax_loss_sum(targets, row_max, row_sum, target_logit, sum);
  throw no_device("softmax_loss_sum", ctx);
}

void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum) {
  check_fp32("softmax_rescale", "row_max", row_max, local_max.shape());
  check_fp32("softmax_rescale", "row_sum", row_sum, local_max.shape());
  check_fp32("softmax_rescale", "local_max", local_max, local_max.shape());
  if (on_cpu(ctx)) return cpu::softmax_rescale(local_max, row_max, row_sum);
  throw no_device("softmax_rescale", ctx);
}

}  // namespace trireme::ops
