// The progress engine with tasks that need no MPI; clean under -fsanitize=thread.
#include "comm/mpi/progress_engine.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

#include "support/function_task.h"

namespace trireme {
namespace {

using Step = Task::Step;
using testing::FunctionTask;

std::vector<ProgressEngine::Queued> one(LaneKey key, std::function<Step()> advance) {
  std::vector<ProgressEngine::Queued> result;
  result.push_back({.key = key,
                    .name = "test",
                    .bytes = 0,
                    .task = std::make_unique<FunctionTask>(std::move(advance))});
  return result;
}

class ProgressEngineTest : public ::testing::Test {
 protected:
  FlightRecorder recorder_;
  ProgressEngine engine_{recorder_};
};

TEST_F(ProgressEngineTest, GoesOnWhileTheHostDoesOtherThings) {
  std::atomic<bool> gate = false;
  const Work work = engine_.submit(one({}, [&] { return gate ? Step::kDone : Step::kIdle; }));
  EXPECT_FALSE(work.done());
  gate = true;
  while (!work.done()) sched_yield();  // nobody waits: the engine's own thread does it
  EXPECT_EQ(recorder_.exposed_seconds(), 0.0);
}

TEST_F(ProgressEngineTest, WakesUpAfterBeingIdle) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> steps = 0;
    const Work work =
        engine_.submit(one({}, [&] { return ++steps > 3 ? Step::kDone : Step::kIdle; }));
    while (!work.done()) sched_yield();
  }
}

// Hosts that always wait at once let the thread sleep. It must look by itself when one does not.
TEST_F(ProgressEngineTest, GoesOnWithWhatAHostForOnceDoesNotWaitFor) {
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 50; ++i) {
      int steps = 0;
      engine_.submit(one({}, [steps]() mutable { return ++steps > 3 ? Step::kDone : Step::kIdle; }))
          .wait_host();
    }
    std::atomic<bool> gate = false;
    const Work work = engine_.submit(one({}, [&] { return gate ? Step::kDone : Step::kIdle; }));
    gate = true;
    while (!work.done()) sched_yield();
  }
}

// A waiting host drives all lanes and sends the engine's thread to sleep; when it leaves, what
// other lanes hold must go on.
TEST_F(ProgressEngineTest, TakesOverFromAHostThatHasWaited) {
  std::atomic<bool> gate = false;
  const Work other = engine_.submit(one({1}, [&] { return gate ? Step::kDone : Step::kIdle; }));
  const std::int64_t begin = now_ns();
  engine_
      .submit(one({2}, [&] { return now_ns() - begin > 20'000'000 ? Step::kDone : Step::kIdle; }))
      .wait_host();
  gate = true;
  while (!other.done()) sched_yield();
}

thread_local bool prepared = false;

TEST_F(ProgressEngineTest, AThreadAtWorkIsPreparedBeforeTheNextOperation) {
  const std::thread::id host = std::this_thread::get_id();
  std::atomic<bool> gate = false, at_it = false, found = false;
  const Work first = engine_.submit(one({1}, [&] {
    if (std::this_thread::get_id() != host) at_it = true;
    return gate ? Step::kDone : Step::kIdle;
  }));
  while (!at_it) sched_yield();
  engine_.prepare_thread([] { prepared = true; });
  const Work second = engine_.submit(one({2}, [&] {
    if (std::this_thread::get_id() == host) return Step::kIdle;
    found = prepared;
    return Step::kDone;
  }));
  while (!second.done()) sched_yield();
  EXPECT_TRUE(found);
  gate = true;
  while (!first.done()) sched_yield();
}

TEST_F(ProgressEngineTest, WaitingIsExposed) {
  std::atomic<int> steps = 0;
  engine_.submit(one({}, [&] { return ++steps > 1000 ? Step::kDone : Step::kIdle; })).wait_host();
  EXPECT_GT(recorder_.exposed_seconds(), 0.0);
}

