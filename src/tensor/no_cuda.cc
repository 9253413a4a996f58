// Stands in for CUDA in a build without it.
#include "trireme/base/error.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/profiler_range.h"

namespace trireme {

ProfilerRange::ProfilerRange(std::string_view, std::int64_t) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace trireme

namespace trireme::cuda {
namespace {

constexpr const char* kWhy = "this program was built without CUDA";

[[noreturn]] void refuse() {
  throw CudaError(kWhy);
}

class NoCuda : public Runtime {
 public:
  Devices devices() override { return {0, kWhy}; }
  int driver_version() override { return 0; }
  int runtime_version() override { return 0; }
  DeviceProperties properties(int) override { refuse(); }
  bool can_access_peer(int, int) override { refuse(); }
  MemoryInfo memory_info(int) override { refuse(); }
  void set_device(int) override { refuse(); }

  void* allocate(std::size_t, StreamHandle) override { refuse(); }
  void free(void*, StreamHandle) noexcept override {}
  void release_freed(int) noexcept override {}
  void* allocate_pinned(std::size_t) override { refuse(); }
  void free_pinned(void*) noexcept override {}

  void copy(void*, const void*, std::size_t, CopyDirection, StreamHandle) override { refuse(); }
  void fill(void*, int, std::size_t, StreamHandle) override { refuse(); }
  void publish(std::int64_t*, const std::int64_t*, StreamHandle) override { refuse(); }

  StreamHandle create_stream(int, bool) override { refuse(); }
  void destroy_stream(StreamHandle) noexcept override {}
  void synchronize(StreamHandle) override { refuse(); }
  void wait(StreamHandle, EventHandle) override { refuse(); }

  EventHandle create_event(int) override { refuse(); }
  EventHandle create_timed_event(int) override { refuse(); }
  double seconds_between(EventHandle, EventHandle) override { refuse(); }
  void destroy_event(EventHandle) noexcept override {}
  void record(EventHandle, StreamHandle) override { refuse(); }
  bool done(EventHandle) override { refuse(); }
  void synchronize_event(EventHandle) override { refuse(); }

  void begin_capture(StreamHandle) override { refuse(); }
  Graph end_capture(StreamHandle) override { refuse(); }
  void launch(GraphHandle, StreamHandle) override { refuse(); }
  void destroy_graph(GraphHandle) noexcept override {}
};

}  // namespace

std::shared_ptr<Runtime> make_runtime() {
  return std::make_shared<NoCuda>();
}

}  // namespace trireme::cuda
