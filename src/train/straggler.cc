#include "trireme/train/straggler.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::size_t kLongestPast = 20;  // windows
constexpr std::size_t kShortestPast = 3;
constexpr std::size_t kMostLines = 8;  // per window

// For an even number of values returns the lower of the two in the middle: if half of all are slow,
// the other half is the measure.
double median_of(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the median of all values except `value`, one of those in `sorted`.
double median_without(const std::vector<double>& sorted, double value) {
  if (sorted.size() < 2) return 0.0;
  const auto own = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) -
                                            sorted.begin());
  const std::size_t middle = (sorted.size() - 2) / 2;
  return sorted[middle < own ? middle : middle + 1];
}

std::string rate_text(double bytes_per_second) {
  const bool large = bytes_per_second >= 999.95e6;
  return fmt::format("{:.1f} {}B/s", bytes_per_second * (large ? 1e-9 : 1e-6), large ? "G" : "M");
}

std::string describe(const RankTimes& r, double times, double reference, bool with_past) {
  const bool data = r.wait_data_seconds > 0.5 * (r.own_seconds() - reference);
  return fmt::format("{} {:.1f} x as long as {} ({} a step, {} {}{})",
                     data ? "waits for data and computes" : "computes", times,
                     with_past ? "before" : "its peers", time_text(r.own_seconds()),
                     with_past ? "before" : "median", time_text(reference),
                     data ? ", " + time_text(r.wait_data_seconds) + " of it for data" : "");
}

std::vector<std::string> shortened(std::vector<std::string> lines) {
  if (lines.size() <= kMostLines) return lines;
  const std::size_t more = lines.size() - kMostLines;
  lines.resize(kMostLines);
  lines.push_back(fmt::format("and {} more", more));
  return lines;
}

// Ranks with the same key do the same work in a step.
auto work_of(const RankTimes& rank) {
  return std::pair(rank.place[dimension_of(Axis::kPipeline)], rank.micro_batches);
}

}  // namespace

std::vector<double> link_rates(std::span<const double> to_previous, std::span<const double> to_next,
                               double bytes) {
  const std::size_t nodes = to_next.size();
  std::vector<double> rates(nodes, 0.0);
  const auto shorter = [](double a, double b) {
    return a <= 0.0 || b <= 0.0 ? std::max(a, b) : std::min(a, b);
  };
  // The seconds measured by the pair of node i and the next node.
  const auto pair_seconds = [&](std::size_t i) {
    return shorter(to_next[i], to_previous[(i + 1) % nodes]);
  };
  for (std::size_t i = 0; i < nodes; ++i) {
    const double seconds = shorter(pair_seconds((i + nodes - 1) % nodes), pair_seconds(i));
    if (seconds > 0.0) rates[i] = bytes / seconds;
  }
  return rates;
}

void StragglerDetector::Suspicion::see(bool is_slow, bool is_normal, std::int64_t first_step) {
  if (is_slow && slow_windows == 0 && !slow) since = first_step;
  slow_windows = is_slow ? slow_windows + 1 : 0;
  normal_windows = is_normal ? normal_windows + 1 : 0;
  if (slow_windows >= kWindows) slow = true;
  if (normal_windows >= kWindows) slow = false;
}

void StragglerDetector::Past::add(double value) {
  values.push_back(value);
  if (values.size() > kLongestPast) values.pop_front();
}

double StragglerDetector::Past::median() const {
  if (values.size() < kShortestPast) return 0.0;
  return median_of({values.begin(), values.end()});
}

StragglerDetector::Comparison StragglerDetector::compare_rank(const RankTable& table,
                                                              std::size_t rank,
                                                              double with_peers) const {
  const RankTimes& r = table.ranks[rank];
  Comparison peers{.times = r.times_peers, .reference = with_peers};
  const bool elsewhere = std::any_of(table.ranks.begin(), table.ranks.end(), [&](const auto& o) {
    return o.node != r.node && work_of(o) == work_of(r);
  });
  const double before = ranks_past_[rank].median();
  if (elsewhere || before <= 0.0) return peers;
  // All peers are on the rank's own node, so what slows the whole node slows them all. Compares the
  // rank with its own past instead, if that shows more.
  const double times = r.own_seconds() / before;
  if (times / kSlowerThanBefore <= peers.times / kSlow) return peers;
  return {.times = times, .reference = before, .with_past = true};
}

void StragglerDetector::judge_ranks(RankTable& table) {
  std::map<std::pair<int, int>, std::vector<double>> own;
  for (const RankTimes& r : table.ranks) own[work_of(r)].push_back(r.own_seconds());
  for (auto& [work, seconds] : own) std::sort(seconds.begin(), seconds.end());
  ranks_.resize(table.ranks.size());
  ranks_past_.resize(table.ranks.size());
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    RankTimes& r = table.ranks[i];
    const double peers = median_without(own[work_of(r)], r.own_seconds());
    r.times_peers = peers > 0.0 ? r.own_seconds() / peers : 0.0;
    const Comparison c = compare_rank(table, i, peers);
    const double slow = c.with_past ? kSlowerThanBefore : kSlow;
    const double normal = c.with_past ? kAsBefore : kNormal;
    const double lost = (r.own_seconds() - c.reference) / r.step_seconds();
    const bool is_slow = c.times >= slow && lost >= kLostPart;
    ranks_[i].see(is_slow, c.times < normal || lost < kLostPart / 2, table.first_step);
    if (is_slow) {
      ranks_[i].times = c.times;
      ranks_[i].text = describe(r, c.times, c.reference, c.with_past);
    }
    if (!ranks_[i].slow && ranks_[i].slow_windows == 0) ranks_past_[i].add(r.own_seconds());
  }
}

