#include "comm/faults/hang_analysis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

// An operation that ranks wait in, and the ranks that they wait for. It is one node of the graph
// for all its waiters, so thousands that wait for thousands do not make millions of edges.
struct Awaited {
  const WaitingFor* operation = nullptr;  // as the longest-waiting rank reports it
  int waiters = 0;
  std::vector<int> missing;  // sorted
};

// The graph of the hang: ranks wait in operations, and operations wait for ranks.
class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<std::optional<RankReport>>& reports) : reports_(reports) {
    const auto ranks = reports.size();
    operations_of_.resize(ranks);
    operations_for_.resize(ranks);
    for (const auto& report : reports_) {
      auto& begun = begun_.emplace_back();
      if (report) begun.insert(report->begun.begin(), report->begun.end());
    }
    std::map<Identity, std::vector<Waiter>> waiters;
    for (int rank = 0; rank < size(); ++rank) {
      if (!report(rank)) continue;
      for (const WaitingFor& operation : report(rank)->waiting) {
        waiters[identity_of(rank, operation)].push_back({rank, &operation});
      }
    }
    for (const auto& [identity, of_one] : waiters) add(of_one);
  }

  int size() const { return static_cast<int>(reports_.size()); }
  const std::optional<RankReport>& report(int rank) const {
    return reports_[static_cast<std::size_t>(rank)];
  }
  const std::vector<Awaited>& awaited() const { return awaited_; }
  // Indices into `awaited`: the operations that a rank waits in, and those that wait for it.
  const std::vector<int>& operations_of(int rank) const {
    return operations_of_[static_cast<std::size_t>(rank)];
  }
  const std::vector<int>& operations_for(int rank) const {
    return operations_for_[static_cast<std::size_t>(rank)];
  }

  bool has_begun(int rank, const LaneKey& key, std::uint64_t sequence) const {
    const auto& begun = begun_[static_cast<std::size_t>(rank)];
    const auto found = begun.find(key);
    return found != begun.end() && found->second >= sequence;
  }

 private:
  struct Waiter {
    int rank;
    const WaitingFor* operation;
  };
  // Each message is an operation of its own. The members of a collective operation share one.
  using Identity = std::tuple<LaneKey, std::uint64_t, int, RankList>;

  static Identity identity_of(int rank, const WaitingFor& operation) {
    const bool message = operation.key.peer >= 0;
    return {operation.key, operation.sequence, message ? rank : -1, operation.members};
  }
  bool valid(int rank) const { return 0 <= rank && rank < size(); }

  void add(const std::vector<Waiter>& waiters) {
    const WaitingFor& first = *waiters.front().operation;
    std::vector<int> missing =
        first.key.peer >= 0 ? missing_peer(waiters.front()) : missing_members(first);
    std::vector<Waiter> waiting = waiters;
    if (missing.empty() && first.library) {
      // All members are in the same library call or have left it. Inside the call, members that
      // wait for others spin. The one that the call hangs on may sleep in the kernel.
      const auto sleeps = [&](const Waiter& waiter) { return report(waiter.rank)->main_sleeps; };
      for (const Waiter& waiter : waiters) {
        if (sleeps(waiter)) missing.push_back(waiter.rank);
      }
      std::erase_if(waiting, sleeps);
    }
    if (missing.empty() || waiting.empty()) return;

    const int index = static_cast<int>(awaited_.size());
    const auto longest = std::ranges::max_element(
        waiting, {}, [](const Waiter& waiter) { return waiter.operation->age_s; });
    for (const Waiter& waiter : waiting) {
      operations_of_[static_cast<std::size_t>(waiter.rank)].push_back(index);
    }
    for (const int rank : missing) operations_for_[static_cast<std::size_t>(rank)].push_back(index);
    awaited_.push_back({longest->operation, static_cast<int>(waiting.size()), std::move(missing)});
  }

  // A rank's k-th send to a peer matches the peer's k-th receive from that rank.
  std::vector<int> missing_peer(const Waiter& waiter) const {
    const LaneKey& key = waiter.operation->key;
    const LaneKey match{key.lane, waiter.rank, !key.sends};
    if (!valid(key.peer) || has_begun(key.peer, match, waiter.operation->sequence)) return {};
    return {key.peer};
  }

  std::vector<int> missing_members(const WaitingFor& operation) const {
    std::vector<int> missing;
    operation.members.for_each([&](int member) {
      if (valid(member) && !has_begun(member, operation.key, operation.sequence)) {
        missing.push_back(member);
      }
    });
    std::ranges::sort(missing);
    return missing;
  }

  const std::vector<std::optional<RankReport>>& reports_;
  std::vector<std::map<LaneKey, std::uint64_t>> begun_;
  std::vector<Awaited> awaited_;
  std::vector<std::vector<int>> operations_of_, operations_for_;
};

