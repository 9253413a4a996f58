#include "parallel/stage_walk.h"

#include <algorithm>

#include <fmt/format.h>

#include "parallel/schedule_text.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;

bool has_any_backward(const PipelineSchedule& schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const auto& steps) {
    return std::any_of(steps.begin(), steps.end(), [](const PipelineStep& step) {
      return step.kind == Kind::kBackwardInput || step.kind == Kind::kBackwardWeight;
    });
  });
}

}  // namespace

StageWalk::StageWalk(const PipelineSchedule& schedule, int stage)
    : schedule_(schedule),
      layout_(schedule.layout),
      stage_(stage),
      trains_(has_any_backward(schedule)) {}

StageWalk::Problem StageWalk::check() {
  const auto& steps = schedule_.steps[static_cast<std::size_t>(stage_)];
  for (position_ = 0; position_ < steps.size(); ++position_) {
    const PipelineStep& step = steps[position_];
    const Problem problem = step.kind == Kind::kExchange ? exchange(step) : compute(step);
    if (problem) return fmt::format("stage {}, step {}: {}", stage_, position_, *problem);
  }
  return missing();
}

std::string StageWalk::name(int micro_batch, int chunk) const {
  return name_of(micro_batch, chunk, layout_.chunks);
}

StageWalk::Problem StageWalk::out_of_range(int micro_batch, int chunk) const {
  if (micro_batch >= 0 && micro_batch < schedule_.micro_batches && chunk >= 0 &&
      chunk < layout_.chunks) {
    return {};
  }
  return fmt::format("{} is outside of {} micro-batches and {} chunks",
                     name_of(micro_batch, chunk, 0), schedule_.micro_batches, layout_.chunks);
}

bool StageWalk::at_hand(Payload payload, int micro_batch, int producer) const {
  const int stage = layout_.stage_of(producer);
  if (stage == stage_) {
    const Kind kind = payload == Payload::kActivation ? Kind::kForward : Kind::kBackwardInput;
    return ran(kind, micro_batch, layout_.chunk_of(producer));
  }
  return received_.contains({payload, micro_batch, producer, stage});
}

StageWalk::Problem StageWalk::compute(const PipelineStep& step) {
  const auto& [kind, m, chunk, sends, receives] = step;
  if (const Problem problem = out_of_range(m, chunk)) return problem;
  if (ran(kind, m, chunk)) {
    return fmt::format("the {} of {} runs twice", name_of(kind), name(m, chunk));
  }
  if (kind != Kind::kForward && !has_backward(chunk)) {
    return fmt::format("the {} of {} runs, but nothing up to there trains", name_of(kind),
                       name(m, chunk));
  }
  if (const Problem problem = dependencies(step)) return problem;
  if (const Problem problem = in_order(step)) return problem;
  done_[{kind, m, chunk}] = true;
  if (kind == Kind::kForward && has_backward(chunk)) peak_live_ = std::max(peak_live_, ++live_);
  if (kind == Kind::kBackwardWeight) --live_;
  return {};
}

StageWalk::Problem StageWalk::dependencies(const PipelineStep& step) const {
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

StageWalk::Problem StageWalk::in_order(const PipelineStep& step) {
  if (step.kind == Kind::kForward) return {};
  int& next = next_backward_[{step.kind, step.chunk}];
  if (step.micro_batch != next) {
    return fmt::format("the {} of {} runs before that of micro-batch {}", name_of(step.kind),
                       name(step.micro_batch, step.chunk), next);
  }
  ++next;
  return {};
}

StageWalk::Problem StageWalk::exchange(const PipelineStep& step) {
  for (const PipelineMessage& message : step.sends) {
    if (const Problem problem = send(message)) return problem;
  }
  // Receives come after all sends: an exchange cannot send what it receives.
  for (const PipelineMessage& message : step.receives) {
    if (const Problem problem = receive(message)) return problem;
  }
  return {};
}

std::optional<int> StageWalk::consumer(Payload payload, int producer) const {
  const int part = payload == Payload::kActivation ? producer + 1 : producer - 1;
  const int first = payload == Payload::kActivation ? 0 : schedule_.first_backward;
  if (part < first || part >= layout_.parts()) return {};
  return layout_.stage_of(part);
}

StageWalk::Problem StageWalk::send(const PipelineMessage& message) {
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

StageWalk::Problem StageWalk::receive(const PipelineMessage& message) {
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

StageWalk::Problem StageWalk::missing() const {
  for (int m = 0; m < schedule_.micro_batches; ++m) {
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      for (const Kind kind : {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeight}) {
        if (ran(kind, m, chunk) || (kind != Kind::kForward && !has_backward(chunk))) continue;
        return fmt::format("stage {} never runs the {} of {}", stage_, name_of(kind),
                           name(m, chunk));
      }
    }
  }
  return {};
}

}  // namespace trireme::parallel
