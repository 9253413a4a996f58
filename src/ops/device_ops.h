// The operations of each device. The public functions of the same names (include/trireme/ops) check
// the arguments and call them.
#pragma once

#include "trireme/ops/attention.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/update.h"

#define TRIREME_EACH_OP(name, parameters) void name parameters;
namespace trireme::ops::cpu {
#include "ops/each_op.inc"
}  // namespace trireme::ops::cpu

namespace trireme::ops::gpu {
#include "ops/each_op.inc"

void write_step_state(Context& ctx, const StepState& state);
void write_step_inputs(Context& ctx, const StepInputs& inputs);
StepState read_step_state(Context& ctx);
}  // namespace trireme::ops::gpu
#undef TRIREME_EACH_OP

namespace trireme::ops {

inline bool on_cpu(const Context& ctx) {
  return ctx.device.kind == DeviceKind::kCpu;
}

}  // namespace trireme::ops
