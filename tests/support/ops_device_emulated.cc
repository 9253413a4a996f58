// A GPU whose kernels run on the CPU and whose memory is the host's.
#include <cstdlib>
#include <cstring>

#include "support/block_emulator.h"
#include "support/ops_device.h"

namespace trireme::testing {
namespace {

// Makes every block exactly as long as requested and frees it at once, so that the address
// sanitizer sees accesses beyond it or after its end.
class ExactAllocator : public Allocator {
 public:
  Buffer allocate(std::size_t bytes, MemoryUse, const Stream&) override {
    void* block = nullptr;
    if (posix_memalign(&block, 64, bytes == 0 ? 1 : bytes) != 0) {
      throw OutOfMemoryError("no host memory for the emulated device");
    }
    std::memset(block, 0xff, bytes);  // NaN, to show reads of memory that was not written
    return {static_cast<std::byte*>(block), [](std::byte* returned) { std::free(returned); }};
  }
  Buffer adopt(Buffer memory, std::size_t, MemoryUse) override { return memory; }
  void give_back_reserve() override {}
  MemoryStats stats() const override { return {}; }
  Device device() const override { return {DeviceKind::kCuda, 0}; }
};

}  // namespace

// The environment variable TRIREME_EMULATOR_SEED determines the order of threads and blocks. 0, the
// default: in the order of their numbers.
ops::Context make_test_context() {
  const char* seed = std::getenv("TRIREME_EMULATOR_SEED");
  emulator::set_order(seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10));
  ops::Context ctx;
  ctx.device = {DeviceKind::kCuda, 0};
  ctx.stream = Stream(ctx.device);
  ctx.allocator = std::make_shared<ExactAllocator>();
  ctx.matmul = make_emulated_matmul();
  ctx.step_state = ops::make_step_state(ctx);
  ops::write_step_state(ctx, {});
  ctx.block_counters = ctx.allocate({ops::kBlockCounters}, DType::kI32, MemoryUse::kWorkspace);
  std::memset(ctx.block_counters.raw(), 0, ctx.block_counters.bytes());
  return ctx;
}

void draw_order(std::uint64_t seed) {
  emulator::set_order(seed);
}

void upload(ops::Context&, const void* from, const Tensor& to) {
  if (to.bytes() != 0) std::memcpy(to.raw(), from, to.bytes());
}
void download(const Tensor& from, void* to) {
  if (from.bytes() != 0) std::memcpy(to, from.raw(), from.bytes());
}

}  // namespace trireme::testing
