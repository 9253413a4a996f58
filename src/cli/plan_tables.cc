#include "cli/plan_tables.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/setup/run_layouts.h"

#include "cli/memory_table.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kNamedOperations = 12;

double exposed_share(const plan::StepForecast& step) {
  double sum = 0.0;
  for (const auto& [name, share] : step.exposed()) sum += share;
  return sum;
}

double mfu_of(const plan::StepForecast& step, const PlanScale& scale) {
  return scale.peak > 0.0 ? scale.model_flops / (step.seconds * scale.peak) : 0.0;
}

double node_hours(const plan::StepForecast& step, const PlanScale& scale) {
  return step.seconds / 3600.0 * scale.nodes * 1e9 / scale.units_of_step;
}

std::string shards_text(const plan::Layout& layout) {
  if (layout.shard_stage == 0) return "0";
  const int group = layout.grid[Axis::kShard];
  if (group == layout.grid.extent(kDataAxes)) return fmt::format("{}", layout.shard_stage);
  return fmt::format("{} of {}", layout.shard_stage, group);
}

std::string schedule_text(const plan::Layout& layout) {
  if (layout.grid[Axis::kPipeline] == 1) return "-";
  if (layout.schedule == "interleaved") return fmt::format("interleaved {}", layout.chunks);
  return layout.schedule;
}

std::string recompute_text(const plan::Layout& layout) {
  if (!layout.recomputed_blocks) return layout.recompute;
  return fmt::format("{} {}", layout.recompute, *layout.recomputed_blocks);
}

std::string gib(double bytes) {
  return fmt::format("{:.1f}", bytes / (1024.0 * 1024.0 * 1024.0));
}

Json json_of_times(const plan::RankTimes& times) {
  Json exposed = Json::object(), late = Json::object();
  for (const auto& [name, seconds] : times.exposed) exposed[name] = seconds;
  for (const auto& [name, seconds] : times.late) late[name] = seconds;
  return Json::object({{"compute_s", times.compute},
                       {"slowed_s", times.slowed},
                       {"exposed_s", std::move(exposed)},
                       {"late_s", std::move(late)},
                       {"end_s", times.end}});
}

}  // namespace

void print_plan_head(const PlanScale& scale) {
  print_line(fmt::format(
      "{:>5} {:<12} {:<8} {:>5} {:<13} {:<9} {:>3} {:>10} {:>17} {:>11} {:>5} "
      "{:>7} {:>7} {:>7} {:>10}",
      "nodes", "grid (dxpxt)", "shards", "micro", "schedule", "recompute", "seq", "step",
      "9 of 10 within", scale.units + "/s", "MFU %", "GiB", "waits %", "idle %", "node-h/1e9"));
}

void print_plan(const PlannedNodes& planned) {
  for (const plan::PlannedLayout& one : planned.found.best) {
    const plan::Layout& layout = one.layout;
    const plan::StepForecast& step = one.step;
    print_line(fmt::format(
        "{:>5} {:<12} {:<8} {:>5} {:<13} {:<9} {:>3} {:>10} {:>17} {:>11} {:>5.1f} {:>7} {:>7.1f} "
        "{:>7.1f} {:>10}",
        planned.scale.nodes, layout.grid.extents_text("x"), shards_text(layout), layout.micro,
        schedule_text(layout), recompute_text(layout), layout.sequence_parallel ? "yes" : "-",
        time_text(step.seconds), time_text(step.low) + "-" + time_text(step.high),
        short_number(planned.scale.units_of_step / step.seconds),
        100.0 * mfu_of(step, planned.scale), gib(one.bytes()), 100.0 * exposed_share(step),
        100.0 * step.bubble(), short_number(node_hours(step, planned.scale))));
  }
}

