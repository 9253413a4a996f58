#include "trireme/parallel/schedule.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "compute_steps.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;

// The sends and receives that a computation needs, from the model's order of runs.
class Traffic {
 public:
  explicit Traffic(const PipelineSchedule& schedule)
      : stages_(schedule.stages), runs_(schedule.stages * schedule.chunks) {}

  void add_outputs(int stage, const PipelineStep& step, PipelineStep& exchange) const {
    const int run = step.chunk * stages_ + stage;
    if (step.kind == Kind::kForward && leaves(run, run + 1)) {
      exchange.sends.push_back(
          {Payload::kActivation, step.micro_batch, step.chunk, (run + 1) % stages_});
    }
    if (step.kind == Kind::kBackwardInput && leaves(run, run - 1)) {
      exchange.sends.push_back(
          {Payload::kGradient, step.micro_batch, step.chunk, (run - 1) % stages_});
    }
  }

  void add_inputs(int stage, const PipelineStep& step, PipelineStep& exchange) const {
    const int run = step.chunk * stages_ + stage;
    if (step.kind == Kind::kForward && leaves(run, run - 1)) {
      exchange.receives.push_back(received(Payload::kActivation, step.micro_batch, run - 1));
    }
    if (step.kind == Kind::kBackwardInput && leaves(run, run + 1)) {
      exchange.receives.push_back(received(Payload::kGradient, step.micro_batch, run + 1));
    }
  }

 private:
  // Whether run `other` exists, on another stage than `run`.
  bool leaves(int run, int other) const {
    return other >= 0 && other < runs_ && other % stages_ != run % stages_;
  }
  PipelineMessage received(Payload payload, int micro_batch, int producer) const {
    return {payload, micro_batch, producer / stages_, producer % stages_};
  }

  int stages_;
  int runs_;
};

[[noreturn]] void refuse_schedule(const std::string& name) {
  throw ConfigError(
      fmt::format("there is no pipeline schedule '{}': it is one of gpipe, 1f1b", name));
}

}  // namespace

bool is_plain_backward(const PipelineStep& first, const PipelineStep& second) {
  return first.kind == Kind::kBackwardInput && second.kind == Kind::kBackwardWeight &&
         first.micro_batch == second.micro_batch && first.chunk == second.chunk;
}

PipelineSchedule empty_schedule(const char* name, int stages, int micro_batches) {
  TRIREME_CHECK(
      stages >= 1 && micro_batches >= 1,
      fmt::format("a pipeline schedule of {} stages and {} micro-batches", stages, micro_batches));
  return {name, stages, micro_batches, 1,
          std::vector<PipelineSteps>(static_cast<std::size_t>(stages))};
}

void insert_exchanges(PipelineSchedule& schedule) {
  const Traffic traffic(schedule);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    auto& steps = schedule.steps[static_cast<std::size_t>(stage)];
    std::vector<PipelineStep> result;
    PipelineStep exchange{.kind = Kind::kExchange, .sends = {}, .receives = {}};
    const auto flush = [&] {
      if (exchange.sends.empty() && exchange.receives.empty()) return;
      result.push_back(std::exchange(
          exchange, PipelineStep{.kind = Kind::kExchange, .sends = {}, .receives = {}}));
    };
    for (PipelineStep& step : steps) {
      if (result.empty() || !is_plain_backward(result.back(), step)) {
        traffic.add_inputs(stage, step, exchange);
        flush();
      }
      traffic.add_outputs(stage, step, exchange);
      result.push_back(std::move(step));
    }
    flush();
    steps = std::move(result);
  }
}

PipelineSchedule make_pipeline_schedule(const std::string& name, int stages, int micro_batches) {
  if (name == "gpipe") return gpipe_schedule(stages, micro_batches);
  if (name == "1f1b") return one_f_one_b_schedule(stages, micro_batches);
  refuse_schedule(name);
}

std::vector<int> live_micro_batches(const std::string& name, int stages, int micro_batches) {
  std::vector<int> live;
  for (int stage = 0; stage < stages; ++stage) {
    // GPipe's backward passes begin after all forward passes. 1F1B holds one micro-batch for each
    // stage from here to the last.
    if (name == "gpipe") {
      live.push_back(micro_batches);
    } else if (name == "1f1b") {
      live.push_back(std::min(micro_batches, stages - stage));
    } else {
      refuse_schedule(name);
    }
  }
  return live;
}

}  // namespace trireme::parallel
