// The device on which a test program of operations runs. The tests are the same for all devices;
// each program links one of ops_device_cpu.cc, ops_device_emulated.cc, ops_device_cuda.cc.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::testing {

// Ends the test program as skipped (status 77) if there is no such device.
ops::Context make_test_context();

// Makes the threads and blocks of an emulated GPU run in an order drawn from the seed; 0: in the
// order of their numbers. On other devices it does nothing.
void draw_order(std::uint64_t seed);

// Returns the emulated GPU's matrix products: a cuBLASLt that multiplies on the host. Returns null
// in a build without CUDA.
std::shared_ptr<ops::MatmulEngine> make_emulated_matmul();

// Copies all bytes of a tensor from or to host memory, and waits for the context's stream.
void upload(ops::Context& ctx, const void* from, const Tensor& to);
void download(const Tensor& from, void* to);

}  // namespace trireme::testing
