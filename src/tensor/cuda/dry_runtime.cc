#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/tensor/dry_cuda.h"

#include "tensor/caching_allocator.h"
#include "tensor/dry_memory.h"

namespace trireme::cuda {
namespace {

class DryRuntime : public Runtime {
 public:
  DryRuntime(std::size_t memory, std::shared_ptr<ProgramLog> log)
      : memory_(memory), log_(std::move(log)) {}

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
            StreamHandle stream) override {
    if (direction == CopyDirection::kToHost) std::memset(to, 0, bytes);
    if (log_) log_->copy(stream, name_of(direction), static_cast<double>(bytes));
  }
  void fill(void*, int, std::size_t bytes, StreamHandle stream) override {
    if (log_) log_->copy(stream, "fill", static_cast<double>(bytes));
  }
  void publish(std::int64_t* to, const std::int64_t*, StreamHandle stream) override {
    *to = 0;
    if (log_) log_->copy(stream, "to the host", sizeof(*to));
  }

  StreamHandle create_stream(int, bool) override { return addresses_.take(1); }
  void destroy_stream(StreamHandle) noexcept override {}
  void synchronize(StreamHandle stream) override {
    if (log_) log_->wait_stream(stream);
  }
  void wait(StreamHandle stream, EventHandle event) override {
    if (log_) log_->wait_mark(stream, event);
  }

  EventHandle create_event(int) override { return addresses_.take(1); }
  EventHandle create_timed_event(int device) override { return create_event(device); }
  double seconds_between(EventHandle, EventHandle) override { return 0.0; }
  void destroy_event(EventHandle) noexcept override {}
  void record(EventHandle event, StreamHandle stream) override {
    if (log_) log_->mark(stream, event);
  }
  bool done(EventHandle) override { return true; }
  void synchronize_event(EventHandle event) override {
    if (log_) log_->wait_mark(nullptr, event);
  }

  void begin_capture(StreamHandle) override {}
  Graph end_capture(StreamHandle) override { return {.handle = this, .operations = 0}; }
  void launch(GraphHandle, StreamHandle) override {}
  void destroy_graph(GraphHandle) noexcept override {}

 private:
  static const char* name_of(CopyDirection direction) {
    switch (direction) {
      case CopyDirection::kToDevice:
        return "to the device";
      case CopyDirection::kToHost:
        return "to the host";
      case CopyDirection::kOnDevice:
        break;
    }
    return "on the device";
  }

  const std::size_t memory_;
  const std::shared_ptr<ProgramLog> log_;
  DryAddresses addresses_;
};

}  // namespace

std::shared_ptr<Runtime> make_dry_runtime(std::size_t memory, std::shared_ptr<ProgramLog> log) {
  return std::make_shared<DryRuntime>(memory, std::move(log));
}

}  // namespace trireme::cuda
