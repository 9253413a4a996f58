#include "trireme/ops/averages.h"

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {

void count_average(Context& ctx, const WeightAverage& rule) {
  check_step_state("count_average", ctx);
  dispatch(TRIREME_OP(count_average), ctx, rule);
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  check_fp32("average_weights", "value", value, value.shape());
  check_fp32("average_weights", "average", average, value.shape());
  check_step_state("average_weights", ctx);
  dispatch(TRIREME_OP(average_weights), ctx, rule, value, average);
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  check_fp32("commit_state", "value", value, value.shape());
  check_fp32("commit_state", "proposed", proposed, value.shape());
  check_step_state("commit_state", ctx);
  dispatch(TRIREME_OP(commit_state), ctx, keep, proposed, value);
}

}  // namespace trireme::ops
