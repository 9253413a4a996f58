// The checker: first it checks each stage's list by itself, then it simulates all stages together.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;
using Problem = std::optional<std::string>;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return "forward";
    case Kind::kBackwardInput:
      return "backward-input";
    case Kind::kBackwardWeight:
      return "backward-weight";
    case Kind::kExchange:
      break;
  }
  return "exchange";
}

std::string_view name_of(Payload payload) {
  return payload == Payload::kActivation ? "activation" : "gradient";
}

// "micro-batch 3", or "micro-batch 3, chunk 1" if there are several chunks.
std::string name_of(int micro_batch, int chunk, int chunks) {
  return chunks == 1 ? fmt::format("micro-batch {}", micro_batch)
                     : fmt::format("micro-batch {}, chunk {}", micro_batch, chunk);
}

std::string name_of(const PipelineMessage& message, int chunks) {
  return fmt::format("the {} of {}", name_of(message.payload),
                     name_of(message.micro_batch, message.chunk, chunks));
}

bool has_backward(const PipelineSchedule& schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const auto& steps) {
    return std::any_of(steps.begin(), steps.end(), [](const PipelineStep& step) {
      return step.kind == Kind::kBackwardInput || step.kind == Kind::kBackwardWeight;
    });
  });
}

// Walks the list of one stage: is each computation there once, with its inputs available?
class StageWalk {
 public:
  StageWalk(const PipelineSchedule& schedule, int stage)
      : schedule_(schedule),
        layout_(schedule.layout),
        stage_(stage),
        trains_(has_backward(schedule)) {}

  Problem check() {
    const auto& steps = schedule_.steps[static_cast<std::size_t>(stage_)];
    for (position_ = 0; position_ < steps.size(); ++position_) {
      const PipelineStep& step = steps[position_];
      const Problem problem = step.kind == Kind::kExchange ? exchange(step) : compute(step);
      if (problem) return fmt::format("stage {}, step {}: {}", stage_, position_, *problem);
    }
    return missing();
  }

  int peak_live() const { return peak_live_; }

 private:
  using Computation = std::tuple<Kind, int, int>;    // kind, micro-batch, chunk
  using Value = std::tuple<Payload, int, int, int>;  // payload, micro-batch, producing part, peer

  int part_of(int chunk) const { return layout_.part(stage_, chunk); }
  bool ran(Kind kind, int micro_batch, int chunk) const {
    return done_.contains({kind, micro_batch, chunk});
  }
  bool in_range(int micro_batch, int chunk) const {
    return micro_batch >= 0 && micro_batch < schedule_.micro_batches && chunk >= 0 &&
           chunk < layout_.chunks;
  }
  std::string name(int micro_batch, int chunk) const {
    return name_of(micro_batch, chunk, layout_.chunks);
  }
  Problem out_of_range(int micro_batch, int chunk) const {
    if (in_range(micro_batch, chunk)) return {};
    return fmt::format("{} is outside of {} micro-batches and {} chunks",
                       name_of(micro_batch, chunk, 0), schedule_.micro_batches, layout_.chunks);
  }

  // Whether the value that part `producer` makes is on this stage: computed here, or received.
  bool at_hand(Payload payload, int micro_batch, int producer) const {
    const int stage = layout_.stage_of(producer);
    if (stage == stage_) {
      const Kind kind = payload == Payload::kActivation ? Kind::kForward : Kind::kBackwardInput;
      return ran(kind, micro_batch, layout_.chunk_of(producer));
    }
    return received_.contains({payload, micro_batch, producer, stage});
  }

  Problem compute(const PipelineStep& step) {
    const auto& [kind, m, chunk, sends, receives] = step;
    if (const Problem problem = out_of_range(m, chunk)) return problem;
    if (ran(kind, m, chunk)) {
      return fmt::format("the {} of {} runs twice", name_of(kind), name(m, chunk));
    }
    if (const Problem problem = dependencies(step)) return problem;
    if (kind != Kind::kForward) {
      int& next = next_backward_[{kind, chunk}];
      if (m != next) {
        return fmt::format("the {} of {} runs before that of micro-batch {}", name_of(kind),
                           name(m, chunk), next);
      }
      ++next;
    }
    done_[{kind, m, chunk}] = true;
    if (kind == Kind::kForward && trains_) peak_live_ = std::max(peak_live_, ++live_);
    if (kind == Kind::kBackwardWeight) --live_;
    return {};
  }

