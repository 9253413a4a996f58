// The first GPU of this machine.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <gtest/gtest.h>

#include "trireme/tensor/copy.h"
#include "trireme/tensor/cuda.h"

#include "support/ops_device.h"

namespace trireme::testing {
namespace {

ops::Context make_context() {
  const std::shared_ptr<cuda::Runtime> runtime = cuda::make_runtime();
  const cuda::Devices found = runtime->devices();
  if (found.count == 0) {
    std::printf("skipped: there is no GPU: %s\n", found.why_none.c_str());
    std::fflush(stdout);
    std::_Exit(77);
  }
  return ops::make_cuda_context(runtime, 0);
}

// The one context of all tests, so that memory is allocated only once. It ends with the last test:
// at the end of the program, when static objects end, the CUDA libraries have ended before it.
std::optional<ops::Context> the_gpu;

class Gpu final : public ::testing::Environment {
 public:
  void SetUp() override { the_gpu = make_context(); }
  void TearDown() override { the_gpu.reset(); }
};
[[maybe_unused]] const auto* const environment = ::testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace

ops::Context make_test_context() {
  ops::Context ctx = *the_gpu;
  ops::write_step_state(ctx, {});
  return ctx;
}

void draw_order(std::uint64_t) {}

void upload(ops::Context& ctx, const void* from, const Tensor& to) {
  if (to.device().kind == DeviceKind::kCpu) {
    if (to.bytes() != 0) std::memcpy(to.raw(), from, to.bytes());
    return;
  }
  copy_to_device(Tensor::wrap(const_cast<void*>(from), to.shape(), to.dtype()), to, ctx.stream);
  ctx.stream.synchronize();
}

void download(const Tensor& from, void* to) {
  if (from.device().kind == DeviceKind::kCpu) {
    if (from.bytes() != 0) std::memcpy(to, from.raw(), from.bytes());
    return;
  }
  const Stream& stream = the_gpu->stream;
  copy_to_host(from, Tensor::wrap(to, from.shape(), from.dtype()), stream);
  stream.synchronize();
}

}  // namespace trireme::testing
