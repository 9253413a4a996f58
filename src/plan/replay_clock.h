// The virtual time of a replay and what happens in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::plan {

class ReplayClock {
 public:
  double now() const { return now_; }  // seconds from the start of the step

  // What happens at a time that is not before now. Of events at the same time those that were added
  // first come first.
  void at(double time, std::function<void()> event) {
    events_.push({std::max(time, now_), added_++, std::move(event)});
  }
  // Lets the next event happen. Returns false if there is none.
  bool advance() {
    if (events_.empty()) return false;
    // The event may add others, so it leaves the queue first.
    auto event = std::move(const_cast<Event&>(events_.top()).event);
    now_ = events_.top().time;
    events_.pop();
    event();
    return true;
  }

 private:
  struct Event {
    double time;
    std::uint64_t order;
    std::function<void()> event;
    bool operator<(const Event& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };

  double now_ = 0.0;
  std::uint64_t added_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace trireme::plan