  Problem dependencies(const PipelineStep& step) const {
    const int m = step.micro_batch, chunk = step.chunk, part = part_of(chunk);
    const auto before = [&](Kind other) {
      return fmt::format("the {} of {} runs before its {}", name_of(step.kind), name(m, chunk),
                         name_of(other));
    };
    const auto without = [&](Payload payload, int producer) {
      return fmt::format("the {} of {} runs without its {} from stage {}", name_of(step.kind),
                         name(m, chunk), name_of(payload), layout_.stage_of(producer));
    };
    if (step.kind == Kind::kForward && part > 0 && !at_hand(Payload::kActivation, m, part - 1)) {
      return without(Payload::kActivation, part - 1);
    }
    if (step.kind == Kind::kBackwardInput) {
      if (!ran(Kind::kForward, m, chunk)) return before(Kind::kForward);
      if (part + 1 < layout_.parts() && !at_hand(Payload::kGradient, m, part + 1)) {
        return without(Payload::kGradient, part + 1);
      }
    }
    if (step.kind == Kind::kBackwardWeight && !ran(Kind::kBackwardInput, m, chunk)) {
      return before(Kind::kBackwardInput);
    }
    return {};
  }

  Problem exchange(const PipelineStep& step) {
    for (const PipelineMessage& message : step.sends) {
      if (const Problem problem = send(message)) return problem;
    }
    // After all sends: an exchange cannot send what it receives.
    for (const PipelineMessage& message : step.receives) {
      if (const Problem problem = receive(message)) return problem;
    }
    return {};
  }

  // The stage that uses a value of part `producer`, or none.
  std::optional<int> consumer(Payload payload, int producer) const {
    const int part = payload == Payload::kActivation ? producer + 1 : producer - 1;
    if (part < 0 || part >= layout_.parts()) return {};
    return layout_.stage_of(part);
  }

  Problem send(const PipelineMessage& message) {
    const auto& [payload, m, chunk, peer] = message;
    if (const Problem problem = out_of_range(m, chunk)) return problem;
    const std::string value = name_of(message, layout_.chunks);
    if (consumer(payload, part_of(chunk)) != peer || peer == stage_) {
      return fmt::format("sends {} to stage {}, which does not use it", value, peer);
    }
    const Kind kind = payload == Payload::kActivation ? Kind::kForward : Kind::kBackwardInput;
    if (!ran(kind, m, chunk)) return fmt::format("sends {} before it is computed", value);
    const bool first = sent_.emplace(Value{payload, m, part_of(chunk), peer}, true).second;
    if (!first) return fmt::format("sends {} to stage {} twice", value, peer);
    return {};
  }

  Problem receive(const PipelineMessage& message) {
    const auto& [payload, m, chunk, peer] = message;
    if (const Problem problem = out_of_range(m, chunk)) return problem;
    const std::string value = name_of(message, layout_.chunks);
    const bool other = peer >= 0 && peer < layout_.stages && peer != stage_;
    const int producer = other ? layout_.part(peer, chunk) : -1;
    if (!other || consumer(payload, producer) != stage_) {
      return fmt::format("receives {} from stage {}, but does not use it", value, peer);
    }
    const bool first = received_.emplace(Value{payload, m, producer, peer}, true).second;
    if (!first) return fmt::format("receives {} from stage {} twice", value, peer);
    return {};
  }

  Problem missing() const {
    for (int m = 0; m < schedule_.micro_batches; ++m) {
      for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
        for (const Kind kind : {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeight}) {
          if (ran(kind, m, chunk) || (kind != Kind::kForward && !trains_)) continue;
          return fmt::format("stage {} never runs the {} of {}", stage_, name_of(kind),
                             name(m, chunk));
        }
      }
    }
    return {};
  }

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

