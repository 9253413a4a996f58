// The device that a program of tests of operations runs on. The tests are the same for all; each
// program links one of ops_device_cpu.cc, ops_device_emulated.cc, ops_device_cuda.cc.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::testing {

// Fails, and ends the test program as skipped (77), where there is no such device.
ops::Context make_test_context();

// The emulated GPU's: a cuBLASLt that multiplies on the host. Nothing in a build without CUDA.
std::shared_ptr<ops::MatmulEngine> make_emulated_matmul();

// All bytes of a tensor, from and to host memory. Wait for the context's stream.
void upload(ops::Context& ctx, const void* from, const Tensor& to);
void download(const Tensor& from, void* to);

}  // namespace trireme::testing
