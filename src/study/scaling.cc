#include "trireme/study/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

// The assumed error of an efficiency that comes from a single repeat, whose spread is unknown.
constexpr double kUnknownSpread = 0.05;

// Returns the half width of a quotient of independent estimates, to first order: the squares of the
// relative half widths add up.
std::optional<double> half_width_of_quotient(double quotient, const Estimate& over,
                                             const Estimate& under) {
  if (!over.half_width || !under.half_width) return {};
  const double a = *over.half_width / over.mean, b = *under.half_width / under.mean;
  return std::abs(quotient) * std::sqrt(a * a + b * b);
}

// What was measured on one number of nodes.
struct Repeats {
  NodeCount count;
  std::vector<double> rates, bandwidths;
  std::vector<TimeShares> shares;

  explicit Repeats(const Point& point) {
    count.nodes = point.nodes;
    count.ranks = point.ranks;
    count.grid = point.grid;
    count.processors = std::numeric_limits<double>::max();
  }
  void add(const PointResult& result) {
    const Measurement& measured = result.measured;
    count.processors =
        std::min(count.processors, result.conditions ? result.conditions->processors : 0.0);
    rates.push_back(measured.units_per_second);
    bandwidths.push_back(measured.memory_bandwidth);
    shares.push_back(shares_of(TimeSpent{measured.step_seconds, measured.communication_seconds,
                                         measured.data_seconds, measured.checkpoint_seconds}));
  }
};

TimeShares mean_of(const std::vector<TimeShares>& all) {
  TimeShares mean{0.0, 0.0, 0.0, 0.0};
  const double n = static_cast<double>(all.size());
  for (const TimeShares& shares : all) {
    mean.computation += shares.computation / n;
    mean.communication += shares.communication / n;
    mean.data += shares.data / n;
    mean.checkpoint += shares.checkpoint / n;
  }
  return mean;
}

NodeCount summary_of(Repeats repeats) {
  NodeCount count = repeats.count;
  count.repeats = static_cast<int>(repeats.rates.size());
  count.rate = estimate(repeats.rates);
  count.memory_bandwidth = estimate(repeats.bandwidths);
  count.shares = mean_of(repeats.shares);
  return count;
}

void compare(std::vector<NodeCount>& counts) {
  const NodeCount base = counts.front();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    NodeCount& count = counts[i];
    count.speedup.mean = count.rate.mean / base.rate.mean;
    const double more = static_cast<double>(count.nodes) / base.nodes;
    if (i == 0) {
      // Everything is relative to the first count, so its speedup is exactly 1.
      count.speedup.half_width = count.efficiency.half_width =
          count.rate.half_width ? std::optional(0.0) : std::nullopt;
    } else {
      count.speedup.half_width = half_width_of_quotient(count.speedup.mean, count.rate, base.rate);
      count.efficiency.half_width.reset();
      if (count.speedup.half_width) {
        count.efficiency.half_width = *count.speedup.half_width / more;
      }
      const NodeCount& before = counts[i - 1];
      const double added = count.nodes - before.nodes;
      count.added_rate = (count.rate.mean - before.rate.mean) / added;
      count.added_bandwidth = (count.memory_bandwidth.mean - before.memory_bandwidth.mean) / added;
    }
    count.efficiency.mean = count.speedup.mean / more;
  }
}

double relative_half_width(const NodeCount& count) {
  return count.rate.half_width.value_or(0.0) / count.rate.mean;
}

// Returns why the repeats scatter too widely for a law; empty if they do not.
std::string too_wide(const Series& series) {
  const std::vector<NodeCount>& counts = series.counts;
  const NodeCount& widest =
      *std::max_element(counts.begin(), counts.end(), [](const NodeCount& a, const NodeCount& b) {
        return relative_half_width(a) < relative_half_width(b);
      });
  if (relative_half_width(widest) <= kWideScatter) return {};
  return fmt::format(
      "no law is fitted, because the repeats at {} scatter too widely ({} ± {:.0f} % with "
      "95 % confidence; the limit is {:.0f} %): measure with more --repeats, or where nothing else "
      "runs",
      counted(widest.nodes, "node"), series.unit.rate(), 100 * relative_half_width(widest),
      100 * kWideScatter);
}

constexpr const char* kOneNumberOfNodes = "no law can be fitted to one number of nodes";

void fit(Series& series, std::span<const RateAt> rates) {
  const std::size_t counts = series.counts.size();
  std::string why_not = counts < 2 ? kOneNumberOfNodes : too_wide(series);
  if (why_not.empty()) {
    series.amdahl = fit_amdahl(rates);
    series.universal = fit_universal(rates);
  }
  if (!why_not.empty()) {
    series.remarks.push_back(std::move(why_not));
  } else if (counts == 2) {
    series.remarks.emplace_back(
        "two numbers of nodes: Amdahl's law passes through both and its error means nothing; the "
        "universal law needs three");
  } else if (counts == 3) {
    series.remarks.emplace_back(
        "three numbers of nodes are as many as the universal law has unknowns: its error says "
        "little, and its knee is a guess");
  }
  const auto once = std::find_if(series.counts.begin(), series.counts.end(),
                                 [](const NodeCount& count) { return count.repeats < 2; });
  if (once == series.counts.end()) return;
  series.remarks.push_back(fmt::format(
      "a single repeat at {} does not tell how widely repeats scatter{}",
      counted(once->nodes, "node"), series.amdahl ? ": the laws may follow noise" : ""));
}

