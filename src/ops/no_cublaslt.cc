// Stands in for cuBLASLt in a build without CUDA. Not part of no_cuda.cc, which tests replace.
#include "trireme/base/error.h"

#include "ops/matmul_engine.h"

namespace trireme::ops {

std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const cuda::DeviceProperties&,
                                                   const GpuSettings&) {
  throw CudaError("this program was built without CUDA, so it has no cuBLASLt");
}

}  // namespace trireme::ops
