// What every operation needs: the device and stream, memory, and the values that change each step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trireme/tensor/cuda.h"
#include "trireme/tensor/step_program.h"
#include "trireme/tensor/tensor.h"

namespace trireme::ops {

class MatmulEngine;       // src/ops: the library behind ops::matmul
class AttentionEngine;    // src/ops: the library behind ops::attention
class ConvolutionEngine;  // src/ops: the library behind ops::convolution
class OperationCounts;    // operation_counts.h
class OperationTimes;     // operation_counts.h

// The values that change from step to step. Operations read them from device memory and never take
// them by value, so that a whole step can be captured and replayed.
struct StepState {
  std::int64_t step = 0;         // counts from 1, skipped steps too
  std::int64_t updates = 0;      // updates of the weights, with this step's: the t of AdamW
  std::uint64_t random_key = 0;  // the key of this step's dropout draws
  float learning_rate = 0.0f;
  float gradient_scale = 1.0f;  // 1 / targets of the step
  float clip_factor = 1.0f;     // min(1, clip / norm)
  float loss_scale = 1.0f;      // multiplies the loss's gradient; the weights' is divided by it
  std::int32_t good_steps = 0;  // finite steps with this loss scale: see update_loss_scale
  std::int32_t finite = 1;      // 0: the optimizer changes nothing
  double rate_squares = 0.0;    // the sum of the squared learning rates of all updates
  std::int64_t averaged = 0;    // updates whose weights are in averages of weights
  std::int32_t squares_exponent = 0;  // above the sum of all squared gradients, as a power of two
};

// The part of StepState that the host sets for each step. The rest stays as operations left it.
struct StepInputs {
  std::int64_t step = 0;
  std::uint64_t random_key = 0;
  float learning_rate = 0.0f;
  float gradient_scale = 1.0f;
};

inline constexpr std::int64_t kBlockCounters = 1024;

// Passed by reference through a step. One context serves one stream, and its operations run in
// order. On a CPU an operation is done when it returns.
struct Context {
  Device device;
  Stream stream;
  std::shared_ptr<Allocator> allocator;
  // Allocates pinned host memory for copies to and from the device. On a CPU it is `allocator`.
  std::shared_ptr<Allocator> host_allocator;
  std::shared_ptr<cuda::Runtime> cuda;  // null on a CPU
  std::shared_ptr<MatmulEngine> matmul;
  std::shared_ptr<AttentionEngine> attention;      // null: our own kernels compute every shape
  std::shared_ptr<ConvolutionEngine> convolution;  // null: convolutions are matrix products
  std::shared_ptr<StepState> step_state;           // in device memory: see write_step_state
  std::shared_ptr<OperationCounts> dry;   // null, except in a dry context: see make_dry_context
  std::shared_ptr<ProgramLog> log;        // null, except in a dry context that records what is done
  std::shared_ptr<OperationTimes> times;  // null, except while operations are measured
  int threads = 1;                        // threads of an operation on a CPU
  int host_threads = 1;    // threads of the host if the device is a GPU: see host_parallel
  bool any_order = false;  // a GPU's library may add up attention's gradients in any order
  // kBlockCounters in device memory, zero before and after each operation: with them a kernel's
  // blocks find out which of them ends last. Undefined on a CPU.
  Tensor block_counters;
  // Bytes of memory that each GPU of the job has at least: what decides the sizes of workspace must
  // be equal on all ranks. 0 on a CPU.
  std::int64_t gpu_memory = 0;

  Tensor allocate(const Shape& shape, DType dtype, MemoryUse use = MemoryUse::kActivations) {
    return Tensor::allocate(*allocator, stream, shape, dtype, use);
  }
  // Allocates memory that the host may read and write.
  Tensor allocate_host(const Shape& shape, DType dtype,
                       MemoryUse use = MemoryUse::kActivations) const {
    return Tensor::allocate(*host_allocator, Stream(), shape, dtype, use);
  }
};

// Returns the elements of `host` in memory that operations of the context can read. On a CPU that
// is `host` itself. On a GPU it is a copy, queued on the context's stream; after the call the host
// must no longer write to a tensor of allocate_host.
Tensor to_device(Context& ctx, const Tensor& host);

// For work on the host that is not an operation: calls body(begin, end) for ranges of `grain` items
// that cover [0, count), on all threads of the rank. The body must not throw.
void host_parallel(const Context& ctx, std::int64_t count, std::int64_t grain,
                   const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// Makes a state where operations of the context read it. On a GPU its contents are undefined.
std::shared_ptr<StepState> make_step_state(const Context& ctx);
// Writes the state that operations read, in stream order. On a GPU the host writes the state only
// with these two functions; on a CPU it may also write it in place.
void write_step_state(Context& ctx, const StepState& state);
void write_step_inputs(Context& ctx, const StepInputs& inputs);
// Returns the state as operations left it. Waits for the stream.
StepState read_step_state(Context& ctx);
// The same without waiting: queues a copy of the state to `to`, in host memory, in stream order. On
// a CPU it copies at once.
void queue_step_state_read(Context& ctx, StepState* to);

// Makes a CPU context with an allocator of its own. Sets OpenMP's thread count for the calling
// thread.
Context make_cpu_context(int threads);

// Makes a dry context: its operations check their arguments, allocate their workspace as on a CPU
// with `threads` threads, and are counted in Context::dry; they compute nothing. Its memory is that
// of make_dry_allocator, so a model of any size takes none, and the allocator's statistics are
// those of a real run. Contents of dry tensors do not exist; where operations leave values to the
// host (losses, the norm, StepState), they are those of a finite step with gradients and losses of
// zero. `log`, if there is one, is told of every operation.
Context make_dry_context(int threads, std::shared_ptr<ProgramLog> log = nullptr);
// The same of a GPU with so many bytes of memory: operations allocate the workspace of our kernels,
// and matrix products as much as cuBLASLt may take. What cuDNN takes is not in it.
Context make_dry_cuda_context(std::int64_t gpu_memory, std::shared_ptr<ProgramLog> log = nullptr);

struct GpuSettings {
  bool tf32 = false;  // fp32 products round their operands to TF32
  int spared = 0;     // multiprocessors that products leave to communication beside them
};

// Makes a context on a GPU and makes that GPU the calling thread's current device. The context has
// device memory, cuBLASLt, cuDNN's attention and convolutions if they are available, the StepState
// of a fresh run, and a stream of its own, which lives until the last block of the context's
// allocator is freed. Waits for the device. Throws ConfigError if it has no multiprocessor more
// than `spared`. Throws CudaError if the device or cuBLASLt is not available.
Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device,
                          const GpuSettings& settings = {});

// What computes matrix products of a type on this device, in one line ("oneDNN 2.6.3 (AVX-512)",
// "own kernels (AVX2)"). For `trireme version`.
std::string_view matmul_description(const Context& ctx, DType dtype);

// The instruction set of all other operations ("AVX-512", "CUDA"). It affects the bits of results,
// so a run records it. TRIREME_ISA=baseline|avx2|avx512 in the environment asks for a lesser one.
std::string_view instruction_set(const Context& ctx);

}  // namespace trireme::ops