// Once it is known what the series is compared with.
void remark_on_superlinear(Series& series) {
  for (const NodeCount& count : series.counts) {
    if (count.efficiency.mean - count.efficiency.half_width.value_or(kUnknownSpread) <= 1.0)
      continue;
    series.remarks.push_back(fmt::format(
        "superlinear at {} nodes (efficiency {:.2f}): caches or a slow first point; neither law "
        "can say this, their losses are held at 0 or above",
        count.nodes, count.efficiency.mean));
    break;
  }
}

// Where the fewest nodes do not have the ranks for one replica of the series, its first count
// becomes that of the series without model parallelism.
void compare_with_one_replica(Series& series, const std::vector<Series>& all) {
  const auto alone = std::find_if(all.begin(), all.end(), [&](const Series& other) {
    return other.mode == series.mode && other.replica.extent(kModelAxes) == 1;
  });
  if (alone == all.end()) return;
  const NodeCount base = alone->counts.front();
  if (base.ranks >= series.replica.extent(kModelAxes)) return;
  series.counts.insert(series.counts.begin(), base);
  compare(series.counts);
  const bool one = std::erase(series.remarks, kOneNumberOfNodes) > 0;
  series.remarks.push_back(
      fmt::format("{} cannot hold this grid: speedup and efficiency are relative to {} there{}",
                  counted(base.nodes, "node"), base.grid.extents_text("x"),
                  one ? "; no law is fitted to the one number of nodes that holds it" : ""));
}

// Nodes that share a machine may not bring as many processors as they are nodes.
void remark_on_shared_processors(Series& series) {
  const NodeCount &base = series.counts.front(), &most = series.counts.back();
  if (!(base.processors > 0.0) || !(most.processors > 0.0)) return;
  const double more = most.processors / base.processors;
  if (more > 0.99 * most.nodes / base.nodes) return;
  series.remarks.push_back(fmt::format(
      "the ceiling of the speedup is {:.3g}: nodes share a machine, of which {} could use {:g} "
      "processor{} and {} {:g} in all; with an equal quota of processor time for each node it "
      "would be {:g}",
      more, counted(base.nodes, "node"), base.processors, base.processors == 1.0 ? "" : "s",
      counted(most.nodes, "node"), most.processors, static_cast<double>(most.nodes) / base.nodes));
}

// What was measured of one mode with replicas of one shape.
struct SeriesResults {
  Series series;
  std::vector<Repeats> counts;
  std::vector<RateAt> rates;
};

// Returns the results that this one belongs to, which it begins where there are none.
SeriesResults& results_like(std::vector<SeriesResults>& all, const PointResult& result) {
  GridShape replica = result.point.grid;
  replica.set_extent(kDataAxes, 1);
  const auto found = std::ranges::find_if(all, [&](const SeriesResults& one) {
    return one.series.mode == result.point.mode && one.series.replica == replica;
  });
  if (found != all.end()) return *found;
  SeriesResults& made = all.emplace_back();
  made.series.mode = result.point.mode;
  made.series.replica = replica;
  made.series.unit = result.measured.unit;
  return made;
}

Repeats& repeats_like(std::vector<Repeats>& all, const Point& point) {
  const auto found =
      std::ranges::find_if(all, [&](const Repeats& one) { return one.count.nodes == point.nodes; });
  return found != all.end() ? *found : all.emplace_back(point);
}

}  // namespace

std::string_view name_of(Mode mode) {
  return mode == Mode::kStrong ? "strong" : "weak";
}

std::string Point::name() const {
  std::string extents;
  for (const GridDimension& one : kGridDimensions) {
    extents += fmt::format("{}{}", one.name[0], grid.extent(one.axes));
  }
  return fmt::format("{}-n{}-{}-r{}", name_of(mode), nodes, extents, repeat);
}

Estimate estimate(std::span<const double> repeats) {
  TRIREME_CHECK(!repeats.empty(), "a mean of nothing");
  const double n = static_cast<double>(repeats.size());
  Estimate result;
  for (const double value : repeats) result.mean += value / n;
  if (repeats.size() < 2) return result;
  double squares = 0.0;
  for (const double value : repeats) squares += (value - result.mean) * (value - result.mean);
  const double deviation = std::sqrt(squares / (n - 1));
  result.half_width = student_t(static_cast<int>(repeats.size()) - 1) * deviation / std::sqrt(n);
  return result;
}

std::string Series::name() const {
  std::vector<std::string> parts;
  for (const GridDimension& one : kGridDimensions) {
    if (!kModelAxes.contains(one.axes)) continue;
    parts.push_back(fmt::format("{} {}", one.name, replica.extent(one.axes)));
  }
  return fmt::format("{}, {}", name_of(mode), fmt::join(parts, " x "));
}

std::vector<Series> analyse(std::span<const PointResult> results) {
  std::vector<SeriesResults> groups;
  for (const PointResult& result : results) {
    SeriesResults& group = results_like(groups, result);
    repeats_like(group.counts, result.point).add(result);
    group.rates.push_back(
        {static_cast<double>(result.point.nodes), result.measured.units_per_second});
  }
  std::vector<Series> all;
  for (SeriesResults& group : groups) {
    std::ranges::sort(group.counts, {}, [](const Repeats& one) { return one.count.nodes; });
    for (Repeats& repeats : group.counts) {
      group.series.counts.push_back(summary_of(std::move(repeats)));
    }
    compare(group.series.counts);
    fit(group.series, group.rates);
    all.push_back(std::move(group.series));
  }
  for (Series& series : all) {
    compare_with_one_replica(series, all);
    remark_on_superlinear(series);
    remark_on_shared_processors(series);
  }
  return all;
}

}  // namespace trireme::scaling
