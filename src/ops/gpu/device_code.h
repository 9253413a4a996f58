// The common subset of CUDA and C++ that kernels are written in. nvcc compiles a <op>_gpu.cu file
// for the GPU; tests compile the same file as C++ and run its kernels thread by thread
// (tests/support). So kernels are started by launch(), never by <<< >>>, and declare shared memory
// with the two macros.
#pragma once

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
  constexpr std::size_t kWithoutAsking = 48 << 10;
  const void* function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kWithoutAsking) {
    check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "shared memory of a kernel");
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

inline void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream& stream) {
  if (stream.native() != nullptr) stream.synchronize();
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace trireme::ops::gpu
