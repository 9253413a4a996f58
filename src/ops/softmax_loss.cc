#include "trireme/ops/softmax_loss.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_logits(std::string_view op, const Tensor& logits, const Tensor& targets,
                  std::int64_t valid) {
  check_dtype(op, "logits", logits, {DType::kF32, DType::kBF16});
  check_rank(op, "logits", logits, 2);
  check_dtype(op, "targets", targets, {DType::kI32});
  check_shape(op, "targets", targets, {logits.shape()[0]});
  TRIREME_CHECK(0 <= valid && valid <= logits.shape()[1],
                fmt::format("{}: {} valid classes of {}", op, valid, logits.shape()[1]));
}

void check_sums(std::string_view op, const Tensor& targets, const Tensor& row_max,
                const Tensor& row_sum) {
  check_fp32(op, "row_max", row_max, targets.shape());
  check_fp32(op, "row_sum", row_sum, targets.shape());
}

void check_gradient(std::string_view op, const Context& ctx, const Tensor& logits,
                    const Tensor& dlogits) {
  check_floating(op, "dlogits", dlogits);
  if (logits.dtype() == DType::kBF16) check_dtype(op, "dlogits", dlogits, {DType::kBF16});
  check_shape(op, "dlogits", dlogits, logits.shape());
  check_step_state(op, ctx);
}

}  // namespace

void bend_logits(Context& ctx, const Tensor& logits, const LogitBend& bend) {
  check_dtype("bend_logits", "logits", logits, {DType::kF32, DType::kBF16});
  dispatch(TRIREME_OP(bend_logits), ctx, logits, bend);
}

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  check_logits("softmax_statistics", logits, targets, valid);
  check_fp32("softmax_statistics", "target_logit", target_logit, targets.shape());
  check_sums("softmax_statistics", targets, row_max, row_sum);
  dispatch(TRIREME_OP(softmax_statistics), ctx, logits, targets, first_class, valid, row_max,
           row_sum, target_logit);
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits, const LogitBend& bend) {
  check_logits("softmax_gradient", logits, targets, valid);
  check_sums("softmax_gradient", targets, row_max, row_sum);
  check_gradient("softmax_gradient", ctx, logits, dlogits);
  dispatch(TRIREME_OP(softmax_gradient), ctx, logits, targets, first_class, valid, row_max, row_sum,
           dlogits, bend);
}

void softmax_and_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                          std::int64_t valid, const Tensor& row_max, const Tensor& row_sum,
                          const Tensor& target_logit, const Tensor& dlogits,
                          const LogitBend& bend) {
  constexpr std::string_view kOp = "softmax_and_gradient";
  check_logits(kOp, logits, targets, valid);
  check_fp32(kOp, "target_logit", target_logit, targets.shape());
  check_sums(kOp, targets, row_max, row_sum);
  check_gradient(kOp, ctx, logits, dlogits);
  dispatch(TRIREME_OP(softmax_and_gradient), ctx, logits, targets, valid, row_max, row_sum,
           target_logit, dlogits, bend);
}

void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum) {
  check_dtype("softmax_loss_sum", "targets", targets, {DType::kI32});
  check_fp32("softmax_loss_sum", "row_max", row_max, targets.shape());
  check_fp32("softmax_loss_sum", "row_sum", row_sum, targets.shape());
  check_fp32("softmax_loss_sum", "target_logit", target_logit, targets.shape());
  check_dtype("softmax_loss_sum", "sum", sum, {DType::kF64});
  check_shape("softmax_loss_sum", "sum", sum, {1});
  dispatch(TRIREME_OP(softmax_loss_sum), ctx, targets, row_max, row_sum, target_logit, sum);
}

void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum) {
  check_fp32("softmax_rescale", "row_max", row_max, local_max.shape());
  check_fp32("softmax_rescale", "row_sum", row_sum, local_max.shape());
  check_fp32("softmax_rescale", "local_max", local_max, local_max.shape());
  dispatch(TRIREME_OP(softmax_rescale), ctx, local_max, row_max, row_sum);
}

namespace {

// Logits of any floating type, all of whose classes are here.
void check_classes(std::string_view op, const Tensor& logits, const Tensor& targets) {
  check_floating(op, "logits", logits);
  check_rank(op, "logits", logits, 2);
  TRIREME_CHECK(logits.shape()[1] > 0, std::string(op) + ": there are no classes");
  check_dtype(op, "targets", targets, {DType::kI32});
  check_shape(op, "targets", targets, {logits.shape()[0]});
}

}  // namespace

void classification_loss(Context& ctx, const Tensor& logits, const Tensor& targets, float smoothing,
                         const Tensor& sum, const Tensor& dlogits) {
  check_classes("classification_loss", logits, targets);
  TRIREME_CHECK(0.0f <= smoothing && smoothing < 1.0f,
                fmt::format("classification_loss: smoothing is {}, not in [0, 1)", smoothing));
  check_dtype("classification_loss", "sum", sum, {DType::kF64});
  check_shape("classification_loss", "sum", sum, {1});
  if (dlogits.defined()) {
    check_floating("classification_loss", "dlogits", dlogits);
    check_shape("classification_loss", "dlogits", dlogits, logits.shape());
    check_step_state("classification_loss", ctx);
  }
  if (on_dry_gpu(ctx)) gpu::losses_of_rows(ctx, logits.shape()[0]);
  dispatch(TRIREME_OP(classification_loss), ctx, logits, targets, smoothing, sum, dlogits);
}

void count_correct(Context& ctx, const Tensor& logits, const Tensor& targets,
                   const Tensor& counts) {
  check_classes("count_correct", logits, targets);
  check_dtype("count_correct", "counts", counts, {DType::kI64});
  check_shape("count_correct", "counts", counts, {2});
  if (on_dry_gpu(ctx)) gpu::ranks_of_rows(ctx, logits.shape()[0]);
  dispatch(TRIREME_OP(count_correct), ctx, logits, targets, counts);
}

}  // namespace trireme::ops
