// What trireme topo probe measures of collectives.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/ops/context.h"
#include "trireme/study/bench.h"
#include "trireme/topology/planner.h"

#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr std::array<std::int64_t, 5> kSizes = {1 << 10, 32 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr int kFewest = 3;          // repeats of those that are not far behind
constexpr double kAtASize = 6.0;    // seconds that are predicted for these and a run of the others
constexpr int kRepeats = 200;       // of short messages, whose times scatter
constexpr double kRepeating = 0.5;  // seconds at a size while there is time
constexpr double kInAll = 90.0;     // seconds, should predictions be far too low
constexpr double kFarBehind = 1.3;  // times the fastest: not repeated
constexpr double kBehind = 4.0;     // who is predicted to take so many times the least is left out

using Cell = std::pair<Collective, std::int64_t>;

// The algorithms to time at each size, with their predicted seconds; and the one that is chosen.
struct Wanted {
  std::map<std::string, double> predicted;
  std::string chosen;
};

std::map<Cell, Wanted> choose_cells(const JobNetwork& job) {
  PredictedNetwork network(job.blocks, job.rates);
  Predictor& predictor = network.predictor;
  const AlgorithmTable table = make_table(predictor, /*any_order=*/false);
  std::map<Cell, Wanted> cells;
  for (const Collective op : kCollectives) {
    if (op == Collective::kExchange) continue;
    for (const std::int64_t size : kSizes) {
      const auto bytes = static_cast<std::size_t>(size);
      Wanted wanted;
      double spent = 0.0, least = 0.0;
      for (const Candidate& one : candidates(predictor, op, bytes, /*any_order=*/true)) {
        const double seconds = one.prediction.seconds;
        if (least == 0.0) {
          least = seconds;
          spent = kFewest * least;
        }
        spent += seconds;
        if (seconds > kBehind * least || spent > kAtASize) break;  // all others take longer
        wanted.predicted.emplace(name_of(one.algorithm), seconds);
      }
      wanted.chosen = name_of(table.choose(op, bytes, predictor.ranks()));
      if (!wanted.predicted.empty()) cells.emplace(Cell(op, size), std::move(wanted));
    }
  }
  return cells;
}

// Collective. Rank 0 decides, since a number that differs in its last bit must not part the ranks.
std::map<Cell, Wanted> agree_on_cells(Runtime& runtime, const JobNetwork& job) {
  const Json lines = Json::parse(runtime.world().read_once([&] {
    Json all = Json::array();
    for (const auto& [cell, wanted] : choose_cells(job)) {
      Json predicted = Json::array();
      for (const auto& [name, seconds] : wanted.predicted) {
        predicted.push_back(Json::array({name, seconds}));
      }
      all.push_back(Json::array(
          {name_of(cell.first), std::int64_t{cell.second}, wanted.chosen, std::move(predicted)}));
    }
    return all.dump();
  }));
  std::map<Cell, Wanted> cells;
  for (const Json& line : lines.items()) {
    Wanted wanted{.predicted = {}, .chosen = line.at(2).text()};
    for (const Json& one : line.at(3).items()) {
      wanted.predicted.emplace(one.at(std::size_t{0}).text(), one.at(1).number());
    }
    const auto op = collective_named(line.at(std::size_t{0}).text());
    cells.emplace(Cell(op.value(), line.at(1).integer()), std::move(wanted));
  }
  return cells;
}

std::vector<bench::CommCarrier> carriers_to_time(const std::map<Cell, Wanted>& cells) {
  std::vector<bench::CommCarrier> carriers;
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string name(name_of(algorithm));
    const bool is_wanted = std::ranges::any_of(
        cells, [&](const auto& cell) { return cell.second.predicted.contains(name); });
    if (is_wanted) carriers.push_back({.name = name, .forced = algorithm});
  }
  return carriers;
}

// The algorithm that is chosen, and the one that was the fastest.
void print_timed_cell(const Cell& cell, const Wanted& wanted,
                      const std::map<std::string, double>& times) {
  const auto chosen = times.find(wanted.chosen);
  const auto fastest =
      std::ranges::min_element(times, {}, [](const auto& time) { return time.second; });
  if (chosen == times.end()) return;
  print_line(fmt::format(
      "{:<16}{:>10}  {:<12}{:>14}{:>14}  {}", name_of(cell.first),
      size_text(static_cast<std::uint64_t>(cell.second)), wanted.chosen,
      microseconds_text(wanted.predicted.at(wanted.chosen)), microseconds_text(chosen->second),
      fastest == chosen ? ""
                        : fmt::format("{} in {}", fastest->first, time_text(fastest->second))));
}

}  // namespace

std::vector<MeasuredCollective> time_collectives(Runtime& runtime, const StoredRates& stored) {
  const JobNetwork job = job_network(stored, "the probe", runtime.hosts());
  const std::map<Cell, Wanted> cells = agree_on_cells(runtime, job);
  bench::CommOptions options;
  options.sizes.assign(kSizes.begin(), kSizes.end());
  options.warmup = 0;
  options.repeats = kRepeats;
  options.seconds = kRepeating;
  options.fewest = kFewest;
  options.drop = kFarBehind;
  options.carriers = carriers_to_time(cells);
  options.planner = make_planner(job, /*any_order=*/false);
  if (options.carriers.empty()) return {};
  const Stopwatch watch;
  double spent = 0.0;  // seconds, the same on all ranks
  options.wanted = [&](Collective op, std::int64_t bytes, const bench::CommCarrier& carrier) {
    const auto cell = cells.find({op, bytes});
    return spent < kInAll && cell != cells.end() && cell->second.predicted.contains(carrier.name);
  };
  std::vector<MeasuredCollective> measured;
  ops::Context ctx = ops::make_cpu_context(1);
  bench::measure_comm(runtime, ctx, options, [&](const bench::CommRow& row) {
    TRIREME_CHECK(row.wrong == 0, fmt::format("{} by {} left {} wrong elements", name_of(row.op),
                                              row.carrier, row.wrong));
    spent = runtime.world().all_reduce_host(watch.seconds(), ReduceOp::kMax);
    measured.push_back({.collective = row.op,
                        .algorithm = row.carrier,
                        .bytes = static_cast<std::size_t>(row.bytes),
                        .ranks = runtime.size(),
                        .seconds = row.seconds});
  });
  if (runtime.rank() != 0) return measured;
  print_line(fmt::format("{:<16}{:>10}  {:<12}{:>14}{:>14}  {}", "collective", "bytes", "chosen",
                         "predicted, us", "measured, us", "fastest"));
  const std::size_t unit = 4 * static_cast<std::size_t>(runtime.size());
  for (const auto& [cell, wanted] : cells) {
    std::map<std::string, double> times;
    for (const MeasuredCollective& one : measured) {
      const auto size = static_cast<std::size_t>(cell.second);
      if (one.collective == cell.first &&
          one.bytes == std::max(size / unit, std::size_t{1}) * unit) {
        times.emplace(one.algorithm, one.seconds);
      }
    }
    print_timed_cell(cell, wanted, times);
  }
  return measured;
}

}  // namespace trireme::cli
