#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/study/bench.h"
#include "trireme/study/step_parts.h"

namespace trireme::bench {
namespace {

Json json_of(const Roof& roof) {
  Json all = Json::object({{"flops", roof.flops}, {"bandwidth", roof.bandwidth}});
  if (roof.sustained > 0.0) all["sustained_flops"] = roof.sustained;
  return all;
}

// `roof`: of one rank.
Json json_of(const StepParts& parts, const Roof& roof) {
  Json rows = Json::array();
  for (const StepPart& part : parts.parts) {
    Json row =
        Json::object({{"name", part.name}, {"calls", part.calls}, {"seconds", part.seconds}});
    if (part.flops > 0.0) row["flop"] = part.flops;
    if (part.bytes > 0.0) row["bytes"] = part.bytes;
    if (const auto floor = part.floor(roof)) row["floor_seconds"] = *floor;
    rows.push_back(std::move(row));
  }
  Json all = Json::object({{"step_seconds", parts.step}, {"sum_seconds", parts.sum()}});
  if (parts.gaps) all["gap_seconds"] = *parts.gaps;
  if (parts.lost > 0) all["lost_records"] = parts.lost;
  all["rows"] = std::move(rows);
  return all;
}

Json json_of(const GpuState& state) {
  if (!state.why_not.empty()) return Json::object({{"why_not", state.why_not}});
  Json all = Json::object(
      {{"slowed_by_heat", state.slowed_by_heat}, {"slowed_by_power", state.slowed_by_power}});
  if (state.clock) all["clock_mhz"] = *state.clock;
  if (state.max_clock) all["max_clock_mhz"] = *state.max_clock;
  if (state.power) all["watts"] = *state.power;
  return all;
}

// What took the step apart, where that was asked for.
void add_parts(Json& all, const StepTimes& times, const Roof& roof) {
  if (times.operations) all["operations"] = json_of(*times.operations, roof);
  if (times.kernels.parts) all["kernels"] = json_of(*times.kernels.parts, roof);
  if (!times.kernels.why_not.empty()) all["why_no_kernels"] = times.kernels.why_not;
  if (times.gpu_state) all["gpu"] = json_of(*times.gpu_state);
}

}  // namespace

std::string comm_json(std::span<const CommRow> rows, int ranks) {
  Json list = Json::array();
  for (const CommRow& row : rows) {
    Json one =
        Json::object({{"op", name_of(row.op)},
                      {"carrier", row.carrier},
                      {"bytes", row.bytes},
                      {"seconds", row.seconds},
                      {"repeats", row.repeats},
                      {"algorithm_bandwidth", row.algorithm_bandwidth()},
                      {"bus_bandwidth", row.algorithm_bandwidth() * bus_factor(row.op, ranks)},
                      {"wrong", row.wrong}});
    if (row.algorithm) one["algorithm"] = name_of(*row.algorithm);
    if (row.predicted > 0.0) one["predicted_seconds"] = row.predicted;
    list.push_back(std::move(one));
  }
  return Json::object({{"bench", "comm"}, {"ranks", ranks}, {"rows", list}}).dump(1) + "\n";
}

std::string ops_json(std::span<const OpRow> rows, const Roof& roof, int threads) {
  Json list = Json::array();
  for (const OpRow& row : rows) {
    list.push_back(Json::object({{"op", row.op},
                                 {"shape", row.shape},
                                 {"seconds", row.seconds},
                                 {"flop", row.flops},
                                 {"bytes", row.bytes},
                                 {"roof_share", roof.floor(row.flops, row.bytes) / row.seconds}}));
  }
  const Json all = Json::object(
      {{"bench", "ops"}, {"threads", threads}, {"roof", json_of(roof)}, {"rows", list}});
  return all.dump(1) + "\n";
}

std::string step_json(const StepTimes& times, const Roof& roof, const GridShape& grid) {
  Json memory = Json::object({{"at_once", times.memory_at_once}, {"resident", times.resident}});
  for (std::size_t i = 0; i < kMemoryUses; ++i) {
    memory[name_of(static_cast<MemoryUse>(i))] = times.memory[i];
  }
  Json extents = Json::array();
  for (const GridDimension& one : kGridDimensions) extents.push_back(grid.extent(one.axes));
  Json all = Json::object({{"bench", "step"},
                           {"grid", std::move(extents)},
                           {"roof", json_of(roof)},
                           {"step_seconds", times.step},
                           {fmt::format("{}_per_second", times.unit.many), times.units_per_second},
                           {"flops", times.flops},
                           {"mfu", times.flops / roof.flops},
                           {"loss", times.loss},
                           {"memory_bytes", memory},
                           {"forward_seconds", times.forward},
                           {"backward_seconds", times.backward},
                           {"communication_seconds", times.communication},
                           {"optimizer_seconds", times.optimizer},
                           {"other_seconds", times.other}});
  add_parts(all, times, roof.of_one(grid.ranks()));
  return all.dump(1) + "\n";
}

}  // namespace trireme::bench
