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

// The sends and receives that a computation needs, from the order of the model's parts.
class Traffic {
 public:
  Traffic(const PipelineLayout& layout, int stage) : layout_(layout), stage_(stage) {}

  void add_outputs(const PipelineStep& step, PipelineStep& exchange) const {
    const int part = layout_.part(stage_, step.chunk);
    if (step.kind == Kind::kForward && elsewhere(part + 1)) {
      exchange.sends.push_back(sent(Payload::kActivation, step, part + 1));
    }
    if (step.kind == Kind::kBackwardInput && elsewhere(part - 1)) {
      exchange.sends.push_back(sent(Payload::kGradient, step, part - 1));
    }
  }

  void add_inputs(const PipelineStep& step, PipelineStep& exchange) const {
    const int part = layout_.part(stage_, step.chunk);
    if (step.kind == Kind::kForward && elsewhere(part - 1)) {
      exchange.receives.push_back(received(Payload::kActivation, step, part - 1));
    }
    if (step.kind == Kind::kBackwardInput && elsewhere(part + 1)) {
      exchange.receives.push_back(received(Payload::kGradient, step, part + 1));
    }
  }

 private:
  // Whether the part exists, on another stage.
  bool elsewhere(int part) const {
    return part >= 0 && part < layout_.parts() && layout_.stage_of(part) != stage_;
  }
  PipelineMessage sent(Payload payload, const PipelineStep& step, int consumer) const {
    return {payload, step.micro_batch, step.chunk, layout_.stage_of(consumer)};
  }
  PipelineMessage received(Payload payload, const PipelineStep& step, int producer) const {
    return {payload, step.micro_batch, layout_.chunk_of(producer), layout_.stage_of(producer)};
  }

  PipelineLayout layout_;
  int stage_;
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

PipelineSchedule empty_schedule(const char* name, const PipelineLayout& layout, int micro_batches) {
  TRIREME_CHECK(layout.stages >= 1 && layout.chunks >= 1 && micro_batches >= 1,
                fmt::format("a pipeline schedule of {} stages, {} chunks and {} micro-batches",
                            layout.stages, layout.chunks, micro_batches));
  return {name, layout, micro_batches,
          std::vector<PipelineSteps>(static_cast<std::size_t>(layout.stages))};
}

void insert_exchanges(PipelineSchedule& schedule) {
  for (int stage = 0; stage < schedule.layout.stages; ++stage) {
    const Traffic traffic(schedule.layout, stage);
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
        traffic.add_inputs(step, exchange);
        flush();
      }
      traffic.add_outputs(step, exchange);
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