// Finds the strongly connected components (Tarjan's algorithm) of the part of the graph that can be
// reached from the given ranks. Keeps the ranks of the components that no edge leaves.
class TerminalComponents {
 public:
  TerminalComponents(const WaitGraph& graph, const std::vector<int>& starts)
      : graph_(graph), nodes_(static_cast<std::size_t>(graph.size()) + graph.awaited().size()) {
    for (const int rank : starts) {
      if (node(rank).index < 0) visit(rank);
    }
  }
  std::vector<std::vector<int>> take() {
    std::ranges::sort(found_);
    return std::move(found_);
  }

 private:
  struct Node {
    int index = -1;
    int low = 0;
    int component = -1;
  };
  Node& node(int number) { return nodes_[static_cast<std::size_t>(number)]; }
  bool is_rank(int number) const { return number < graph_.size(); }

  // The nodes are first the ranks, then the operations.
  template <class Visit>
  void for_each_edge(int from, Visit visit) const {
    if (is_rank(from)) {
      for (const int operation : graph_.operations_of(from)) visit(graph_.size() + operation);
    } else {
      for (const int rank :
           graph_.awaited()[static_cast<std::size_t>(from - graph_.size())].missing) {
        visit(rank);
      }
    }
  }

  void visit(int from) {
    node(from).index = node(from).low = next_index_++;
    stack_.push_back(from);
    for_each_edge(from, [&](int to) {
      if (node(to).index < 0) {
        visit(to);
        node(from).low = std::min(node(from).low, node(to).low);
      } else if (node(to).component < 0) {
        node(from).low = std::min(node(from).low, node(to).index);
      }
    });
    if (node(from).low == node(from).index) close(from);
  }

  void close(int root) {
    std::vector<int> members;
    do {
      members.push_back(stack_.back());
      node(stack_.back()).component = components_;
      stack_.pop_back();
    } while (members.back() != root);
    bool terminal = true;
    for (const int member : members) {
      for_each_edge(member, [&](int to) { terminal &= node(to).component == components_; });
    }
    ++components_;
    std::erase_if(members, [&](int member) { return !is_rank(member); });
    std::ranges::sort(members);
    if (terminal) found_.push_back(std::move(members));
  }

  const WaitGraph& graph_;
  std::vector<Node> nodes_;
  std::vector<int> stack_;
  std::vector<std::vector<int>> found_;
  int next_index_ = 0;
  int components_ = 0;
};

std::string describe(const WaitingFor& operation) {
  return fmt::format("{} {} of {}", operation.name, operation.sequence, operation.communicator);
}

class Explanation {
 public:
  Explanation(const WaitGraph& graph, const std::vector<std::string>& hosts)
      : graph_(graph), hosts_(hosts) {}

