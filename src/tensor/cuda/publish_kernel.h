// The kernel of cuda::Runtime::publish.
#pragma once

namespace trireme::cuda {

// Returns the kernel as cudaLaunchKernel takes it: (std::int64_t* to, const std::int64_t* from).
const void* publish_kernel();

}  // namespace trireme::cuda
