// The operations of each device. The public functions of the same names (include/trireme/ops) check
// the arguments and call them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "trireme/ops/adafactor.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/batch_norm.h"
#include "trireme/ops/block_scaled.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/head_norm.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/normed_depthwise.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/ops/pooling.h"
#include "trireme/ops/quantize.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/split.h"
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

inline bool on_dry_gpu(const Context& ctx) {
  return ctx.dry != nullptr && !on_cpu(ctx);
}

// The implementations of an operation. TRIREME_OP(gelu) gives those of gelu.
template <class... Parameters>
struct Implementations {
  std::string_view name;
  void (*on_cpu)(Context&, Parameters...);
  void (*on_gpu)(Context&, Parameters...);
};
template <class... Parameters>
Implementations<Parameters...> implementations(std::string_view name,
                                               void (*on_cpu)(Context&, Parameters...),
                                               void (*on_gpu)(Context&, Parameters...)) {
  return {name, on_cpu, on_gpu};
}
#define TRIREME_OP(name) implementations(#name, &cpu::name, &gpu::name)

// What a call costs, for a dry context.
struct Cost {
  double flops = 0.0;
  std::optional<double> bytes = std::nullopt;  // if empty: those of the call's tensors
  std::array<std::int64_t, 4> sizes{};         // all zeros: those of the call's first tensor
};

inline double bytes_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.bytes()) : 0.0;
}
// A parameter that is no tensor counts for nothing.
template <class Parameter>
double bytes_of(const Parameter&) {
  return 0.0;
}

// Takes type and sizes of the first tensor among a call's arguments.
inline void describe_by(OperationCall& call, const Tensor& tensor) {
  if (!tensor.defined() || call.sizes[0] != 0 || tensor.elements() == 0) return;
  const std::int64_t rows = tensor.shape().rows();
  call.dtype = tensor.dtype();
  call.sizes = {rows, tensor.elements() / rows};
}
template <class Parameter>
void describe_by(OperationCall&, const Parameter&) {}

// Runs an operation on the context's device. On a dry context the CPU's implementation runs without
// its loops (cpu/parallel.h), so that it asks for its workspace, and the call is counted. On a dry
// context of a GPU the call is counted alone: the caller asks for what the GPU's implementation
// would (gpu/workspace.h).
template <class... Parameters>
void dispatch(const Implementations<Parameters...>& op, const Cost& cost, Context& ctx,
              std::type_identity_t<Parameters>... arguments) {
  const auto run = [&] { (on_cpu(ctx) ? op.on_cpu : op.on_gpu)(ctx, arguments...); };
  if (!ctx.dry && !ctx.times) return run();
  OperationCall call{.name = op.name,
                     .flops = cost.flops,
                     .bytes = cost.bytes.value_or((bytes_of(arguments) + ... + 0.0))};
  (describe_by(call, arguments), ...);
  if (cost.sizes[0] != 0) call.sizes = cost.sizes;
  if (ctx.times) return ctx.times->run(ctx, call, run);
  count_call(ctx, call);
  if (on_cpu(ctx)) run();
}
template <class... Parameters>
void dispatch(const Implementations<Parameters...>& op, Context& ctx,
              std::type_identity_t<Parameters>... arguments) {
  dispatch(op, Cost(), ctx, arguments...);
}

}  // namespace trireme::ops
