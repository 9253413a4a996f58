#include "comm/nccl/device_operation.h"

#include <utility>

#include "trireme/base/clock.h"

namespace trireme::nccl {
namespace {

// Entering an operation takes microseconds, but seconds the first time.
constexpr std::int64_t kEntersSoonNs = 1'000'000'000;

class DeviceTask final : public Task {
 public:
  explicit DeviceTask(std::shared_ptr<DeviceOperation> operation)
      : operation_(std::move(operation)) {}

  bool may_begin() override { return operation_->begun(); }
  Step advance() override { return operation_->ended() ? Step::kDone : Step::kIdle; }

 private:
  const std::shared_ptr<DeviceOperation> operation_;
};

class DeviceWork final : public Work::State {
 public:
  DeviceWork(Session& session, std::shared_ptr<DeviceOperation> operation, Work polled)
      : session_(session), operation_(std::move(operation)), polled_(std::move(polled)) {}

  bool done() override { return polled_.done(); }
  void wait_host() override { polled_.wait_host(); }
  void wait_on(const Stream& stream) override {
    if (stream.device().kind == DeviceKind::kCpu) return wait_host();
    session_.check();
    const FlightRecorder::StreamWait wait(*session_.parts().recorder, stream);
    operation_->make_wait(stream);
  }

 private:
  Session& session_;
  const std::shared_ptr<DeviceOperation> operation_;
  const Work polled_;
};

class HostWork final : public Work::State {
 public:
  HostWork(Session& session, std::string what, Work work)
      : session_(session), what_(std::move(what)), work_(std::move(work)) {}

  bool done() override { return work_.done(); }
  void wait_host() override {
    session_.guard().before_waiting(what_);
    work_.wait_host();
  }
  void wait_on(const Stream& stream) override {
    session_.guard().before_waiting(what_);
    work_.wait_on(stream);
  }

 private:
  Session& session_;
  const std::string what_;
  const Work work_;
};

}  // namespace

DeviceOperation::DeviceOperation(Session& session, std::shared_ptr<Connection> connection)
    : session_(session),
      connection_(std::move(connection)),
      ready_(session.parts().cuda, session.parts().device),
      begin_(session.parts().cuda, session.parts().device),
      end_(session.parts().cuda, session.parts().device),
      made_ns_(now_ns()) {}

void DeviceOperation::prepare(const Stream& ready, const Stream& stream) {
  ready_.record(ready);
  ready_.make_wait(stream);
  begin_.record(stream);
}

void DeviceOperation::entered(const Stream& stream) {
  end_.record(stream);
  stage_.store(Stage::kEntered, std::memory_order_release);
}

void DeviceOperation::failed(std::exception_ptr fault) {
  fault_ = std::move(fault);
  stage_.store(Stage::kFailed, std::memory_order_release);
}

// Calls `ask`. A fault of the device ends NCCL too.
template <class Function>
bool DeviceOperation::guarded(Function&& ask) {
  session_.check();
  try {
    return ask();
  } catch (...) {
    session_.fail(std::current_exception());
    throw;
  }
}

bool DeviceOperation::begun() {
  const Stage stage = stage_.load(std::memory_order_acquire);
  if (stage == Stage::kEntering) return now_ns() - made_ns_ > kEntersSoonNs;
  return stage == Stage::kFailed || guarded([&] { return begin_.done(); });
}

bool DeviceOperation::ended() {
  const Stage stage = stage_.load(std::memory_order_acquire);
  if (stage == Stage::kEntering) return false;
  if (stage == Stage::kFailed) std::rethrow_exception(fault_);
  return guarded([&] {
    if (end_.done()) return true;
    connection_->check();
    return false;
  });
}

void DeviceOperation::make_wait(const Stream& stream) const {
  end_.make_wait(stream);
}

Work make_device_work(Session& session, std::shared_ptr<DeviceOperation> operation, Work polled) {
  return Work(std::make_shared<DeviceWork>(session, std::move(operation), std::move(polled)));
}

std::unique_ptr<Task> make_device_task(std::shared_ptr<DeviceOperation> operation) {
  return std::make_unique<DeviceTask>(std::move(operation));
}

Work make_host_work(Session& session, std::string what, Work work) {
  return Work(std::make_shared<HostWork>(session, std::move(what), std::move(work)));
}

}  // namespace trireme::nccl