void print_explanation(const plan::PlannedLayout& planned, const PlanScale& scale) {
  print_line(layout_flags(planned.layout));
  print_line(fmt::format("a step takes {} (nine of ten within {} to {}), {} {}/s",
                         time_text(planned.step.seconds), time_text(planned.step.low),
                         time_text(planned.step.high),
                         short_number(scale.units_of_step / planned.step.seconds), scale.units));
  const GridShape& grid = planned.layout.grid;
  print_line("memory in MiB, when most is held");
  print_memory(grid, planned.memory);
  print_line("time, ms of a step, of the first tensor rank of each stage:");
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
  for (const plan::StageForecast& stage : planned.step.stages) {
    std::string waits;
    if (stage.times.slowed > 0.0) {
      waits += fmt::format(", {} more beside communication", ms(stage.times.slowed));
    }
    for (const auto& [name, seconds] : stage.times.exposed) {
      if (seconds > 0.0) waits += fmt::format(", {} waits for {}", ms(seconds), name);
    }
    print_line(fmt::format("  stage {}: {} computes{}, {} waits for others",
                           grid.index(stage.place, Axis::kPipeline), ms(stage.times.compute), waits,
                           ms(stage.times.all_late())));
  }
  const plan::StageForecast& busiest = planned.step.busiest();
  print_line(fmt::format("operations of stage {}, which computes most:",
                         grid.index(busiest.place, Axis::kPipeline)));
  std::vector<std::pair<std::string, plan::StageForecast::Operations>> sorted(
      busiest.operations.begin(), busiest.operations.end());
  std::ranges::stable_sort(sorted, std::greater(),
                           [](const auto& one) { return one.second.seconds; });
  if (sorted.size() > kNamedOperations + 1) {
    plan::StageForecast::Operations others;
    for (std::size_t i = kNamedOperations; i < sorted.size(); ++i) others += sorted[i].second;
    const std::size_t left_out = sorted.size() - kNamedOperations;
    sorted.resize(kNamedOperations);
    sorted.emplace_back(fmt::format("{} others", left_out), others);
  }
  for (const auto& [name, sum] : sorted) {
    print_line(fmt::format("  {:<32} {:>12} ms {:>9} calls {:>10}FLOP {:>10}B", name,
                           ms(sum.seconds), short_number(sum.calls), short_number(sum.flops),
                           short_number(sum.bytes)));
  }
  for (const auto& [key, sum] : busiest.communication) {
    print_line(fmt::format("  {:<32} {:>12} ms {:>9} calls {:>14} {:>10}B",
                           key.second + " of " + key.first, ms(sum.seconds),
                           short_number(sum.calls), "", short_number(sum.bytes)));
  }
}

Json json_of_layout(const plan::PlannedLayout& planned, const PlanScale& scale) {
  const plan::Layout& layout = planned.layout;
  const plan::StepForecast& step = planned.step;
  Json grid = Json::object();
  for (const GridDimension& dimension : kGridDimensions) {
    grid[dimension.name] = layout.grid.extent(dimension.axes);
  }
  Json stages = Json::array();
  for (const plan::StageForecast& stage : step.stages) {
    Json one = json_of_times(stage.times);
    Json operations = Json::object();
    for (const auto& [name, sum] : stage.operations) {
      operations[name] = Json::object({{"seconds", sum.seconds},
                                       {"calls", sum.calls},
                                       {"flops", sum.flops},
                                       {"bytes", sum.bytes}});
    }
    Json communication = Json::array();
    for (const auto& [key, sum] : stage.communication) {
      communication.push_back(Json::object({{"communicator", key.first},
                                            {"operation", key.second},
                                            {"seconds", sum.seconds},
                                            {"calls", sum.calls},
                                            {"bytes", sum.bytes}}));
    }
    one["operations"] = std::move(operations);
    one["communication"] = std::move(communication);
    stages.push_back(std::move(one));
  }
  return Json::object(
      {{"flags", layout_flags(layout)},
       {"grid", std::move(grid)},
       {"shard_stage", layout.shard_stage},
       {"shard_group", layout.grid[Axis::kShard]},
       {"micro", layout.micro},
       {"schedule", layout.schedule},
       {"chunks", layout.chunks},
       {"recompute", layout.recompute},
       {"recompute_blocks", layout.recomputed_blocks ? Json(*layout.recomputed_blocks) : Json()},
       {"sequence_parallel", layout.sequence_parallel},
       {"step_s", step.seconds},
       {"low_s", step.low},
       {"high_s", step.high},
       {"units_per_s", scale.units_of_step / step.seconds},
       {"units", scale.units},
       {"mfu", mfu_of(step, scale)},
       {"bytes", planned.bytes()},
       {"composed",
        Json::object({{"step_s", planned.estimate}, {"bytes", planned.estimated_bytes}})},
       {"exposed", exposed_share(step)},
       {"idle", step.bubble()},
       {"node_hours_per_1e9", node_hours(step, scale)},
       {"stages", std::move(stages)}});
}

Json json_of_plan(const PlannedNodes& planned) {
  Json layouts = Json::array();
  for (const plan::PlannedLayout& one : planned.found.best) {
    layouts.push_back(json_of_layout(one, planned.scale));
  }
  return Json::object({{"nodes", planned.scale.nodes},
                       {"tried", planned.found.tried},
                       {"too_large", planned.found.too_large},
                       {"layouts", std::move(layouts)}});
}

}  // namespace trireme::cli
