#include <cstdlib>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/tensor/dry_cuda.h"

#include "tensor/caching_allocator.h"
#include "tensor/dry_memory.h"

namespace trireme::cuda {
namespace {

class DryRuntime : public Runtime {
 public:
  explicit DryRuntime(std::size_t memory) : memory_(memory) {}

  Devices devices() override { return {.count = 1, .why_none = {}}; }
  int driver_version() override { return 0; }
  int runtime_version() override { return 0; }
  DeviceProperties properties(int) override {
    DeviceProperties properties;
    properties.name = "dry GPU";
    properties.memory = memory_;
    return properties;
  }
  bool can_access_peer(int, int) override { return true; }
  MemoryInfo memory_info(int) override { return {.free = memory_, .total = memory_}; }
  void set_device(int) override {}

  void* allocate(std::size_t bytes, StreamHandle) override { return addresses_.take(bytes); }
  void free(void*, StreamHandle) noexcept override {}
  void release_freed(int) noexcept override {}
  void* allocate_pinned(std::size_t bytes) override { return zeroed_memory(bytes); }
  void free_pinned(void* memory) noexcept override { std::free(memory); }

  void copy(void* to, const void*, std::size_t bytes, CopyDirection direction,
            StreamHandle) override {
    if (direction == CopyDirection::kToHost) std::memset(to, 0, bytes);
  }
  void fill(void*, int, std::size_t, StreamHandle) override {}
  void publish(std::int64_t* to, const std::int64_t*, StreamHandle) override { *to = 0; }

  StreamHandle create_stream(int, bool) override { return addresses_.take(1); }
  void destroy_stream(StreamHandle) noexcept override {}
  void synchronize(StreamHandle) override {}
  void wait(StreamHandle, EventHandle) override {}

  EventHandle create_event(int) override { return addresses_.take(1); }
  EventHandle create_timed_event(int device) override { return create_event(device); }
  double seconds_between(EventHandle, EventHandle) override { return 0.0; }
  void destroy_event(EventHandle) noexcept override {}
  void record(EventHandle, StreamHandle) override {}
  bool done(EventHandle) override { return true; }
  void synchronize_event(EventHandle) override {}

  void begin_capture(StreamHandle) override {}
  Graph end_capture(StreamHandle) override { return {.handle = this, .operations = 0}; }
  void launch(GraphHandle, StreamHandle) override {}
  void destroy_graph(GraphHandle) noexcept override {}

 private:
  const std::size_t memory_;
  DryAddresses addresses_;
};

}  // namespace

std::shared_ptr<Runtime> make_dry_runtime(std::size_t memory) {
  return std::make_shared<DryRuntime>(memory);
}

}  // namespace trireme::cuda
