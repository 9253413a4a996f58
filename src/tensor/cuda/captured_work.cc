#include "trireme/tensor/captured_work.h"

#include <exception>
#include <mutex>
#include <utility>

#include "trireme/base/error.h"

#include "tensor/caching_allocator.h"

namespace trireme::cuda {

// The arena of the work, and the stream on which its memory is allocated during a capture.
class CapturedWork::Memory {
 public:
  Memory(const std::shared_ptr<Runtime>& runtime, const Stream& stream,
         const std::shared_ptr<Allocator>& allocator)
      : allocator_(std::dynamic_pointer_cast<CachingAllocator>(allocator)),
        arena_(std::make_shared<CachingAllocator::Arena>(stream)),
        setup_(runtime, stream.device().index),
        setup_done_(runtime, stream.device().index) {
    TRIREME_CHECK(allocator_ != nullptr, "captured work needs a caching allocator");
  }
  ~Memory() { allocator_->end(*arena_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // While it lives, all allocations come from the work's arena.
  class Open {
   public:
    Open(Memory& memory, bool captures) : memory_(memory) {
      if (captures) {
        memory.allocator_->open_for_capture(memory.arena_, memory.setup_.get());
      } else {
        memory.allocator_->open(memory.arena_);
      }
    }
    ~Open() { memory_.allocator_->close(*memory_.arena_); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Memory& memory_;
  };

  void settle() { allocator_->settle(*arena_); }
  // Work on `stream` from now on comes after the allocations that were made during the capture.
  void make_wait(const Stream& stream) {
    setup_done_.record(setup_.get());
    setup_done_.make_wait(stream);
  }

 private:
  const std::shared_ptr<CachingAllocator> allocator_;
  const std::shared_ptr<CachingAllocator::Arena> arena_;
  const OwnedStream setup_;
  Event setup_done_;
};

// The graph. Another thread may end it.
class CapturedWork::Graph {
 public:
  explicit Graph(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
  ~Graph() { end(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void take(GraphHandle handle) {
    const std::lock_guard lock(mutex_);
    handle_ = handle;
  }
  void launch(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr) throw CudaError("captured work was given up");
    runtime_->launch(handle_, stream.native());
  }
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    if (handle_ != nullptr) runtime_->destroy_graph(std::exchange(handle_, nullptr));
  }

 private:
  const std::shared_ptr<Runtime> runtime_;
  std::mutex mutex_;
  GraphHandle handle_ = nullptr;
};

CapturedWork::CapturedWork(std::shared_ptr<Runtime> runtime, const Stream& stream,
                           const std::shared_ptr<Allocator>& allocator)
    : runtime_(std::move(runtime)),
      stream_(stream),
      memory_(std::make_unique<Memory>(runtime_, stream, allocator)),
      graph_(std::make_shared<Graph>(runtime_)) {}

CapturedWork::~CapturedWork() {
  if (!captured()) return;
  if (std::uncaught_exceptions() == 0) {
    try {
      stream_.synchronize();
    } catch (const Error&) {  // the next call throws it again
    }
  }
  graph_->end();
}

std::function<void()> CapturedWork::give_up() const {
  return [graph = std::weak_ptr(graph_)] {
    if (const auto alive = graph.lock()) alive->end();
  };
}

void CapturedWork::rehearse(const std::function<void()>& queue_work) {
  const Memory::Open open(*memory_, /*captures=*/false);
  queue_work();
  memory_->settle();
}

void CapturedWork::capture(const std::function<void()>& queue_work) {
  TRIREME_CHECK(!captured(), "work was captured twice");
  {
    const Memory::Open open(*memory_, /*captures=*/true);
    runtime_->begin_capture(stream_.native());
    try {
      queue_work();
      const Runtime::Graph graph = runtime_->end_capture(stream_.native());
      graph_->take(graph.handle);
      captured_ = true;
      operations_ = graph.operations;
    } catch (...) {
      abandon();
      throw;
    }
  }
  memory_->make_wait(stream_);
}

// Cleans up after a fault, which is reported. Both steps may fail for the same reason.
void CapturedWork::abandon() noexcept {
  try {
    runtime_->destroy_graph(runtime_->end_capture(stream_.native()).handle);
  } catch (const Error&) {
  }
  try {
    memory_->make_wait(stream_);
  } catch (const Error&) {
  }
}

void CapturedWork::replay() {
  TRIREME_CHECK(captured(), "work was replayed before it was captured");
  graph_->launch(stream_);
}

}  // namespace trireme::cuda
