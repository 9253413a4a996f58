// Work on a stream in several threads, with results in the order of the stream.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/thread.h"

namespace trireme {

// Works on up to `threads` items at once, or on fewer where the system gives fewer threads, and
// passes the results on in the order of the items. What the work or the sink throws comes out of
// add() or finish().
template <class Item, class Result>
class OrderedWork {
 public:
  using Work = std::function<Result(const Item&)>;
  using Sink = std::function<void(Result&&)>;
  OrderedWork(int threads, Work work, Sink sink)
      : threads_(static_cast<std::size_t>(threads)),
        work_(std::move(work)),
        sink_(std::move(sink)) {}

  void add(Item&& item) {
    if (in_flight_.size() == threads_) take();
    // Shared with a thread. (std::async would lose the item where it gets no thread.)
    const auto task = std::make_shared<std::packaged_task<Result()>>(
        [this, own = std::move(item)] { return work_(own); });
    in_flight_.push_back({task->get_future(), {}});
    try {
      in_flight_.back().thread = start_thread("work on the input", [task] { (*task)(); });
    } catch (const Error&) {
      (*task)();
    }
  }
  void finish() {
    while (!in_flight_.empty()) take();
  }

 private:
  struct InFlight {
    std::future<Result> result;
    std::jthread thread;
  };

  void take() {
    Result result = in_flight_.front().result.get();
    in_flight_.pop_front();
    sink_(std::move(result));
  }

  std::size_t threads_;
  Work work_;
  Sink sink_;
  std::deque<InFlight> in_flight_;  // the last member: its threads end first
};

}  // namespace trireme
