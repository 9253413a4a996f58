// The first half of the checker: each stage's list by itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

// Walks the list of one stage: is each computation there once, in order and with its inputs at
// hand, and is each message of use?
class StageWalk {
 public:
  using Problem = std::optional<std::string>;  // a sentence

  StageWalk(const PipelineSchedule& schedule, int stage);

  // The first problem, if there is one.
  Problem check();
  int peak_live() const { return peak_live_; }

 private:
  using Kind = PipelineStep::Kind;
  using Payload = PipelineMessage::Payload;
  using Computation = std::tuple<Kind, int, int>;    // kind, micro-batch, chunk
  using Value = std::tuple<Payload, int, int, int>;  // payload, micro-batch, producing part, peer

  int part_of(int chunk) const { return layout_.part(stage_, chunk); }
  bool has_backward(int chunk) const {
    return trains_ && part_of(chunk) >= schedule_.first_backward;
  }
  bool ran(Kind kind, int micro_batch, int chunk) const {
    return done_.contains({kind, micro_batch, chunk});
  }
  std::string name(int micro_batch, int chunk) const;
  Problem out_of_range(int micro_batch, int chunk) const;
  // Whether the value that part `producer` makes is on this stage: computed here, or received.
  bool at_hand(Payload payload, int micro_batch, int producer) const;
  Problem compute(const PipelineStep& step);
  Problem dependencies(const PipelineStep& step) const;
  // The backward computations of a chunk take the micro-batches as they are numbered.
  Problem in_order(const PipelineStep& step);
  Problem exchange(const PipelineStep& step);
  // The stage that uses a value of part `producer`, or none.
  std::optional<int> consumer(Payload payload, int producer) const;
  Problem send(const PipelineMessage& message);
  Problem receive(const PipelineMessage& message);
  Problem missing() const;

  const PipelineSchedule& schedule_;
  const PipelineLayout& layout_;
  int stage_;
  bool trains_;
  std::size_t position_ = 0;
  std::map<Computation, bool> done_;
  std::map<std::pair<Kind, int>, int> next_backward_;  // micro-batch, by kind and chunk
  std::map<Value, bool> sent_, received_;
  int live_ = 0, peak_live_ = 0;
};

}  // namespace trireme::parallel
