// Activities on a GPU's clock, told by events: what the stream does, not its host.
#include <gtest/gtest.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

#include "comm/device/device_work.h"
#include "support/fake_cuda.h"

namespace trireme {
namespace {

constexpr double kTolerance = 1e-6;  // seconds; times are whole nanoseconds of the host's clock

double seconds_of(const Activity& activity) {
  return static_cast<double>(activity.end_ns - activity.begin_ns) * 1e-9;
}

// An operation whose host has more to do, and whose result the other stream will hold.
class UnderWay final : public Work::State {
 public:
  bool done() override { return false; }
  void wait_host() override { FAIL() << "the host waits"; }
  void wait_on(const Stream&) override { FAIL() << "the host's part has no stream"; }
};

class StreamTraceTest : public ::testing::Test {
 protected:
  void kernel(const Stream& stream, double seconds) {
    fake_->enqueue(stream, [this, seconds] { fake_->clock = fake_->clock + seconds; });
  }
  // An operation on the other stream that takes so long.
  Work operation(double seconds) {
    kernel(other_.get(), seconds);
    const auto arrival = std::make_shared<cuda::Event>(fake_, 0);
    arrival->record(other_.get());
    return make_device_work(Work(std::make_shared<UnderWay>()), {arrival}, recorder_);
  }

  std::shared_ptr<testing::FakeCuda> fake_ = std::make_shared<testing::FakeCuda>();
  cuda::OwnedStream compute_{fake_, 0}, other_{fake_, 0};
  FlightRecorder recorder_;
};

TEST_F(StreamTraceTest, PhasesTakeWhatTheStreamTakes) {
  kernel(compute_.get(), 100.0);  // of before
  recorder_.start_trace(compute_.get());
  {
    const FlightRecorder::Phase phase(recorder_, "forward", 7);
    kernel(compute_.get(), 2.0);
    operation(3.0).wait_on(compute_.get());
    kernel(compute_.get(), 0.5);
  }
  kernel(compute_.get(), 1.0);  // of no phase
  { const FlightRecorder::Phase phase(recorder_, "optimizer"); }
  recorder_.add_exposed(0, "all_reduce", 0, now_ns());  // of the host: the stream went on
  const std::vector<Activity> found = recorder_.take_trace().activities;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, Activity::Kind::kWait);
  EXPECT_NEAR(seconds_of(found[0]), 3.0, kTolerance);
  EXPECT_EQ(found[1].name, "forward");
  EXPECT_EQ(found[1].number, 7);
  EXPECT_NEAR(seconds_of(found[1]), 5.5, kTolerance);
  EXPECT_NEAR(static_cast<double>(found[0].begin_ns - found[1].begin_ns) * 1e-9, 2.0, kTolerance);
  EXPECT_EQ(found[2].name, "optimizer");
  EXPECT_NEAR(seconds_of(found[2]), 0.0, kTolerance);
  EXPECT_NEAR(static_cast<double>(found[2].begin_ns - found[1].end_ns) * 1e-9, 1.0, kTolerance);
}

TEST_F(StreamTraceTest, NothingIsQueuedUnlessItIsAskedFor) {
  const std::size_t events = fake_->events();
  {
    const FlightRecorder::Phase phase(recorder_, "forward");
    const FlightRecorder::StreamWait wait(recorder_, compute_.get());
    EXPECT_EQ(fake_->events(), events);
  }
  recorder_.start_trace();  // of the host
  {
    const FlightRecorder::Phase phase(recorder_, "forward");
    const FlightRecorder::StreamWait wait(recorder_, compute_.get());
    EXPECT_EQ(fake_->events(), events);
  }
  EXPECT_EQ(recorder_.take_trace().activities.size(), 1u);
  recorder_.start_trace(compute_.get());
  { const FlightRecorder::StreamWait wait(recorder_, other_.get()); }  // another stream's
  EXPECT_TRUE(recorder_.take_trace().activities.empty());
  EXPECT_EQ(fake_->events(), events);
}

TEST_F(StreamTraceTest, APhaseThatOutlivesTheTraceIsLeftOut) {
  recorder_.start_trace(compute_.get());
  {
    const FlightRecorder::Phase phase(recorder_, "step");
    recorder_.take_trace();
  }
  recorder_.start_trace(compute_.get());
  EXPECT_TRUE(recorder_.take_trace().activities.empty());
}

TEST_F(StreamTraceTest, AFaultOfTheDeviceEndsNothingByItself) {
  recorder_.start_trace(compute_.get());
  {
    const FlightRecorder::Phase phase(recorder_, "step");
    fake_->fail_all(true);
  }
  EXPECT_THROW(recorder_.take_trace(), CudaError);
  fake_->fail_all(false);
}

TEST_F(StreamTraceTest, TimesAreThoseOfTimedEventsThatAreDone) {
  cuda::Event begin(fake_, 0, true), end(fake_, 0, true), untimed(fake_, 0);
  begin.record(compute_.get());
  untimed.record(compute_.get());
  EXPECT_THROW(end.seconds_since(begin), CudaError);
  kernel(compute_.get(), 0.25);
  end.record(compute_.get());
  EXPECT_THROW(end.seconds_since(begin), CudaError);
  end.synchronize();
  EXPECT_EQ(end.seconds_since(begin), 0.25);
  EXPECT_THROW(end.seconds_since(untimed), CudaError);
}

}  // namespace
}  // namespace trireme
