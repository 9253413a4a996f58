// What every operation needs: where it runs, its memory, and what changes from step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trireme/tensor/cuda.h"
#include "trireme/tensor/tensor.h"

namespace trireme::ops {

class MatmulEngine;     // src/ops: the library behind ops::matmul
class AttentionEngine;  // and one behind ops::attention

// What changes from step to step, read by operations from device memory and never passed by value,
// so that a whole step can be captured and replayed.
struct StepState {
  std::int64_t step = 0;         // counts from 1, skipped steps too
  std::int64_t updates = 0;      // of the weights, this step's included: the t of AdamW
  std::uint64_t random_key = 0;  // of this step's dropout draws
  float learning_rate = 0.0f;
  float gradient_scale = 1.0f;  // 1 / targets of the step
  float clip_factor = 1.0f;     // min(1, clip / norm)
  float loss_scale = 1.0f;      // the loss's gradient is multiplied by it, the weights' divided
  std::int32_t good_steps = 0;  // with this loss scale, finite ones: see update_loss_scale
  std::int32_t finite = 1;      // 0: the optimizer leaves everything as it is
};

// What the host says of a step. The rest of the state stays as operations left it.
struct StepInputs {
  std::int64_t step = 0;
  std::uint64_t random_key = 0;
  float learning_rate = 0.0f;
  float gradient_scale = 1.0f;
};

// Passed by reference through a step. One context serves one stream; operations of one context run
// in order. On a CPU an operation is done when it returns.
struct Context {
  Device device;
  Stream stream;
  std::shared_ptr<Allocator> allocator;
  // Of the host, for what is copied to the device or comes from it: pinned. On a CPU the allocator.
  std::shared_ptr<Allocator> host_allocator;
  std::shared_ptr<cuda::Runtime> cuda;  // of a GPU's context
  std::shared_ptr<MatmulEngine> matmul;
  std::shared_ptr<AttentionEngine> attention;  // none: our own kernels compute every shape
  std::shared_ptr<StepState> step_state;       // in device memory: see write_step_state
  int threads = 1;       // that operations on a CPU use
  int host_threads = 1;  // that the host uses for a GPU: see host_parallel

  Tensor allocate(const Shape& shape, DType dtype, MemoryUse use = MemoryUse::kActivations) {
    return Tensor::allocate(*allocator, stream, shape, dtype, use);
  }
  // Memory that the host may read and write.
  Tensor allocate_host(const Shape& shape, DType dtype,
                       MemoryUse use = MemoryUse::kActivations) const {
    return Tensor::allocate(*host_allocator, Stream(), shape, dtype, use);
  }
};

// The same elements where operations of the context read them: the tensor itself on a CPU; on a GPU
// a copy, queued on the context's stream, after which the host must not write to a tensor of
// allocate_host any more.
Tensor to_device(Context& ctx, const Tensor& host);

// Work of the host itself, beside operations: calls body(begin, end) for ranges of `grain` items
// that cover [0, count), on all threads of the rank. The body must not throw.
void host_parallel(const Context& ctx, std::int64_t count, std::int64_t grain,
                   const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// Memory for the state on the allocator's device, contents undefined.
std::shared_ptr<StepState> make_step_state(Allocator& allocator, const Stream& stream);
// Brings a state to where operations read it, behind the work that the stream holds: on a CPU it
// may as well be written in place, on a GPU only so.
void write_step_state(Context& ctx, const StepState& state);
void write_step_inputs(Context& ctx, const StepInputs& inputs);
// What operations left there. Waits for the stream.
StepState read_step_state(Context& ctx);
// The same without a wait: what the work that the stream holds leaves there arrives in `to`, of the
// host, with the stream. At once on a CPU.
void queue_step_state_read(Context& ctx, StepState* to);

// A CPU context with its own allocator; sets OpenMP's thread count for the calling thread.
Context make_cpu_context(int threads);

// A context on a GPU, which becomes the calling thread's: a stream of its own, which lives until
// the last block of the context's allocator is back, device memory, cuBLASLt, and a state of a
// fresh run. tf32: products of fp32 round their operands to TF32. CudaError where the device or
// cuBLASLt is not to be had; waits for the device.
Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device, bool tf32 = false);

// The matrix-product library in use for a type on this device, and why, in one line
// ("oneDNN 2.6.3 (AVX-512)"); for `trireme version`.
std::string_view matmul_description(const Context& ctx, DType dtype);

// The instruction set that all other operations run on ("AVX-512", "CUDA"); it decides bits, so a run
// records it. TRIREME_ISA=baseline|avx2|avx512 in the environment asks for a lesser one.
std::string_view instruction_set(const Context& ctx);

}  // namespace trireme::ops
