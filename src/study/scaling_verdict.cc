// The purpose of a study: how many nodes to use, and what training costs there.
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/study/scaling.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

std::string cost_of(const NodeCount& count) {
  return short_number(node_hours_per_billion(count));
}

std::string percent(const Estimate& efficiency) {
  const double mean = 100 * efficiency.mean;
  if (!efficiency.half_width) return fmt::format("{:.0f} %", mean);
  return fmt::format("{:.0f} ± {:.0f} %", mean, 100 * *efficiency.half_width);
}

// Returns whether the whole confidence interval is on one side of the threshold.
bool is_settled(const Estimate& efficiency, double least) {
  const double half = *efficiency.half_width;
  return efficiency.mean >= least ? efficiency.mean - half >= least
                                  : efficiency.mean + half < least;
}

// Returns why the repeats leave the verdict open; empty if they settle it.
std::string doubt_about(std::span<const NodeCount> boundary, double least) {
  for (const NodeCount& count : boundary) {
    if (!count.efficiency.half_width) return "; single repeats do not tell how sure this is";
    if (!is_settled(count.efficiency, least)) {
      return "; the repeats scatter too widely to be sure of it";
    }
  }
  return {};
}

}  // namespace

double node_hours_per_billion(const NodeCount& count) {
  return count.nodes * 1e9 / count.rate.mean / 3600.0;
}

std::string verdict_of(const Series& series, double least) {
  TRIREME_CHECK(!series.counts.empty(), "a verdict about nothing");
  const std::vector<NodeCount>& counts = series.counts;
  const NodeCount& base = counts.front();
  const std::string price = fmt::format("node-hours per billion {}", series.unit.many);
  if (counts.size() == 1) {
    return fmt::format("{} {} at {}; other numbers of nodes were not measured", cost_of(base),
                       price, counted(base.nodes, "node"));
  }
  std::size_t last = 0;
  while (last + 1 < counts.size() && counts[last + 1].efficiency.mean >= least) ++last;
  const bool all = last + 1 == counts.size();
  const std::string threshold = fmt::format("(at least {:g} %)", 100 * least);
  std::string text;
  if (last == 0) {
    text = fmt::format("not efficient {} beyond {}; {} {} there, {} at {}", threshold,
                       counted(base.nodes, "node"), cost_of(base), price, cost_of(counts[1]),
                       counted(counts[1].nodes, "node"));
  } else {
    text = fmt::format("efficient {} up to {}{}, which reach {}; {} {} there, {} at {}", threshold,
                       counted(counts[last].nodes, "node"),
                       all ? ", the most that were measured" : "", percent(counts[last].efficiency),
                       cost_of(counts[last]), price, cost_of(base), counted(base.nodes, "node"));
  }
  if (!all) {
    const NodeCount& next = counts[last + 1];
    text += fmt::format("; {} reach {}", counted(next.nodes, "node"), percent(next.efficiency));
  }
  return text + doubt_about(std::span(counts).subspan(last, all ? 1 : 2), least);
}

}  // namespace trireme::scaling
