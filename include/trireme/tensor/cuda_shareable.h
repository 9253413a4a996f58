// Device memory that other processes can open.
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/tensor/allocator.h"
#include "trireme/tensor/cuda.h"

namespace trireme::cuda {

// Makes an allocator of device memory that no stream orders (cudaMalloc; Runtime::allocate and free
// get no stream). It is for a library, such as an MPI, that opens memory in other processes by
// CUDA's IPC handles, which blocks of make_device_allocator do not have, and remembers addresses
// that it has registered. So freed blocks are kept, and handed out again when the work that
// record_use has announced is done: then the host may use them at once. The stream of an allocation
// is ignored; device() is the GPU. `limit` as on the CPU.
std::shared_ptr<Allocator> make_shareable_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                    std::size_t limit = 0);

}  // namespace trireme::cuda
