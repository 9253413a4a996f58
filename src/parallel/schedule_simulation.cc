#include "parallel/schedule_simulation.h"

#include <algorithm>

#include <fmt/format.h>

#include "parallel/schedule_text.h"

namespace trireme::parallel {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;

ScheduleSimulation::ScheduleSimulation(const PipelineSchedule& schedule, const ScheduleCosts& costs)
    : schedule_(schedule),
      costs_(costs),
      stages_(schedule.steps.size()),
      arrivals_(2 * static_cast<std::size_t>(schedule.micro_batches) *
                static_cast<std::size_t>(schedule.layout.parts())) {}

ScheduleSimulation::Problem ScheduleSimulation::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      while (advance(static_cast<int>(s))) moved = true;
      if (problem_) return problem_;
    }
  }
  return deadlock();
}

double ScheduleSimulation::makespan() const {
  double latest = 0;
  for (const Stage& stage : stages_) latest = std::max(latest, stage.clock);
  return latest;
}

double ScheduleSimulation::busy() const {
  double sum = 0;
  for (const Stage& stage : stages_) sum += stage.busy;
  return sum;
}

double ScheduleSimulation::cost_of(int stage, const PipelineStep& step) const {
  const auto part = static_cast<std::size_t>(schedule_.layout.part(stage, step.chunk));
  const StepCosts costs = costs_.parts.empty() ? StepCosts() : costs_.parts[part];
  if (step.kind == Kind::kForward) return costs.forward;
  return step.kind == Kind::kBackwardInput ? costs.backward_input : costs.backward_weight;
}

double& ScheduleSimulation::arrival(Payload payload, int micro_batch, int producer) {
  const int kind = payload == Payload::kActivation ? 0 : 1;
  return arrivals_[static_cast<std::size_t>(
      (std::int64_t{kind} * schedule_.micro_batches + micro_batch) * schedule_.layout.parts() +
      producer)];
}

double ScheduleSimulation::input_arrives(int stage, const PipelineStep& step) {
  const int part = schedule_.layout.part(stage, step.chunk);
  if (step.kind == Kind::kForward && part > 0) {
    return arrival(Payload::kActivation, step.micro_batch, part - 1);
  }
  if (step.kind == Kind::kBackwardInput && part + 1 < schedule_.layout.parts()) {
    return arrival(Payload::kGradient, step.micro_batch, part + 1);
  }
  return 0;
}

bool ScheduleSimulation::advance(int index) {
  Stage& stage = stages_[static_cast<std::size_t>(index)];
  if (stage.position == steps_of(index).size()) return false;
  const PipelineStep& step = steps_of(index)[stage.position];
  if (step.kind != Kind::kExchange) {
    compute(index, step, stage);
    return true;
  }
  if (!stage.posted) {
    post(index, step, stage);
    return !problem_;
  }
  return finish(stage);
}

void ScheduleSimulation::compute(int index, const PipelineStep& step, Stage& stage) {
  const double cost = cost_of(index, step);
  stage.clock = std::max(stage.clock, input_arrives(index, step)) + cost;
  stage.busy += cost;
  ++stage.position;
}

void ScheduleSimulation::post(int index, const PipelineStep& step, Stage& stage) {
  stage.posted = true;
  const double begin = costs_.in_order ? std::max(stage.clock, stage.exchanged) : stage.clock;
  for (const PipelineMessage& message : step.sends) {
    Lane& lane = lanes_[{index, message.peer}];
    stage.pending.push_back({index, message.peer, lane.sends.size(), true, message});
    lane.sends.push_back({message, begin});
  }
  for (const PipelineMessage& message : step.receives) {
    Lane& lane = lanes_[{message.peer, index}];
    stage.pending.push_back({message.peer, index, lane.receives.size(), false, message});
    PipelineMessage as_sent = message;
    as_sent.peer = index;
    lane.receives.push_back({as_sent, begin});
  }
  for (const Pending& transfer : stage.pending) {
    if (!problem_) problem_ = mismatch(transfer);
  }
}

bool ScheduleSimulation::met(const Pending& transfer) const {
  const Lane& lane = lanes_.at({transfer.from, transfer.to});
  return transfer.index < std::min(lane.sends.size(), lane.receives.size());
}

ScheduleSimulation::Problem ScheduleSimulation::mismatch(const Pending& transfer) const {
  if (!met(transfer)) return {};
  const Lane& lane = lanes_.at({transfer.from, transfer.to});
  const PipelineMessage& sent = lane.sends[transfer.index].message;
  const PipelineMessage& expected = lane.receives[transfer.index].message;
  if (sent == expected) return {};
  return fmt::format("lane {} -> {}: stage {} sends {} where stage {} expects {}", transfer.from,
                     transfer.to, transfer.from, name_of(sent, schedule_.layout.chunks),
                     transfer.to, name_of(expected, schedule_.layout.chunks));
}

bool ScheduleSimulation::finish(Stage& stage) {
  for (const Pending& transfer : stage.pending) {
    if (!met(transfer)) return false;
  }
  const auto end_of = [&](const Pending& transfer) {
    const Lane& lane = lanes_.at({transfer.from, transfer.to});
    return std::max(lane.sends[transfer.index].time, lane.receives[transfer.index].time) +
           costs_.exchange;
  };
  if (costs_.in_order) {
    for (const Pending& transfer : stage.pending) {
      stage.exchanged = std::max(stage.exchanged, end_of(transfer));
    }
  }
  for (const Pending& transfer : stage.pending) {
    if (transfer.is_send) continue;
    const auto& [payload, micro_batch, chunk, peer] = transfer.message;
    arrival(payload, micro_batch, schedule_.layout.part(peer, chunk)) =
        costs_.in_order ? stage.exchanged : end_of(transfer);
  }
  stage.pending.clear();
  stage.posted = false;
  ++stage.position;
  return true;
}

ScheduleSimulation::Problem ScheduleSimulation::deadlock() const {
  std::string waits;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    for (const Pending& transfer : stages_[s].pending) {
      if (met(transfer)) continue;
      waits +=
          fmt::format("{} stage {} (step {}) waits for stage {} to {} {}", waits.empty() ? "" : ";",
                      s, stages_[s].position, transfer.is_send ? transfer.to : transfer.from,
                      transfer.is_send ? "receive" : "send",
                      name_of(transfer.message, schedule_.layout.chunks));
      break;
    }
  }
  if (waits.empty()) return {};
  return "deadlock:" + waits;
}

}  // namespace trireme::parallel