  std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, hosts_[static_cast<std::size_t>(rank)]);
  }

  // Says what is wrong with a rank that waits for nobody, and in which operation it is missing.
  std::string of_one(int rank) const { return state(rank) + missing_from(rank); }

  // "rank 3 (node1), rank 4 (node1)". A long list is shortened.
  std::string names(const std::vector<int>& ranks) const {
    std::vector<std::string> parts;
    for (const int rank : ranks) parts.push_back(name(rank));
    return list(std::move(parts));
  }

  // Describes several ranks that do not answer, on hosts from which no rank answers. Seen from the
  // judging rank's host, the network or these hosts are gone: "node2, node3 cannot be reached from
  // node1 (ranks 4, 5, 6, 7)".
  std::string of_lost_hosts(const std::vector<int>& ranks, int judge) const {
    std::vector<std::string> hosts, numbers;
    for (const int rank : ranks) {
      const std::string& host = hosts_[static_cast<std::size_t>(rank)];
      if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
      numbers.push_back(std::to_string(rank));
    }
    std::string missing;  // names one operation in which somebody waits for one of them
    for (const int rank : ranks) missing = missing.empty() ? missing_from(rank) : missing;
    return fmt::format("{} cannot be reached from {} (ranks {}){}", list(std::move(hosts)),
                       hosts_[static_cast<std::size_t>(judge)], list(std::move(numbers)), missing);
  }

  // Describes several ranks that wait for each other, or one that waits for itself.
  std::string of_circle(const std::vector<int>& ranks) const {
    std::vector<std::string> parts;
    for (const int rank : ranks) {
      if (const WaitingFor* operation = waits_for_one_of(ranks, rank)) {
        parts.push_back(fmt::format("{} in {}", name(rank), describe_with_peer(*operation)));
      }
    }
    return fmt::format(
        "{} {}", ranks.size() == 1 ? "this one waits for itself:" : "these wait for each other:",
        list(std::move(parts)));
  }

 private:
  static std::string list(std::vector<std::string> parts) {
    constexpr std::size_t kShown = 16;
    if (parts.size() > kShown) {
      const std::string rest = fmt::format("{} more", parts.size() - kShown);
      parts.resize(kShown);
      parts.push_back(rest);
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  const Awaited& awaited(int index) const {
    return graph_.awaited()[static_cast<std::size_t>(index)];
  }

  // Returns an operation in which the rank waits for one of `ranks`, which are sorted.
  const WaitingFor* waits_for_one_of(const std::vector<int>& ranks, int rank) const {
    for (const int index : graph_.operations_of(rank)) {
      const bool for_one = std::ranges::any_of(awaited(index).missing, [&](int missing) {
        return std::ranges::binary_search(ranks, missing);
      });
      if (for_one) return awaited(index).operation;
    }
    return nullptr;
  }

  std::string state(int rank) const {
    const auto& report = graph_.report(rank);
    if (!report) return "does not answer";
    const auto& waiting = report->waiting;
    if (waiting.empty()) return "waits for nothing";
    const auto call = std::ranges::find_if(waiting, &WaitingFor::library);
    if (call != waiting.end()) return "hangs inside " + describe(*call);
    return fmt::format("is in {}, which {} begun", describe_with_peer(waiting.front()),
                       waiting.front().key.peer < 0 ? "all its members have" : "its peer has");
  }

  // ", missing from all_reduce 3 of tensor, where 2 ranks wait for it"
  std::string missing_from(int rank) const {
    const WaitingFor* missed = nullptr;  // the operation that has waited for it longest
    for (const int index : graph_.operations_for(rank)) {
      const WaitingFor* operation = awaited(index).operation;
      if (missed == nullptr || operation->age_s > missed->age_s) missed = operation;
    }
    if (missed == nullptr) return "";
    int waiters = 0;
    for (const int index : graph_.operations_for(rank)) {
      const WaitingFor& operation = *awaited(index).operation;
      const bool same = operation.key == missed->key && operation.sequence == missed->sequence;
      waiters += same ? awaited(index).waiters : 0;
    }
    const std::string count = waiters == 1 ? "1 rank waits" : fmt::format("{} ranks wait", waiters);
    const bool joined =
        missed->key.peer < 0 && graph_.has_begun(rank, missed->key, missed->sequence);
    if (joined) return fmt::format(", in which {} for it", count);
    if (missed->key.peer >= 0) {
      return fmt::format(", missing from the {} for which {} in {}",
                         missed->key.sends ? "receive" : "send", count, describe(*missed));
    }
    return fmt::format(", missing from {}, where {} for it", describe(*missed), count);
  }

  std::string describe_with_peer(const WaitingFor& operation) const {
    if (operation.key.peer < 0) return describe(operation);
    return fmt::format("{} {} {} {} of {}", operation.name, operation.sequence,
                       operation.key.sends ? "to" : "from", operation.key.peer,
                       operation.communicator);
  }

  const WaitGraph& graph_;
  const std::vector<std::string>& hosts_;
};

// Returns the ranks that have waited longer than the timeout, or, if there are none, all ranks that
// wait.
std::vector<int> overdue_ranks(const WaitGraph& graph, double timeout_s) {
  std::vector<int> overdue;
  std::vector<int> waiting;
  for (int rank = 0; rank < graph.size(); ++rank) {
    if (!graph.report(rank) || graph.report(rank)->waiting.empty()) continue;
    waiting.push_back(rank);
    const auto& operations = graph.report(rank)->waiting;
    if (std::ranges::any_of(operations, [&](const auto& o) { return o.age_s >= timeout_s; })) {
      overdue.push_back(rank);
    }
  }
  return overdue.empty() ? waiting : overdue;
}

// Returns the ranks on hosts from which no rank answers. If there is only one such rank, it may
// just hang, so the result is empty. The result is also empty if no rank of any host answers.
std::vector<int> ranks_of_lost_hosts(const WaitGraph& graph,
                                     const std::vector<std::string>& hosts) {
  std::unordered_set<std::string_view> answering;
  for (int rank = 0; rank < graph.size(); ++rank) {
    if (graph.report(rank)) answering.insert(hosts[static_cast<std::size_t>(rank)]);
  }
  std::vector<int> lost;
  for (int rank = 0; rank < graph.size(); ++rank) {
    if (!answering.contains(hosts[static_cast<std::size_t>(rank)])) lost.push_back(rank);
  }
  return lost.size() > 1 && !answering.empty() ? lost : std::vector<int>();
}

// Returns the lowest judge that answers, or, if no judge does, the lowest rank that answers.
int speaker_of(const WaitGraph& graph, const std::vector<std::string>& hosts) {
  std::vector<int> ranks = choose_judges(hosts);
  for (int rank = 0; rank < graph.size(); ++rank) ranks.push_back(rank);
  return *std::ranges::find_if(ranks, [&](int rank) { return graph.report(rank).has_value(); });
}

}  // namespace

