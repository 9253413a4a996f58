// Work on a stream in several threads, with results in the order of the stream.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <utility>

namespace trireme {

// Works on up to `threads` items at once and passes the results on in the order of the items. What
// the work or the sink throws comes out of add() or finish().
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
    in_flight_.push_back(
        std::async(std::launch::async, [this, own = std::move(item)] { return work_(own); }));
  }
  void finish() {
    while (!in_flight_.empty()) take();
  }

 private:
  void take() {
    Result result = in_flight_.front().get();
    in_flight_.pop_front();
    sink_(std::move(result));
  }

  std::size_t threads_;
  Work work_;
  Sink sink_;
  std::deque<std::future<Result>> in_flight_;  // the last member: its tasks end first
};

}  // namespace trireme
