// Tasks that cut their buffer into segments and have several of them under way, so that one segment
// is on the wire while another is reduced, and the links inside of a node carry one while those
// between nodes carry another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/comm/segments.h"

#include "comm/collectives/phased_task.h"

namespace trireme {

// What a task may have under way at once.
struct Pipeline {
  std::size_t segments = 0;
  int stages = 0;           // of each segment
  std::size_t stride = 1;   // turns between two stages of a segment
  std::size_t skew = 1;     // turns between the beginnings of two segments that follow each other
  std::size_t abreast = 1;  // segments that begin in the same turn

  // The turns from a segment's first stage to its last.
  std::size_t span() const {
    return stages == 0 ? 0 : stride * static_cast<std::size_t>(stages - 1);
  }
  std::size_t first_turn(std::size_t segment) const { return segment / abreast * skew; }
  // The segments that can be under way at the same time.
  std::size_t window() const { return (span() / skew + 1) * abreast; }
};

// A rank runs the stages of all segments in the order of their turns, and in each turn the earliest
// segment first. Each stage waits for the messages of the stage before it of the same segment, and
// only for these. All ranks post the messages between two of them in the same order, because the
// order of stages does not depend on time. If stages have the same meaning on all ranks, no rank
// can wait for ever: a message is posted in a stage that is earlier in that order than the stage
// that waits for it.
class SegmentedTask : public Task {
 public:
  Step advance() final {
    if (!planned_) {
      pipeline_ = plan();
      messages_.resize(pipeline_.segments);
      planned_ = true;
      find_next();
    }
    if (segment_ == pipeline_.segments) return transport_->done() ? Step::kDone : Step::kIdle;
    Messages& own = messages_[segment_];
    if (!transport_->done(own.first, own.last)) return Step::kIdle;
    own.first = transport_->posted();
    run(segment_, static_cast<int>((turn_ - pipeline_.first_turn(segment_)) / pipeline_.stride));
    own.last = transport_->posted();
    ++segment_;
    find_next();
    return Step::kMoved;
  }

 protected:
  explicit SegmentedTask(TransportPtr transport) : transport_(std::move(transport)) {}

  // Called once, before the first stage.
  virtual Pipeline plan() = 0;
  // Processes what the segment's last stage has received, and posts messages.
  virtual void run(std::size_t segment, int stage) = 0;

  Transport& transport() const { return *transport_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  // Returns all ranks, in the order of the network where that is known.
  std::vector<int> network_order() const {
    if (const auto& blocks = transport_->blocks()) return blocks->in_order();
    std::vector<int> order(static_cast<std::size_t>(size()));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

 private:
  struct Messages {
    std::size_t first = 0, last = 0;
  };

  // Finds the first segment from `segment_` on that has a stage in this turn or a later one.
  void find_next() {
    const auto& [segments, stages, stride, skew, abreast] = pipeline_;
    if (segments == 0 || stages == 0) {
      segment_ = segments;
      return;
    }
    const std::size_t span = pipeline_.span();
    const std::size_t last_turn = pipeline_.first_turn(segments - 1) + span;
    while (turn_ <= last_turn) {
      for (; segment_ < segments && pipeline_.first_turn(segment_) <= turn_; ++segment_) {
        if ((turn_ - pipeline_.first_turn(segment_)) % stride == 0) return;
      }
      ++turn_;
      segment_ = turn_ <= span ? 0 : (turn_ - span + skew - 1) / skew * abreast;
    }
    segment_ = segments;
  }

  TransportPtr transport_;
  Pipeline pipeline_;
  bool planned_ = false;
  std::size_t turn_ = 0, segment_ = 0;  // what comes next; all segments: nothing
  std::vector<Messages> messages_;      // of each segment's last stage
};

}  // namespace trireme
