#include "comm/device/device_work.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

class DeviceWork final : public Work::State {
 public:
  DeviceWork(Work host, Events events, FlightRecorder& recorder)
      : host_(std::move(host)), events_(std::move(events)), recorder_(recorder) {}

  bool done() override { return host_.done(); }
  void wait_host() override { host_.wait_host(); }
  void wait_on(const Stream& stream) override {
    const FlightRecorder::StreamWait wait(recorder_, stream);
    const bool host_must_wait =
        stream.device().kind == DeviceKind::kCpu || std::ranges::count(events_, nullptr) > 0;
    if (host_must_wait || host_.done()) return host_.wait_host();
    for (const auto& event : events_) event->make_wait(stream);
  }

 private:
  Work host_;
  Events events_;
  FlightRecorder& recorder_;
};

class MarkedWork final : public Work::State {
 public:
  // A stream's runtime outlives the work on the stream, so the pointer need not own it.
  explicit MarkedWork(const Stream& stream)
      : event_({&stream.runtime(), [](cuda::Runtime*) {}}, stream.device().index) {
    event_.record(stream);
  }

  bool done() override { return event_.done(); }
  void wait_host() override { event_.synchronize(); }
  void wait_on(const Stream& stream) override {
    if (stream.device().kind == DeviceKind::kCpu) return wait_host();
    event_.make_wait(stream);
  }

 private:
  cuda::Event event_;
};

}  // namespace

Work make_device_work(Work host, Events events, FlightRecorder& recorder) {
  if (events.empty()) return host;
  return Work(std::make_shared<DeviceWork>(std::move(host), std::move(events), recorder));
}

Work mark_device_work(const Stream& stream) {
  return Work(std::make_shared<MarkedWork>(stream));
}

}  // namespace trireme