std::vector<int> choose_judges(const std::vector<std::string>& hosts) {
  constexpr std::size_t kJudges = 4;
  std::vector<int> candidates;  // the first rank of each node
  std::unordered_set<std::string_view> seen;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    if (seen.insert(hosts[static_cast<std::size_t>(rank)]).second) candidates.push_back(rank);
  }
  if (candidates.size() < kJudges) {
    candidates.resize(hosts.size());
    std::iota(candidates.begin(), candidates.end(), 0);
  }
  if (candidates.size() <= kJudges) return candidates;
  std::vector<int> judges;  // the first, the last, and others evenly spaced between them
  for (std::size_t i = 0; i < kJudges; ++i) {
    const std::size_t at = (i * (candidates.size() - 1) + (kJudges - 1) / 2) / (kJudges - 1);
    judges.push_back(candidates[at]);
  }
  return judges;
}

std::vector<int> receivers_of(HangNews news, int rank, const std::vector<int>& judges, int ranks) {
  std::vector<int> receivers = judges;
  if (news == HangNews::kAlarm) {
    receivers.resize(std::ranges::binary_search(judges, rank) ? static_cast<std::size_t>(ranks)
                                                              : 0);
    std::iota(receivers.begin(), receivers.end(), 0);
  }
  std::erase(receivers, rank);
  return receivers;
}

HangVerdict analyse_hang(const std::vector<std::optional<RankReport>>& reports,
                         const std::vector<std::string>& hosts, double timeout_s) {
  const WaitGraph graph(reports);
  const Explanation explanation(graph, hosts);
  HangVerdict verdict;
  std::vector<std::string> parts;
  std::map<std::string, std::vector<int>> alone;  // ranks by what is wrong with them
  const std::vector<int> lost = ranks_of_lost_hosts(graph, hosts);
  bool lost_to_blame = false;
  for (const auto& component : TerminalComponents(graph, overdue_ranks(graph, timeout_s)).take()) {
    const int first = component.front();
    if (component.size() > 1 || !graph.operations_of(first).empty()) {
      parts.push_back(explanation.of_circle(component));
    } else if (std::ranges::binary_search(lost, first)) {
      lost_to_blame = true;
      continue;
    } else {
      alone[explanation.of_one(first)].push_back(first);
    }
    verdict.culprits.insert(verdict.culprits.end(), component.begin(), component.end());
  }
  // Blames all lost ranks. A rank that waits for one of them cannot know that the others are lost
  // too.
  if (lost_to_blame) {
    parts.push_back(explanation.of_lost_hosts(lost, speaker_of(graph, hosts)));
    verdict.culprits.insert(verdict.culprits.end(), lost.begin(), lost.end());
  }
  for (const auto& [what, ranks] : alone) {
    parts.push_back(
        fmt::format("{} {}{}", explanation.names(ranks), ranks.size() > 1 ? "each " : "", what));
  }
  std::ranges::sort(verdict.culprits);
  if (parts.empty()) parts.push_back("the operation went on while the ranks were asked");
  verdict.line = fmt::format("no progress for {:g} s: {}", timeout_s, fmt::join(parts, "; "));
  return verdict;
}

}  // namespace trireme
