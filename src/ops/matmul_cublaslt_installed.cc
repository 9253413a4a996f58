// The cuBLASLt of this machine. In a file of its own, so that a test program can replace it.
#include "trireme/base/dynamic_library.h"

#include "ops/matmul_cublaslt.h"

namespace trireme::ops {

std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const cuda::DeviceProperties& device,
                                                   const GpuSettings& settings) {
  constexpr std::size_t kOfOlder = std::size_t{4} << 20;  // what NVIDIA recommends
  return make_cublaslt_matmul(load_cublaslt(cuda_library_names("cublasLt", CUBLAS_VER_MAJOR)),
                              device.major >= 9 ? kCublasLtWorkspace : kOfOlder,
                              product_settings(device, settings));
}

}  // namespace trireme::ops
