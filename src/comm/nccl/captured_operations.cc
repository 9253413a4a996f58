#include "comm/nccl/captured_operations.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::nccl {
namespace {

// The marks take a megabyte. Pinned memory cannot be allocated while a stream is captured.
constexpr std::size_t kMostOperations = std::size_t{1} << 16;

// The Work of an operation in a capture.
class CaptureWork final : public Work::State {
 public:
  explicit CaptureWork(std::shared_ptr<cuda::Event> end) : end_(std::move(end)) {}

  bool done() override { return false; }
  void wait_host() override {
    throw InternalError("the host was about to wait for communication that is captured");
  }
  void wait_on(const Stream& stream) override {
    if (stream.device().kind == DeviceKind::kCpu) return wait_host();
    end_->make_wait(stream);
  }

 private:
  const std::shared_ptr<cuda::Event> end_;
};

}  // namespace

// The engine's task for a part of an operation in one replay.
class CapturedOperations::Replayed final : public Task {
 public:
  Replayed(Session& session, const Captured& captured, std::int64_t number)
      : session_(session),
        connection_(captured.connection),
        marks_(captured.marks),
        number_(number) {}

  bool may_begin() override { return reached(marks_->begun); }
  Step advance() override { return reached(marks_->ended) ? Step::kDone : Step::kIdle; }

 private:
  bool reached(std::int64_t& mark) {
    if (std::atomic_ref(mark).load(std::memory_order_acquire) >= number_) return true;
    session_.check();
    connection_->check();
    return false;
  }

  Session& session_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Marks> marks_;
  const std::int64_t number_;
};

CapturedOperations::CapturedOperations(Session& session, const Stream& stream,
                                       const std::int64_t* number)
    : session_(session), stream_(stream), number_(number), marks_([&] {
        const std::shared_ptr<cuda::Runtime> cuda = session.parts().cuda;
        void* memory = cuda->allocate_pinned(kMostOperations * sizeof(Marks));
        if (memory == nullptr) throw OutOfMemoryError("out of pinned memory for a captured step");
        auto* marks = static_cast<Marks*>(memory);
        std::uninitialized_fill_n(marks, kMostOperations, Marks());
        return std::shared_ptr<Marks[]>(marks, [cuda](Marks* end) { cuda->free_pinned(end); });
      }()) {
  session_.set_capture(this);
}

CapturedOperations::~CapturedOperations() {
  session_.set_capture(nullptr);
  session_.remove_graph(this);
}

void CapturedOperations::held_by(std::function<void()> give_up) {
  session_.add_graph(this, std::move(give_up));
}

std::shared_ptr<cuda::Event> CapturedOperations::mark(const Stream& stream) const {
  auto event = std::make_shared<cuda::Event>(session_.parts().cuda, session_.parts().device);
  event->record(stream);
  return event;
}

std::shared_ptr<CapturedOperations::Marks> CapturedOperations::next_marks() const {
  if (operations_.size() == kMostOperations) {
    throw CudaError(fmt::format("a step of more than {} communications", kMostOperations));
  }
  return {marks_, &marks_[static_cast<std::ptrdiff_t>(operations_.size())]};
}

Work CapturedOperations::add(const Stream& ready, const Stream& own,
                             const std::shared_ptr<Connection>& connection,
                             std::vector<OperationPart> parts, const std::function<void()>& enter) {
  std::shared_ptr<Marks> marks = next_marks();
  const auto write = [&](std::int64_t& to) { own.runtime().publish(&to, number_, own.native()); };
  mark(ready)->make_wait(own);
  write(marks->begun);
  enter();
  write(marks->ended);
  auto end = mark(own);
  last_.insert_or_assign(own.native(), std::pair(own, end));
  operations_.push_back({connection, std::move(parts), std::move(marks)});
  return Work(std::make_shared<CaptureWork>(std::move(end)));
}

void CapturedOperations::join() {
  for (const auto& [native, last] : last_) last.second->make_wait(stream_);
  session_.set_capture(nullptr);
}

void CapturedOperations::replay(std::int64_t number) {
  session_.check();
  // These streams may also hold work outside the capture, for example of an evaluation.
  for (const auto& [native, last] : last_) mark(last.first)->make_wait(stream_);
  for (const Captured& captured : operations_) {
    std::vector<ProgressEngine::Queued> queued;
    for (const OperationPart& part : captured.parts) {
      queued.push_back({part.key, part.name, part.bytes,
                        std::make_unique<Replayed>(session_, captured, number)});
    }
    session_.parts().engine->submit(std::move(queued));
  }
}

}  // namespace trireme::nccl