// Runs all stages together. A lane holds the transfers posted by each end, in order; transfer k of
// the sender meets transfer k of the receiver when both are posted. What a stage computes does not
// depend on time, so the order in which stages are visited does not matter.
class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule), costs_(costs), stages_(schedule.steps.size()) {}

  Problem run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        while (advance(static_cast<int>(s))) moved = true;
        if (problem_) return problem_;
      }
    }
    return deadlock();
  }

  double makespan() const {
    double latest = 0;
    for (const Stage& stage : stages_) latest = std::max(latest, stage.clock);
    return latest;
  }
  double busy() const {
    double sum = 0;
    for (const Stage& stage : stages_) sum += stage.busy;
    return sum;
  }

 private:
  struct Posted {
    PipelineMessage message;  // as the sender writes it
    double time;
  };
  struct Lane {
    std::vector<Posted> sends, receives;
  };
  struct Pending {  // a transfer of the exchange that a stage waits in
    int from, to;
    std::size_t index;  // in its lane
    bool is_send;
    PipelineMessage message;
  };
  struct Stage {
    std::size_t position = 0;
    bool posted = false;  // the exchange at `position`
    std::vector<Pending> pending;
    double clock = 0, busy = 0;
  };

  const std::vector<PipelineStep>& steps_of(int stage) const {
    return schedule_.steps[static_cast<std::size_t>(stage)];
  }

  double cost_of(int stage, const PipelineStep& step) const {
    const auto part = static_cast<std::size_t>(schedule_.layout.part(stage, step.chunk));
    const StepCosts costs = costs_.parts.empty() ? StepCosts() : costs_.parts[part];
    if (step.kind == Kind::kForward) return costs.forward;
    return step.kind == Kind::kBackwardInput ? costs.backward_input : costs.backward_weight;
  }

  bool advance(int index) {
    Stage& stage = stages_[static_cast<std::size_t>(index)];
    if (stage.position == steps_of(index).size()) return false;
    const PipelineStep& step = steps_of(index)[stage.position];
    if (step.kind != Kind::kExchange) {
      const double cost = cost_of(index, step);
      stage.clock += cost;
      stage.busy += cost;
      ++stage.position;
      return true;
    }
    if (!stage.posted) {
      post(index, step, stage);
      return !problem_;
    }
    return finish(stage);
  }

  void post(int index, const PipelineStep& step, Stage& stage) {
    stage.posted = true;
    for (const PipelineMessage& message : step.sends) {
      Lane& lane = lanes_[{index, message.peer}];
      stage.pending.push_back({index, message.peer, lane.sends.size(), true, message});
      lane.sends.push_back({message, stage.clock});
    }
    for (const PipelineMessage& message : step.receives) {
      Lane& lane = lanes_[{message.peer, index}];
      stage.pending.push_back({message.peer, index, lane.receives.size(), false, message});
      PipelineMessage as_sent = message;
      as_sent.peer = index;
      lane.receives.push_back({as_sent, stage.clock});
    }
    for (const Pending& transfer : stage.pending) {
      if (!problem_) problem_ = mismatch(transfer);
    }
  }

  bool met(const Pending& transfer) const {
    const Lane& lane = lanes_.at({transfer.from, transfer.to});
    return transfer.index < std::min(lane.sends.size(), lane.receives.size());
  }

  Problem mismatch(const Pending& transfer) const {
    if (!met(transfer)) return {};
    const Lane& lane = lanes_.at({transfer.from, transfer.to});
    const PipelineMessage& sent = lane.sends[transfer.index].message;
    const PipelineMessage& expected = lane.receives[transfer.index].message;
    if (sent == expected) return {};
    return fmt::format("lane {} -> {}: stage {} sends {} where stage {} expects {}", transfer.from,
                       transfer.to, transfer.from, name_of(sent, schedule_.layout.chunks),
                       transfer.to, name_of(expected, schedule_.layout.chunks));
  }

  bool finish(Stage& stage) {
    double end = stage.clock;
    for (const Pending& transfer : stage.pending) {
      if (!met(transfer)) return false;
      const Lane& lane = lanes_.at({transfer.from, transfer.to});
      end = std::max({end, lane.sends[transfer.index].time, lane.receives[transfer.index].time});
    }
    stage.clock = end + costs_.exchange;
    stage.pending.clear();
    stage.posted = false;
    ++stage.position;
    return true;
  }

  // If some stages have not finished: what each of them waits for.
  Problem deadlock() const {
    std::string waits;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (const Pending& transfer : stages_[s].pending) {
        if (met(transfer)) continue;
        waits += fmt::format("{} stage {} (step {}) waits for stage {} to {} {}",
                             waits.empty() ? "" : ";", s, stages_[s].position,
                             transfer.is_send ? transfer.to : transfer.from,
                             transfer.is_send ? "receive" : "send",
                             name_of(transfer.message, schedule_.layout.chunks));
        break;
      }
    }
    if (waits.empty()) return {};
    return "deadlock:" + waits;
  }

  const PipelineSchedule& schedule_;
  const ScheduleCosts& costs_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, Lane> lanes_;
  Problem problem_;
};

Problem check_sizes(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  const PipelineLayout& layout = schedule.layout;
  if (layout.stages < 1 || schedule.micro_batches < 1 || layout.chunks < 1) {
    return fmt::format("{} stages, {} micro-batches and {} chunks: each must be at least 1",
                       layout.stages, schedule.micro_batches, layout.chunks);
  }
  if (schedule.steps.size() != static_cast<std::size_t>(layout.stages)) {
    return fmt::format("there are lists of steps for {} stages of {}", schedule.steps.size(),
                       layout.stages);
  }
  const auto parts = static_cast<std::size_t>(layout.parts());
  if (!costs.parts.empty() && costs.parts.size() != parts) {
    return fmt::format("there are costs for {} parts of {}", costs.parts.size(), parts);
  }
  return {};
}

}  // namespace

ScheduleReport check_schedule(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  ScheduleReport report;
  const auto refuse = [&](const std::string& problem) {
    report.problem = problem;
    return report;
  };
  if (const Problem problem = check_sizes(schedule, costs)) return refuse(*problem);
  std::vector<int> peak_live;
  for (int stage = 0; stage < schedule.layout.stages; ++stage) {
    StageWalk walk(schedule, stage);
    if (const Problem problem = walk.check()) return refuse(*problem);
    peak_live.push_back(walk.peak_live());
  }
  Simulation simulation(schedule, costs);
  if (const Problem problem = simulation.run()) return refuse(*problem);
  report.ok = true;
  report.peak_live = std::move(peak_live);
  report.makespan = simulation.makespan();
  const double capacity = report.makespan * schedule.layout.stages;
  if (capacity > 0) report.bubble_fraction = 1 - simulation.busy() / capacity;
  return report;
}

}  // namespace trireme::parallel