TEST_F(ProgressEngineTest, ALaneKeepsItsOrder) {
  std::vector<int> order;  // only ever touched by the thread that drives
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    int steps = 0;
    works.push_back(engine_.submit(one({.lane = 1}, [&order, i, steps]() mutable {
      if (++steps < 20 - i) return Step::kIdle;  // the later, the faster
      order.push_back(i);
      return Step::kDone;
    })));
  }
  for (const Work& work : works) work.wait_host();
  ASSERT_EQ(order.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_F(ProgressEngineTest, TheHeadsOfAllLanesAreInFlight) {
  std::atomic<int> begun = 0;
  std::vector<Work> works;
  const LaneKey lanes[] = {{1}, {2}, {1, 0, true}, {1, 0, false}, {1, 3, true}};
  for (const LaneKey& lane : lanes) {
    bool first = true;
    works.push_back(engine_.submit(one(lane, [&begun, first]() mutable {
      if (std::exchange(first, false)) ++begun;
      return begun == 5 ? Step::kDone : Step::kIdle;  // each waits for all others
    })));
  }
  for (const Work& work : works) work.wait_host();
  EXPECT_EQ(begun, 5);
}

TEST_F(ProgressEngineTest, AWorkOfSeveralOperationsIsDoneWithTheLast) {
  std::atomic<bool> gate = false;
  auto operations = one({1}, [] { return Step::kDone; });
  operations.push_back(
      std::move(one({2}, [&] { return gate ? Step::kDone : Step::kIdle; }).front()));
  const Work work = engine_.submit(std::move(operations));
  EXPECT_FALSE(work.done());
  gate = true;
  work.wait_host();
  EXPECT_EQ(recorder_.finished().size(), 2u);
}

TEST_F(ProgressEngineTest, AFaultIsThrownFromTheWaitAndTheLaneGoesOn) {
  const Work broken =
      engine_.submit(one({1}, []() -> Step { throw MpiError("the link is down"); }));
  const Work next = engine_.submit(one({1}, [] { return Step::kDone; }));
  EXPECT_THROW(broken.wait_host(), MpiError);
  EXPECT_THROW(broken.wait_host(), MpiError);
  next.wait_host();
}

// A rank of a large job meets thousands of peers, and a poll looks at none that is done.
TEST_F(ProgressEngineTest, LanesThatAreDoneAreForgotten) {
  std::atomic<bool> gate = false;
  const Work held = engine_.submit(one({1}, [&] { return gate ? Step::kDone : Step::kIdle; }));
  for (int peer = 0; peer < 4096; ++peer) {
    engine_.submit(one({2, peer, true}, [] { return Step::kDone; })).wait_host();
  }
  EXPECT_EQ(engine_.lanes(), 1u);
  gate = true;
  held.wait_host();
  EXPECT_EQ(engine_.lanes(), 0u);
  // The recorder numbers the operations of a lane on, although the engine has forgotten it.
  engine_.submit(one({2, 7, true}, [] { return Step::kDone; })).wait_host();
  EXPECT_EQ(recorder_.finished().back().sequence, 2u);
}

TEST_F(ProgressEngineTest, ManyHostThreads) {
  std::atomic<int> done = 0;
  std::vector<std::thread> hosts;
  for (int host = 0; host < 4; ++host) {
    hosts.emplace_back([&, host] {
      for (int i = 0; i < 200; ++i) {
        int steps = 0;
        const Work work = engine_.submit(one({host % 2}, [&done, steps]() mutable {
          if (++steps < 3) return Step::kMoved;
          ++done;
          return Step::kDone;
        }));
        if (i % 3 != 0) work.wait_host();
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_TRUE(engine_.drain(60.0));
  EXPECT_EQ(done, 800);
  EXPECT_EQ(recorder_.finished().size(), 800u);
  EXPECT_TRUE(recorder_.under_way().empty());
}

TEST_F(ProgressEngineTest, WhatIsQueuedWhenItStopsStaysUndone) {
  const auto held = std::make_shared<int>(0);
  const Work work = engine_.submit(one({}, [held] { return Step::kIdle; }));
  EXPECT_FALSE(engine_.drain(0.01));
  engine_.stop();
  EXPECT_FALSE(work.done());
  EXPECT_EQ(held.use_count(), 1);  // the task is gone
}

TEST(FlightRecorder, KeepsTheLast1024AndNumbersEachLane) {
  FlightRecorder recorder;
  for (int i = 0; i < 2000; ++i) recorder.end(recorder.begin(i % 2, -1, false, "barrier", 0));
  const auto finished = recorder.finished();
  ASSERT_EQ(finished.size(), 1024u);
  EXPECT_EQ(finished.back().sequence, 1000u);
  EXPECT_EQ(finished.back().lane, 1);
  EXPECT_EQ(recorder.begin(1, 4, true, "send", 8) > 0, true);
  EXPECT_EQ(recorder.under_way().front().sequence, 1u);
}

// One operation whose host waits so many nanoseconds after it has submitted it, or never if < 0.
// Returns whether that was expected.
bool expected_wait(PromptWaits& waits, std::int64_t after) {
  PromptWaits::Operation operation(&waits);
  operation.submitted(1'000'000);
  if (after >= 0) operation.waited_for(1'000'000 + after);
  return operation.expects_wait();
}

TEST(PromptWaits, AreExpectedAfterEnoughInARow) {
  PromptWaits waits;
  for (int i = 0; i < PromptWaits::kEnough; ++i) EXPECT_FALSE(expected_wait(waits, 500));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(expected_wait(waits, 500));
}

TEST(PromptWaits, AreNotExpectedAfterALateOneOrNone) {
  for (const std::int64_t after : {PromptWaits::kAtOnceNs, std::int64_t{-1}}) {
    PromptWaits waits;
    for (int i = 0; i < 2 * PromptWaits::kEnough; ++i) expected_wait(waits, 0);
    EXPECT_TRUE(expected_wait(waits, after));
    for (int i = 0; i < PromptWaits::kEnough; ++i) EXPECT_FALSE(expected_wait(waits, 0));
    EXPECT_TRUE(expected_wait(waits, 0));
  }
}

TEST(PromptWaits, AreNotExpectedOfTheSecondOfTwoAtATime) {
  PromptWaits waits;
  for (int i = 0; i < PromptWaits::kEnough; ++i) expected_wait(waits, 0);
  const PromptWaits::Operation first(&waits), second(&waits);
  EXPECT_TRUE(first.expects_wait());
  EXPECT_FALSE(second.expects_wait());
}

TEST(PromptWaits, AreNeverExpectedOfAKindThatIsNotCounted) {
  for (int i = 0; i < 2 * PromptWaits::kEnough; ++i) {
    PromptWaits::Operation operation(nullptr);
    operation.submitted(0);
    operation.waited_for(0);
    EXPECT_FALSE(operation.expects_wait());
  }
}

}  // namespace
}  // namespace trireme
