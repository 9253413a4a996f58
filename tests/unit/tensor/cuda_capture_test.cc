// Work that is captured once and replayed, on a scripted runtime.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/captured_work.h"
#include "trireme/tensor/copy.h"

#include "support/fake_cuda.h"
#include "support/message_of.h"

namespace trireme {
namespace {

using cuda::CapturedWork;
using cuda::OwnedStream;
using testing::FakeCuda;
using testing::message_of;

constexpr std::int64_t kElements = 100;
constexpr auto kUse = MemoryUse::kActivations;

class Capture : public ::testing::Test {
 protected:
  void start(std::uint64_t seed = 0) {
    fake_ = std::make_shared<FakeCuda>(seed);
    first_ = std::make_unique<OwnedStream>(fake_, 0);
    second_ = std::make_unique<OwnedStream>(fake_, 0, true);
    allocator_ = cuda::make_device_allocator(fake_, 0);
    input_ = on_device();
    output_ = on_device();
    set_input(0);
  }
  // All of it ended: nothing is left and nothing was touched after its end.
  void end() {
    input_ = output_ = Tensor();
    allocator_.reset();
    fake_->run_all();
    first_.reset();
    second_.reset();
    EXPECT_EQ(fake_->device_blocks(), 0u);
    EXPECT_EQ(fake_->events(), 0u);
    EXPECT_EQ(fake_->graphs(), 0u);
    EXPECT_EQ(fake_->streams(), 0u);
    EXPECT_EQ(fake_->faults(), std::vector<std::string>());
  }
  const Stream& first() const { return first_->get(); }
  const Stream& second() const { return second_->get(); }
  Tensor on_device() { return on_device(first()); }
  Tensor on_device(const Stream& stream) {
    return Tensor::allocate(*allocator_, stream, {kElements}, DType::kI32, kUse);
  }

  // to = 2 from + 1, by a kernel.
  void compute(const Tensor& from, const Tensor& to, const Stream& stream) {
    auto* source = from.address<std::int32_t>();
    auto* target = to.address<std::int32_t>();
    fake_->enqueue(stream, [this, source, target] {
      fake_->check_access(source, kElements * 4, "a kernel");
      fake_->check_access(target, kElements * 4, "a kernel");
      std::transform(source, source + kElements, target, [](int x) { return 2 * x + 1; });
    });
    from.record_use(stream);
    to.record_use(stream);
  }
  // Computes through memory of its own, part of it on the second stream: output = 16 input + 15.
  void work() {
    Tensor a = on_device();
    compute(input_, a, first());
    cuda::Event ready(fake_, 0), done(fake_, 0);
    ready.record(first());
    ready.make_wait(second());
    const Tensor b = on_device(second());
    compute(a, b, second());
    a = Tensor();  // the second stream still uses it
    const Tensor beside = on_device();
    compute(input_, beside, first());
    done.record(second());
    done.make_wait(first());
    const Tensor c = on_device();
    compute(b, c, first());
    compute(c, output_, first());
  }
  void set_input(int value) {
    fake_->enqueue(first(), [value, to = input_.address<std::int32_t>()] {
      std::fill_n(to, kElements, value);
    });
  }
  void expect_output(int value) {
    first().synchronize();
    const auto* got = output_.address<std::int32_t>();
    EXPECT_TRUE(std::all_of(got, got + kElements, [&](int x) { return x == value; })) << got[0];
  }
  // What others do meanwhile with memory.
  std::set<const void*> allocate_and_scribble(const Stream& stream) {
    std::vector<Tensor> tensors;
    std::set<const void*> seen;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(on_device(stream));
      seen.insert(tensors.back().raw());
      fake_->enqueue(stream, [to = tensors.back().address<std::int32_t>()] {
        std::fill_n(to, kElements, -1000);
      });
    }
    return seen;
  }

  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<OwnedStream> first_, second_;
  std::shared_ptr<Allocator> allocator_;
  Tensor input_, output_;
};

TEST_F(Capture, ReplaysWithNewInputWhileOthersUseMemory) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    start(seed);
    {
      CapturedWork captured(fake_, first(), allocator_);
      set_input(1);
      captured.rehearse([this] { work(); });
      expect_output(31);
      const std::size_t waits = fake_->host_waits();
      allocate_and_scribble(second());
      set_input(2);
      captured.capture([this] { work(); });
      EXPECT_TRUE(captured.captured());
      EXPECT_EQ(captured.operations(), 5u);
      EXPECT_EQ(fake_->host_waits(), waits);
      for (int value = 2; value < 6; ++value) {
        if (value > 2) set_input(value);
        value == 4 ? captured.rehearse([this] { work(); }) : captured.replay();
        allocate_and_scribble(value % 2 == 0 ? first() : second());
        if (value % 2 == 0) expect_output(16 * value + 15);
      }
      expect_output(16 * 5 + 15);
      EXPECT_EQ(fake_->launches(), 3u);
    }
    end();
  }
}

