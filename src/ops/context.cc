#include "trireme/ops/context.h"

#include <latch>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/thread.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/tensor/copy.h"
#include "trireme/tensor/dry_cuda.h"

#include "ops/attention_engine.h"
#include "ops/check.h"
#include "ops/convolution_engine.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"
#include "ops/matmul_engine.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace trireme::ops {
namespace {

bool host_has_state(const Context& ctx) {
  return on_cpu(ctx) || ctx.dry;
}

// OpenMP ends the process where it cannot make a thread. So this makes as many threads first, all
// at once, which may throw, and then OpenMP makes those of its team, which it keeps.
void form_team(int threads) {
#ifdef _OPENMP
  std::latch let_go(1);
  std::vector<std::jthread> tried;
  try {
    for (int i = 1; i < threads; ++i) {
      tried.push_back(
          start_thread(fmt::format("computing ({} a rank)", threads), [&] { let_go.wait(); }));
    }
  } catch (...) {
    let_go.count_down();
    throw;
  }
  let_go.count_down();
  tried.clear();  // joins them
#pragma omp parallel num_threads(threads)
  {}
#endif
}

Context context_of_cpu(int threads) {
  TRIREME_CHECK(threads >= 1, fmt::format("{} threads were asked for", threads));
  cpu::kernels();  // chosen here, so that a wrong choice is reported before any thread uses it
  Context ctx;
#ifdef _OPENMP
  omp_set_num_threads(threads);
  ctx.threads = threads;
#endif
  ctx.allocator = make_caching_allocator(ctx.device);
  ctx.host_allocator = ctx.allocator;
  ctx.matmul = make_cpu_matmul_engine();
  ctx.convolution = make_cpu_convolution_engine();
  ctx.step_state = make_step_state(ctx);
  return ctx;
}

}  // namespace

Context make_cpu_context(int threads) {
  Context ctx = context_of_cpu(threads);
  form_team(ctx.threads);
  return ctx;
}

Context make_dry_context(int threads, std::shared_ptr<ProgramLog> log) {
  Context ctx = context_of_cpu(threads);
  ctx.stream = dry_stream();
  ctx.allocator = make_dry_allocator();
  ctx.host_allocator = ctx.allocator;
  ctx.dry = std::make_shared<OperationCounts>();
  ctx.log = std::move(log);
  return ctx;
}

Context make_dry_cuda_context(std::int64_t gpu_memory, std::shared_ptr<ProgramLog> log) {
  Context ctx = make_cuda_context(cuda::make_dry_runtime(static_cast<std::size_t>(gpu_memory), log),
                                  0, make_dry_gpu_matmul());
  ctx.gpu_memory = gpu_memory;
  ctx.dry = std::make_shared<OperationCounts>();
  ctx.log = std::move(log);
  ctx.step_state.reset();
  ctx.step_state = make_step_state(ctx);
  return ctx;
}

Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device,
                          std::shared_ptr<MatmulEngine> matmul) {
  // Blocks are freed on the stream, so it must live as long as the allocator. The allocator shares
  // the runtime, so the shared pointer to the runtime owns the stream too.
  const auto stream = std::make_shared<const cuda::OwnedStream>(runtime, device);
  Context ctx;
  ctx.stream = stream->get();
  ctx.device = ctx.stream.device();
  ctx.cuda = std::shared_ptr<cuda::Runtime>(stream, runtime.get());
  ctx.allocator = cuda::make_device_allocator(ctx.cuda, device);
  ctx.host_allocator = cuda::make_pinned_allocator(ctx.cuda, device);
  ctx.matmul = std::move(matmul);
  ctx.step_state = make_step_state(ctx);
  const StepState fresh;
  runtime->copy(ctx.step_state.get(), &fresh, sizeof(fresh), cuda::CopyDirection::kToDevice,
                ctx.stream.native());
  ctx.block_counters = ctx.allocate({kBlockCounters}, DType::kI32, MemoryUse::kWorkspace);
  const std::vector<std::int32_t> zeros(kBlockCounters);
  runtime->copy(ctx.block_counters.raw(), zeros.data(), ctx.block_counters.bytes(),
                cuda::CopyDirection::kToDevice, ctx.stream.native());
  ctx.stream.synchronize();
  return ctx;
}

Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device,
                          const GpuSettings& settings) {
  runtime->set_device(device);
  const cuda::DeviceProperties properties = runtime->properties(device);
  if (settings.spared > 0 && settings.spared >= properties.multiprocessors) {
    throw ConfigError(fmt::format("cuda.spare is {}, but {} has {} multiprocessors: give fewer",
                                  settings.spared, properties.name, properties.multiprocessors));
  }
  Context ctx =
      make_cuda_context(std::move(runtime), device, make_cublaslt_matmul(properties, settings));
  ctx.attention = make_cudnn_attention(properties);
  ctx.convolution = make_cudnn_convolution(properties, settings.tf32);
  ctx.gpu_memory = static_cast<std::int64_t>(properties.memory);
  return ctx;
}

Tensor to_device(Context& ctx, const Tensor& host) {
  if (on_cpu(ctx)) return host;
  const Tensor device = ctx.allocate(host.shape(), host.dtype());
  copy(host, device, ctx.stream);
  return device;
}

void host_parallel(const Context& ctx, std::int64_t count, std::int64_t grain,
                   const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  Context host = ctx;
  if (!on_cpu(ctx)) host.threads = ctx.host_threads;
  cpu::parallel_ranges(host, count, grain, body);
}

std::shared_ptr<StepState> make_step_state(const Context& ctx) {
  if (on_cpu(ctx)) return std::make_shared<StepState>();
  const Buffer memory =
      ctx.allocator->allocate(sizeof(StepState), MemoryUse::kWorkspace, ctx.stream);
  if (!ctx.dry) return {memory, reinterpret_cast<StepState*>(memory.get())};
  // The state's memory is counted, and the host has the values.
  struct State {
    Buffer counted;
    StepState values;
  };
  const auto state = std::make_shared<State>(State{memory, {}});
  return {state, &state->values};
}

void write_step_state(Context& ctx, const StepState& state) {
  check_step_state("write_step_state", ctx);
  if (!host_has_state(ctx)) return gpu::write_step_state(ctx, state);
  *ctx.step_state = state;
}

void write_step_inputs(Context& ctx, const StepInputs& inputs) {
  check_step_state("write_step_inputs", ctx);
  if (!host_has_state(ctx)) return gpu::write_step_inputs(ctx, inputs);
  ctx.step_state->step = inputs.step;
  ctx.step_state->random_key = inputs.random_key;
  ctx.step_state->learning_rate = inputs.learning_rate;
  ctx.step_state->gradient_scale = inputs.gradient_scale;
}

StepState read_step_state(Context& ctx) {
  check_step_state("read_step_state", ctx);
  return host_has_state(ctx) ? *ctx.step_state : gpu::read_step_state(ctx);
}

void queue_step_state_read(Context& ctx, StepState* to) {
  check_step_state("queue_step_state_read", ctx);
  if (host_has_state(ctx)) {
    *to = *ctx.step_state;
    return;
  }
  ctx.stream.runtime().copy(to, ctx.step_state.get(), sizeof(StepState),
                            cuda::CopyDirection::kToHost, ctx.stream.native());
}

std::string_view matmul_description(const Context& ctx, DType dtype) {
  return ctx.matmul->description(dtype);
}

std::string_view instruction_set(const Context& ctx) {
  if (!on_cpu(ctx)) return "CUDA";
  return cpu::kernels().name;
}

}  // namespace trireme::ops
