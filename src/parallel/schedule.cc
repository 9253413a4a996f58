#include "trireme/parallel/schedule.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "compute_steps.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;

// What grid.schedule's names stand for.
struct NamedSchedule {
  const char* name;
  int chunks;  // 0: any number
  PipelineLayout::Order order;
  PipelineSchedule (*make)(const PipelineLayout& layout, int micro_batches);
  int (*live)(const PipelineLayout& layout, int stage, int micro_batches);
};

int live_in_interleaved(const PipelineLayout& layout, int stage, int micro_batches) {
  return static_cast<int>(
      std::min(interleaved_warmup(layout, stage) + 1, std::int64_t{micro_batches} * layout.chunks));
}

constexpr auto kLoop = PipelineLayout::Order::kLoop, kV = PipelineLayout::Order::kV;
using Layout = const PipelineLayout&;

const NamedSchedule kSchedules[] = {
    // Backward passes begin after all forward passes.
    {"gpipe", 1, kLoop, [](Layout l, int m) { return gpipe_schedule(l.stages, m); },
     [](Layout, int, int m) { return m; }},
    // One micro-batch for each stage from here to the last.
    {"1f1b", 1, kLoop, [](Layout l, int m) { return one_f_one_b_schedule(l.stages, m); },
     [](Layout l, int stage, int m) { return std::min(m, l.stages - stage); }},
    {"interleaved", 0, kLoop,
     [](Layout l, int m) { return interleaved_schedule(l.stages, l.chunks, m); },
     live_in_interleaved},
    {"zb-h1", 1, kLoop, [](Layout l, int m) { return zb_h1_schedule(l.stages, m); },
     [](Layout l, int, int m) { return std::min(m, l.stages); }},
    {"zb-v", 2, kV, [](Layout l, int m) { return zb_v_schedule(l.stages, m); },
     [](Layout l, int, int m) { return 2 * std::min(m, l.stages); }},
};

const NamedSchedule& find_schedule(const std::string& name) {
  for (const NamedSchedule& schedule : kSchedules) {
    if (schedule.name == name) return schedule;
  }
  throw ConfigError(fmt::format("there is no pipeline schedule '{}': it is one of {}", name,
                                fmt::join(schedule_names(), ", ")));
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

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedSchedule& schedule : kSchedules) all.emplace_back(schedule.name);
    return all;
  }();
  return names;
}

PipelineLayout schedule_layout(const std::string& name, int stages, std::optional<int> chunks) {
  const NamedSchedule& schedule = find_schedule(name);
  constexpr int kUsual = 2;
  if (schedule.chunks == 0) return {stages, chunks.value_or(kUsual), schedule.order};
  if (chunks && *chunks != schedule.chunks) {
    throw ConfigError(fmt::format(
        "grid.chunks is {}, but grid.schedule {} has {} on each stage: leave grid.chunks out, or "
        "use grid.schedule interleaved",
        *chunks, name, schedule.chunks == 1 ? "one chunk" : "two chunks"));
  }
  return {stages, schedule.chunks, schedule.order};
}

bool takes_micro_batches(const std::string& name, const PipelineLayout& layout, int micro_batches) {
  return find_schedule(name).chunks != 0 || micro_batches % layout.stages == 0;
}

PipelineSchedule make_pipeline_schedule(const std::string& name, const PipelineLayout& layout,
                                        int micro_batches, int first_backward) {
  const NamedSchedule& schedule = find_schedule(name);
  TRIREME_CHECK(layout == schedule_layout(name, layout.stages, layout.chunks),
                fmt::format("a layout of another schedule than {}", name));
  return without_backward_before(first_backward, schedule.make(layout, micro_batches));
}

PipelineSchedule without_backward_before(int first_backward, PipelineSchedule schedule) {
  const PipelineLayout& layout = schedule.layout;
  TRIREME_CHECK(0 <= first_backward && first_backward < layout.parts(),
                fmt::format("a backward from part {} of {} on", first_backward, layout.parts()));
  schedule.first_backward = first_backward;
  if (first_backward == 0) return schedule;
  const auto is_left_out = [&](int stage, const PipelineStep& step) {
    if (step.kind == Kind::kExchange) return step.sends.empty() && step.receives.empty();
    return step.kind != Kind::kForward && layout.part(stage, step.chunk) < first_backward;
  };
  // What a part makes is for the part before it.
  const auto leave_out = [&](std::vector<PipelineMessage>& messages, auto producer) {
    std::erase_if(messages, [&](const PipelineMessage& message) {
      return message.payload == PipelineMessage::Payload::kGradient &&
             layout.part(producer(message), message.chunk) <= first_backward;
    });
  };
  for (int stage = 0; stage < layout.stages; ++stage) {
    std::vector<PipelineStep>& steps = schedule.steps[static_cast<std::size_t>(stage)];
    for (PipelineStep& step : steps) {
      leave_out(step.sends, [&](const PipelineMessage&) { return stage; });
      leave_out(step.receives, [](const PipelineMessage& message) { return message.peer; });
    }
    std::erase_if(steps, [&](const PipelineStep& step) { return is_left_out(stage, step); });
  }
  return schedule;
}

std::vector<int> live_micro_batches(const std::string& name, const PipelineLayout& layout,
                                    int micro_batches) {
  const NamedSchedule& schedule = find_schedule(name);
  std::vector<int> live;
  for (int stage = 0; stage < layout.stages; ++stage) {
    live.push_back(schedule.live(layout, stage, micro_batches));
  }
  return live;
}

}  // namespace trireme::parallel
