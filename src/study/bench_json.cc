#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/study/bench.h"

namespace trireme::bench {
namespace {

Json json_of(const Roof& roof) {
  return Json::object({{"flops", roof.flops}, {"bandwidth", roof.bandwidth}});
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
  const Json all =
      Json::object({{"bench", "step"},
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
  return all.dump(1) + "\n";
}

}  // namespace trireme::bench