bool StragglerDetector::has_slow_rank(const RankTable& table, std::size_t node) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const bool suspect = ranks_[i].slow || ranks_[i].slow_windows > 0;
    if (suspect && table.ranks[i].node == static_cast<int>(node)) return true;
  }
  return false;
}

void StragglerDetector::judge_links(const RankTable& table) {
  links_.resize(table.nodes.size());
  links_past_.resize(table.nodes.size());
  std::vector<double> rates;
  for (const NodeLink& node : table.nodes) rates.push_back(node.bytes_per_second);
  std::sort(rates.begin(), rates.end());
  for (std::size_t i = 0; i < table.nodes.size(); ++i) {
    // A node that loses processors to others answers late as well, so its link is not judged.
    if (!has_slow_rank(table, i)) judge_link(table, i, rates);
  }
}

void StragglerDetector::judge_link(const RankTable& table, std::size_t node,
                                   const std::vector<double>& rates) {
  const double rate = table.nodes[node].bytes_per_second;
  if (rate <= 0.0) return;
  const bool with_past = table.nodes.size() == 2;
  Suspicion& link = links_[node];
  Past& past = links_past_[node];
  const double reference = with_past ? past.median() : median_without(rates, rate);
  const bool is_slow = reference >= kSlowLink * rate;
  link.see(is_slow, reference < kNormalLink * rate, table.first_step);
  if (is_slow) {
    link.text =
        fmt::format("carries {}, {} {},", rate_text(rate),
                    with_past ? "before it was" : "those of the other nodes", rate_text(reference));
  }
  if (!link.slow && link.slow_windows == 0) past.add(rate);
}

void StragglerDetector::add_ranks(const RankTable& table, Subjects& subjects) const {
  struct OfNode {
    int ranks = 0;
    std::vector<std::size_t> slow;
  };
  std::map<int, OfNode> nodes;
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    OfNode& node = nodes[table.ranks[i].node];
    ++node.ranks;
    if (ranks_[i].slow) node.slow.push_back(i);
  }
  for (const auto& [index, node] : nodes) {
    if (node.slow.empty()) continue;
    const std::string& host = table.nodes[static_cast<std::size_t>(index)].host;
    const auto slow = static_cast<int>(node.slow.size());
    if (slow >= 2 && 2 * slow > node.ranks) {
      const std::size_t worst =
          *std::max_element(node.slow.begin(), node.slow.end(),
                            [&](auto a, auto b) { return ranks_[a].times < ranks_[b].times; });
      subjects[fmt::format("node {}", index)] = {
          fmt::format("node {}", host),
          fmt::format("node {}, {} of {} ranks; rank {} {} since step {}", host, slow, node.ranks,
                      worst, ranks_[worst].text, ranks_[worst].since),
          index, false};
      continue;
    }
    for (const std::size_t rank : node.slow) {
      const std::string who = fmt::format("rank {} on {}", rank, host);
      subjects[fmt::format("rank {:06}", rank)] = {
          who, fmt::format("{} {} since step {}", who, ranks_[rank].text, ranks_[rank].since),
          index, true};
    }
  }
}

void StragglerDetector::add_links(const RankTable& table, Subjects& subjects) const {
  const bool pair = table.nodes.size() == 2;  // one link, seen from both ends
  for (std::size_t i = 0; i < (pair ? 1 : links_.size()); ++i) {
    if (!links_[i].slow) continue;
    const std::string who =
        pair ? fmt::format("the link between {} and {}", table.nodes[0].host, table.nodes[1].host)
             : fmt::format("the link of {}", table.nodes[i].host);
    subjects[fmt::format("link {}", i)] = {
        who, fmt::format("{} {} since step {}", who, links_[i].text, links_[i].since),
        static_cast<int>(i), false};
  }
}

std::vector<std::string> StragglerDetector::changes(const Subjects& now, std::int64_t step) {
  std::vector<std::string> lines;
  const auto still_named = [&](const Subject& gone) {  // by its node or by its ranks
    return std::any_of(now.begin(), now.end(), [&](const auto& entry) {
      return entry.first.substr(0, 4) != "link" && entry.second.node == gone.node &&
             entry.second.is_rank != gone.is_rank;
    });
  };
  for (const auto& [key, subject] : told_) {
    if (now.count(key) > 0 || (key.substr(0, 4) != "link" && still_named(subject))) continue;
    lines.push_back(fmt::format("{} is back to normal after step {}", subject.who, step));
  }
  for (const auto& [key, subject] : now) {
    if (told_.count(key) == 0) lines.push_back(subject.text);
  }
  told_ = now;
  return shortened(std::move(lines));
}

std::vector<std::string> StragglerDetector::look(RankTable& table) {
  judge_ranks(table);
  judge_links(table);
  Subjects now;
  add_ranks(table, now);
  add_links(table, now);
  std::vector<std::string> lines = changes(now, table.last_step);
  std::vector<std::string> all;
  for (const auto& [key, subject] : now) all.push_back(subject.text);
  table.stragglers = shortened(std::move(all));
  return lines;
}

}  // namespace trireme
