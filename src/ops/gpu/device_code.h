// The common subset of CUDA and C++ that kernels are written in. nvcc compiles a <op>_gpu.cu file
// for the GPU; tests compile the same file as C++ and run its kernels thread by thread
// (tests/support). So kernels are started by launch(), never by <<< >>>, and declare shared memory
// with the two macros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#define TRIREME_SHARED(type, name, count) __shared__ type name[count]
#define TRIREME_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char trireme_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(trireme_dynamic_shared)
#else
#include "support/block_emulator.h"
#endif

namespace trireme::ops::gpu {

#if defined(__CUDACC__)

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw CudaError(std::string(what) + ": " + cudaGetErrorString(status));
}

// Queues a kernel. Does nothing if the grid is empty.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const Stream& stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const void* function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > 0) {
    // 48 KiB are given without asking, less what the kernel itself declares. Never asks for less
    // than before: a captured graph may hold a larger launch.
    cudaFuncAttributes given{};
    check_cuda(cudaFuncGetAttributes(&given, function), "attributes of a kernel");
    if (given.maxDynamicSharedSizeBytes < static_cast<int>(shared_bytes)) {
      check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_bytes)),
                 "shared memory of a kernel");
    }
  }
  std::tuple<std::remove_const_t<Parameters>...> values(arguments...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        check_cuda(cudaLaunchKernel(function, grid, block, pointers, shared_bytes,
                                    static_cast<cudaStream_t>(stream.native())),
                   "launch of a kernel");
      },
      values);
}

// Returns an attribute of the calling thread's device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device), "the device");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "an attribute of the device");
  return value;
}
// The most shared memory that a block may take, in bytes, with what the kernel declares.
inline std::size_t most_shared_bytes() {
  return static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}
inline int multiprocessors() {
  return device_attribute(cudaDevAttrMultiProcessorCount);
}
// The same for each of so many blocks that a multiprocessor holds at a time.
inline std::size_t most_shared_bytes(int blocks) {
  const int all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int reserved = device_attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  return std::min(most_shared_bytes(), static_cast<std::size_t>(all / blocks - reserved));
}
// The kernel wants as much of its multiprocessors' memory shared, and not as cache, as there is.
template <class... Parameters>
void prefer_shared_memory(void (*kernel)(Parameters...)) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "shared memory of a kernel");
}

// Copies 16 bytes to shared memory. The thread goes on, and reads them after wait_for_copies().
// Both addresses are multiples of 16.
__device__ inline void start_copy(void* to_shared, const void* from) {
#if defined(__CUDA_ARCH__)
  __pipeline_memcpy_async(to_shared, from, 16);
#endif
}
// Waits for the copies that this thread has started.
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  __pipeline_commit();
  __pipeline_wait_prior(0);
  asm volatile("" ::: "memory");  // no read of what was copied comes earlier
#endif
}

// Waits for the stream.
inline void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream& stream) {
  auto* native = static_cast<cudaStream_t>(stream.native());
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, native), "copy to the host");
  check_cuda(cudaStreamSynchronize(native), "copy to the host");
}

#else

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            const Stream& stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  std::tuple<std::remove_const_t<Parameters>...> values(arguments...);
  emulator::queue(stream.native(), [=] {
    emulator::run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
  });
}

// The shared memory is what GPUs since Ampere have. The multiprocessors are few, so that a block
// takes several rows.
inline std::size_t most_shared_bytes() {
  return std::size_t{99} << 10;
}
inline int multiprocessors() {
  return 2;
}
inline std::size_t most_shared_bytes(int blocks) {
  const auto each = (std::size_t{100} << 10) / static_cast<std::size_t>(blocks);
  return each - (std::size_t{1} << 10);
}
template <class... Parameters>
void prefer_shared_memory(void (*)(Parameters...)) {}

inline void start_copy(void* to_shared, const void* from) {
  emulator::start_copy(to_shared, from, 16);
}
inline void wait_for_copies() {
  emulator::wait_for_copies();
}

inline void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream& stream) {
  if (stream.native() != nullptr) stream.synchronize();
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace trireme::ops::gpu
