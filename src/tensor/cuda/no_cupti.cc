// Stands in for CUPTI in a build without it.
#include "trireme/base/error.h"
#include "trireme/tensor/kernel_trace.h"

namespace trireme::cuda {

std::unique_ptr<KernelTrace> open_kernel_trace() {
  throw CudaError("this program was built without CUPTI");
}

}  // namespace trireme::cuda
