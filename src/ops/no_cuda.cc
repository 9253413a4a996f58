// Stands in for the GPU's operations in a build without CUDA.
#include "ops/check.h"
#include "ops/device_ops.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"  // the list names them all

namespace trireme::ops::gpu {

#define TRIREME_EACH_OP(name, parameters) \
  void name parameters {                  \
    throw no_device(#name, ctx);          \
  }
#include "ops/each_op.inc"
#undef TRIREME_EACH_OP

void write_step_state(Context& ctx, const StepState&) {
  throw no_device("write_step_state", ctx);
}
void write_step_inputs(Context& ctx, const StepInputs&) {
  throw no_device("write_step_inputs", ctx);
}
StepState read_step_state(Context& ctx) {
  throw no_device("read_step_state", ctx);
}

}  // namespace trireme::ops::gpu
