// Zero-bubble schedules: lists that come from running all stages on one clock, on which each
// computation takes one tick.
#include <algorithm>
#include <limits>

#include "compute_steps.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;

// What bounds the memory of a schedule.
struct Room {
  int live;                                                  // micro-batches, each in one chunk
  int (*in_flight)(const PipelineLayout& layout, int part);  // forward done, backward-input not
};

// At each tick a stage takes the first of these that can run and for which there is room: a
// forward, of a later chunk first; a backward-input, of an earlier chunk first; a weight gradient,
// the oldest first. So forwards and backwards take turns as in 1F1B, because a forward finds no
// room until a backward has made it, and weight gradients fill the ticks that are left.
class Clock {
 public:
  Clock(PipelineSchedule& schedule, const Room& room)
      : schedule_(schedule),
        layout_(schedule.layout),
        room_(room),
        live_(schedule.steps.size()),
        parts_(static_cast<std::size_t>(layout_.parts())) {
    for (Part& part : parts_) {
      const auto count = static_cast<std::size_t>(schedule.micro_batches);
      part.forward_ends.resize(count, kNever);
      part.backward_ends.resize(count, kNever);
    }
  }

  void run() {
    const std::size_t each = 3u * static_cast<std::size_t>(layout_.chunks) *
                             static_cast<std::size_t>(schedule_.micro_batches);
    const auto full = [&](const PipelineSteps& steps) { return steps.size() == each; };
    for (; !std::all_of(schedule_.steps.begin(), schedule_.steps.end(), full); ++now_) {
      for (int stage = 0; stage < layout_.stages; ++stage) tick(stage);
    }
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  // The micro-batches that a part has done.
  struct Part {
    int forwards = 0, backwards = 0, weights = 0;
    std::vector<int> forward_ends, backward_ends;
  };

  Part& at(int part) { return parts_[static_cast<std::size_t>(part)]; }
  int part_of(int stage, int chunk) const { return layout_.part(stage, chunk); }
  int& live(int stage) { return live_[static_cast<std::size_t>(stage)]; }
  bool over(const std::vector<int>& ends, int micro_batch) const {
    return ends[static_cast<std::size_t>(micro_batch)] <= now_;
  }

  bool can_forward(int stage, int chunk) {
    const int part = part_of(stage, chunk), m = at(part).forwards;
    if (m == schedule_.micro_batches) return false;
    if (part > 0 && !over(at(part - 1).forward_ends, m)) return false;
    // Room is kept for a forward of the last chunk, or the backwards would never begin.
    const int needed = chunk + 1 < layout_.chunks ? 2 : 1;
    return live(stage) + needed <= room_.live &&
           at(part).forwards - at(part).backwards < room_.in_flight(layout_, part);
  }

  bool can_backward(int stage, int chunk) {
    const int part = part_of(stage, chunk), m = at(part).backwards;
    if (m == schedule_.micro_batches || !over(at(part).forward_ends, m)) return false;
    return part + 1 == layout_.parts() || over(at(part + 1).backward_ends, m);
  }

  void forward(int stage, int chunk) {
    Part& part = at(part_of(stage, chunk));
    part.forward_ends[static_cast<std::size_t>(part.forwards)] = now_ + 1;
    add(stage, Kind::kForward, part.forwards++, chunk);
    ++live(stage);
  }

  void backward_input(int stage, int chunk) {
    Part& part = at(part_of(stage, chunk));
    part.backward_ends[static_cast<std::size_t>(part.backwards)] = now_ + 1;
    add(stage, Kind::kBackwardInput, part.backwards++, chunk);
  }

  // Adds the oldest micro-batch's backward of weights; that of the latest chunk if several have
  // one.
  void backward_weight(int stage) {
    int oldest = -1;
    for (int chunk = layout_.chunks - 1; chunk >= 0; --chunk) {
      const Part& part = at(part_of(stage, chunk));
      if (part.weights == part.backwards) continue;
      if (oldest < 0 || part.weights < at(part_of(stage, oldest)).weights) oldest = chunk;
    }
    if (oldest < 0) return;
    add(stage, Kind::kBackwardWeight, at(part_of(stage, oldest)).weights++, oldest);
    --live(stage);
  }

  // What ends now is seen by others from the next tick on.
  void tick(int stage) {
    for (int chunk = layout_.chunks - 1; chunk >= 0; --chunk) {
      if (can_forward(stage, chunk)) return forward(stage, chunk);
    }
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      if (can_backward(stage, chunk)) return backward_input(stage, chunk);
    }
    backward_weight(stage);
  }

  void add(int stage, Kind kind, int micro_batch, int chunk) {
    schedule_.steps[static_cast<std::size_t>(stage)].push_back({kind, micro_batch, chunk, {}, {}});
  }

  PipelineSchedule& schedule_;
  const PipelineLayout& layout_;
  Room room_;
  int now_ = 0;
  std::vector<int> live_;  // by stage
  std::vector<Part> parts_;
};

PipelineSchedule zero_bubble(const char* name, const PipelineLayout& layout, int micro_batches,
                             const Room& room) {
  PipelineSchedule schedule = empty_schedule(name, layout, micro_batches);
  Clock(schedule, room).run();
  insert_exchanges(schedule, SendsGradient::kAfterBackwardInput);
  return schedule;
}

}  // namespace

PipelineSchedule zb_h1_schedule(int stages, int micro_batches) {
  // The number in flight is that of 1F1B.
  const auto in_flight = [](const PipelineLayout& layout, int part) {
    return layout.parts() - part;
  };
  return zero_bubble("zb-h1", {.stages = stages}, micro_batches, {stages, in_flight});
}

PipelineSchedule zb_v_schedule(int stages, int micro_batches) {
  // A micro-batch is on its way from a part's forward to its backward-input for two ticks a part
  // behind it, and a new one comes each 6 ticks: a sixth of 2 (parts - part) at least. Half of the
  // parts behind it plus half of the stages is so much more that weight gradients can wait, and
  // little enough that they find room. With it the bubble is the least there can be for up to 8
  // stages and 2 stages micro-batches and more, as the tests show; for 16 stages a few ticks more.
  const auto in_flight = [](const PipelineLayout& layout, int part) {
    return (layout.parts() - part + 1) / 2 + layout.stages / 2;
  };
  const PipelineLayout layout{stages, 2, PipelineLayout::Order::kV};
  return zero_bubble("zb-v", layout, micro_batches, {2 * stages, in_flight});
}

}  // namespace trireme::parallel
