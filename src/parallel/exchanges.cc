// Where the exchanges of a schedule stand.
#include <algorithm>
#include <utility>

#include "trireme/base/error.h"

#include "compute_steps.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;

// A value that a stage receives, and when it is made.
struct Arrival {
  int time;
  PipelineMessage message;
};

// Runs the computations of all stages on one clock, on which each takes one tick.
class ExchangePlan {
 public:
  ExchangePlan(PipelineSchedule& schedule, SendsGradient sends)
      : schedule_(schedule),
        layout_(schedule.layout),
        sends_(sends),
        begins_(schedule.steps.size()),
        arrivals_(schedule.steps.size()),
        made_(2 * static_cast<std::size_t>(schedule.micro_batches) *
                  static_cast<std::size_t>(layout_.parts()),
              kNever) {}

  void insert() {
    run_clock();
    for (int stage = 0; stage < layout_.stages; ++stage) {
      steps_of(stage) = with_exchanges(stage);
    }
  }

 private:
  static constexpr int kNever = -1;

  PipelineSteps& steps_of(int stage) { return schedule_.steps[static_cast<std::size_t>(stage)]; }
  std::vector<int>& begins(int stage) { return begins_[static_cast<std::size_t>(stage)]; }

  // When the value was made that part `producer` makes of a micro-batch, or kNever.
  int& made(Payload payload, int micro_batch, int producer) {
    const int kind = payload == Payload::kActivation ? 0 : 1;
    return made_[static_cast<std::size_t>(
        (std::int64_t{kind} * schedule_.micro_batches + micro_batch) * layout_.parts() + producer)];
  }

  static bool has_value(const PipelineStep& step) { return step.kind != Kind::kBackwardWeight; }
  static Payload payload_of(const PipelineStep& step) {
    return step.kind == Kind::kForward ? Payload::kActivation : Payload::kGradient;
  }
  bool exists(int part) const { return part >= 0 && part < layout_.parts(); }
  // The part that makes the input of a computation, and the one that uses its output.
  int producer_of(int stage, const PipelineStep& step) const {
    return layout_.part(stage, step.chunk) + (step.kind == Kind::kForward ? -1 : 1);
  }
  int consumer_of(int stage, const PipelineStep& step) const {
    return layout_.part(stage, step.chunk) + (step.kind == Kind::kForward ? 1 : -1);
  }

  // Whether no exchange may stand between a computation and the one before it.
  bool joins(int stage, std::size_t position) {
    return sends_ == SendsGradient::kAfterBackward && position > 0 &&
           is_plain_backward(steps_of(stage)[position - 1], steps_of(stage)[position]);
  }

  void run_clock() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < layout_.stages; ++stage) {
        while (advance(stage)) moved = true;
      }
    }
    for (int stage = 0; stage < layout_.stages; ++stage) {
      TRIREME_CHECK(begins(stage).size() == steps_of(stage).size(),
                    "a schedule whose computations wait for each other");
      const auto earlier = [](const Arrival& a, const Arrival& b) { return a.time < b.time; };
      auto& arrivals = arrivals_[static_cast<std::size_t>(stage)];
      std::stable_sort(arrivals.begin(), arrivals.end(), earlier);
    }
  }

  // Begins the next computation of a stage, if its input is made.
  bool advance(int stage) {
    const std::size_t position = begins(stage).size();
    if (position == steps_of(stage).size()) return false;
    const PipelineStep& step = steps_of(stage)[position];
    int begin = position == 0 ? 0 : begins(stage).back() + 1;
    if (has_value(step) && exists(producer_of(stage, step))) {
      const int input = made(payload_of(step), step.micro_batch, producer_of(stage, step));
      if (input == kNever) return false;
      begin = std::max(begin, input);
    }
    begins(stage).push_back(begin);
    if (!has_value(step)) return true;
    const bool later = position + 1 < steps_of(stage).size() && joins(stage, position + 1);
    const int part = layout_.part(stage, step.chunk), time = begin + (later ? 2 : 1);
    made(payload_of(step), step.micro_batch, part) = time;
    const int consumer = consumer_of(stage, step);
    if (exists(consumer) && layout_.stage_of(consumer) != stage) {
      arrivals_[static_cast<std::size_t>(layout_.stage_of(consumer))].push_back(
          {time, {payload_of(step), step.micro_batch, step.chunk, stage}});
    }
    return true;
  }

  void add_sends(int stage, const PipelineStep& step, PipelineStep& exchange) const {
    if (!has_value(step)) return;
    const int consumer = consumer_of(stage, step);
    if (!exists(consumer) || layout_.stage_of(consumer) == stage) return;
    exchange.sends.push_back(
        {payload_of(step), step.micro_batch, step.chunk, layout_.stage_of(consumer)});
  }

  PipelineSteps with_exchanges(int stage) {
    PipelineSteps result;
    const auto& arrivals = arrivals_[static_cast<std::size_t>(stage)];
    auto next = arrivals.begin();
    PipelineStep exchange{.kind = Kind::kExchange, .sends = {}, .receives = {}};
    const auto flush = [&] {
      if (exchange.sends.empty() && exchange.receives.empty()) return;
      result.push_back(std::exchange(
          exchange, PipelineStep{.kind = Kind::kExchange, .sends = {}, .receives = {}}));
    };
    PipelineSteps& steps = steps_of(stage);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!joins(stage, i)) {
        for (; next != arrivals.end() && next->time <= begins(stage)[i]; ++next) {
          exchange.receives.push_back(next->message);
        }
        flush();
      }
      add_sends(stage, steps[i], exchange);
      result.push_back(steps[i]);
    }
    flush();
    return result;
  }

  PipelineSchedule& schedule_;
  const PipelineLayout layout_;
  SendsGradient sends_;
  std::vector<std::vector<int>> begins_;        // of the computations of each stage
  std::vector<std::vector<Arrival>> arrivals_;  // by stage; in the order of time
  std::vector<int> made_;                       // by payload, micro-batch and producing part
};

}  // namespace

void insert_exchanges(PipelineSchedule& schedule, SendsGradient sends) {
  ExchangePlan(schedule, sends).insert();
}

}  // namespace trireme::parallel