TEST_F(Capture, NothingRunsWhileItIsCaptured) {
  start(3);
  {
    CapturedWork captured(fake_, first(), allocator_);
    set_input(1);
    captured.rehearse([this] { work(); });
    set_input(7);
    captured.capture([this] { work(); });
    expect_output(31);
    captured.replay();
    expect_output(16 * 7 + 15);
  }
  end();
}

TEST_F(Capture, KeepsItsMemoryToItself) {
  start();
  {
    CapturedWork captured(fake_, first(), allocator_);
    std::set<const void*> own;
    const auto body = [&] {
      const Tensor tensor = on_device();
      own.insert(tensor.raw());
      compute(input_, tensor, first());
      compute(tensor, output_, first());
    };
    captured.rehearse(body);
    EXPECT_FALSE(allocate_and_scribble(first()).contains(*own.begin()));
    captured.capture(body);
    EXPECT_EQ(own.size(), 1u);  // the rehearsal's
    EXPECT_FALSE(allocate_and_scribble(first()).contains(*own.begin()));
  }
  end();
}

// The allocator knows of no captured use of it.
TEST_F(Capture, KeepsWhatIsGivenBackMeanwhile) {
  start();
  {
    CapturedWork captured(fake_, first(), allocator_);
    Tensor before = on_device();
    const void* address = before.raw();
    captured.rehearse([this] { work(); });
    set_input(3);
    captured.capture([&] {
      compute(input_, before, first());
      compute(before, output_, first());
      before = Tensor();
    });
    EXPECT_FALSE(allocate_and_scribble(first()).contains(address));
    captured.replay();
    expect_output(15);
  }
  allocate_and_scribble(first());
  end();
}

TEST_F(Capture, NeedsNoMoreMemoryThanItHasUnlessItMust) {
  start();
  {
    CapturedWork captured(fake_, first(), allocator_);
    captured.capture([this] { work(); });  // not rehearsed
    set_input(4);
    captured.replay();
    expect_output(16 * 4 + 15);
  }
  end();
}

TEST_F(Capture, SaysWhatCannotBeCapturedAndLeavesTheStreamAsItWas) {
  start();
  std::optional<cuda::Event> earlier(std::in_place, fake_, 0), ready(std::in_place, fake_, 0);
  earlier->record(second());
  const std::vector<std::pair<std::function<void()>, std::string>> wrong = {
      {[&] { first().synchronize(); }, "not permitted while a stream is captured"},
      {[&] { earlier->make_wait(first()); }, "waits for an event that is not"},
      {[&] { fake_->allocate_pinned(100); }, "not permitted while a stream is captured"},
      {[&] { fake_->allocate(100, first().native()); }, "on a stream that is captured"},
      {[&] {
         ready->record(first());
         ready->make_wait(second());
         compute(input_, output_, second());
       },
       "was not waited for"},
  };
  for (const auto& [body, text] : wrong) {
    CapturedWork captured(fake_, first(), allocator_);
    captured.rehearse([this] { work(); });
    const std::string said = message_of<CudaError>([&] {
      captured.capture([&, this] {
        work();
        body();
      });
    });
    EXPECT_NE(said.find(text), std::string::npos) << said;
    EXPECT_FALSE(captured.captured());
    set_input(5);
    work();
    expect_output(16 * 5 + 15);
  }
  earlier.reset();
  ready.reset();
  end();
}

TEST_F(Capture, EveryCallMayFail) {
  bool failed = true;
  for (std::size_t n = 1; failed; ++n) {
    start(n);
    failed = false;
    {
      std::optional<CapturedWork> captured;
      fake_->fail_call(n);
      try {
        captured.emplace(fake_, first(), allocator_);
        captured->rehearse([this] { work(); });
        captured->capture([this] { work(); });
        set_input(6);
        captured->replay();
        expect_output(16 * 6 + 15);
      } catch (const CudaError& error) {
        EXPECT_NE(std::string(error.what()).find("scripted"), std::string::npos) << error.what();
        failed = true;
      }
      fake_->fail_call(0);
      set_input(8);
      work();
      expect_output(16 * 8 + 15);
    }
    end();
    ASSERT_LT(n, 500u);
  }
}

}  // namespace
}  // namespace trireme
