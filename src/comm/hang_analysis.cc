#include "hang_analysis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

// Rank `from` waits for rank `to` in `operation`.
struct Edge {
  int to;
  const WaitingFor* operation;
};

class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<std::optional<RankReport>>& reports) : reports_(reports) {
    edges_.resize(reports.size());
    for (const auto& report : reports_) {
      auto& begun = begun_.emplace_back();
      if (report) begun.insert(report->begun.begin(), report->begun.end());
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (!report(rank)) continue;
      for (const WaitingFor& operation : report(rank)->waiting) add_edges(rank, operation);
    }
  }

  int size() const { return static_cast<int>(reports_.size()); }
  const std::optional<RankReport>& report(int rank) const {
    return reports_[static_cast<std::size_t>(rank)];
  }
  const std::vector<Edge>& edges(int rank) const { return edges_[static_cast<std::size_t>(rank)]; }

  bool has_begun(int rank, const LaneKey& key, std::uint64_t sequence) const {
    const auto& begun = begun_[static_cast<std::size_t>(rank)];
    const auto found = begun.find(key);
    return found != begun.end() && found->second >= sequence;
  }
  // The members that are still in the same operation.
  std::vector<int> inside(const WaitingFor& operation) const {
    std::vector<int> result;
    for (const int member : operation.members) {
      if (valid(member) && report(member) && find(member, operation)) result.push_back(member);
    }
    return result;
  }
  const WaitingFor* find(int rank, const WaitingFor& operation) const {
    for (const WaitingFor& own : report(rank)->waiting) {
      if (own.key == operation.key && own.sequence == operation.sequence) return &own;
    }
    return nullptr;
  }

 private:
  bool valid(int rank) const { return 0 <= rank && rank < size(); }

  void add_edges(int rank, const WaitingFor& operation) {
    auto& edges = edges_[static_cast<std::size_t>(rank)];
    if (const int peer = operation.key.peer; peer >= 0) {
      // The k-th send to a peer meets its k-th receive from here.
      const LaneKey match{operation.key.lane, rank, !operation.key.sends};
      if (valid(peer) && !has_begun(peer, match, operation.sequence)) {
        edges.push_back({peer, &operation});
      }
      return;
    }
    bool missing = false;
    for (const int member : operation.members) {
      if (!valid(member) || member == rank) continue;
      if (has_begun(member, operation.key, operation.sequence)) continue;
      edges.push_back({member, &operation});
      missing = true;
    }
    if (!missing && operation.library) add_edges_to_sleepers(rank, operation);
  }

  // All members are in the same library call or have left it. Those that wait for others inside
  // of it spin; the one that the call hangs on may sleep in the kernel.
  void add_edges_to_sleepers(int rank, const WaitingFor& operation) {
    if (report(rank)->main_sleeps) return;
    for (const int member : inside(operation)) {
      if (member != rank && report(member)->main_sleeps) {
        edges_[static_cast<std::size_t>(rank)].push_back({member, &operation});
      }
    }
  }

  const std::vector<std::optional<RankReport>>& reports_;
  std::vector<std::map<LaneKey, std::uint64_t>> begun_;
  std::vector<std::vector<Edge>> edges_;
};

// Tarjan's strongly connected components of what can be reached from the given ranks; keeps those
// that no edge leaves.
class TerminalComponents {
 public:
  TerminalComponents(const WaitGraph& graph, const std::vector<int>& starts)
      : graph_(graph), nodes_(static_cast<std::size_t>(graph.size())) {
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
  Node& node(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }

  void visit(int rank) {
    node(rank).index = node(rank).low = next_index_++;
    stack_.push_back(rank);
    for (const Edge& edge : graph_.edges(rank)) {
      if (node(edge.to).index < 0) {
        visit(edge.to);
        node(rank).low = std::min(node(rank).low, node(edge.to).low);
      } else if (node(edge.to).component < 0) {
        node(rank).low = std::min(node(rank).low, node(edge.to).index);
      }
    }
    if (node(rank).low == node(rank).index) close(rank);
  }

  void close(int root) {
    std::vector<int> members;
    do {
      members.push_back(stack_.back());
      node(stack_.back()).component = components_;
      stack_.pop_back();
    } while (members.back() != root);
    const bool terminal = std::ranges::all_of(members, [&](int member) {
      return std::ranges::all_of(graph_.edges(member), [&](const Edge& edge) {
        return node(edge.to).component == components_;
      });
    });
    ++components_;
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

  // What is wrong with a rank that waits for nobody, and who misses it.
  std::string of_one(int rank) const { return state(rank) + missing_from(rank); }

  // "rank 3 (node1), rank 4 (node1)"; a long list is cut.
  std::string names(const std::vector<int>& ranks) const {
    std::vector<std::string> parts;
    for (const int rank : ranks) {
      if (parts.size() == kShown) {
        parts.push_back(fmt::format("{} more", ranks.size() - kShown));
        break;
      }
      parts.push_back(name(rank));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  // Several that wait for each other, or one that waits for itself.
  std::string of_circle(const std::vector<int>& ranks) const {
    std::vector<std::string> parts;
    for (const int rank : ranks) {
      if (parts.size() == kShown) {
        parts.push_back(fmt::format("{} more", ranks.size() - kShown));
        break;
      }
      for (const Edge& edge : graph_.edges(rank)) {
        if (!std::ranges::binary_search(ranks, edge.to)) continue;
        parts.push_back(fmt::format("{} in {}", name(rank), describe_with_peer(*edge.operation)));
        break;
      }
    }
    return fmt::format(
        "{} {}", ranks.size() == 1 ? "this one waits for itself:" : "these wait for each other:",
        fmt::join(parts, ", "));
  }

 private:
  static constexpr std::size_t kShown = 16;  // of a long list of ranks

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
    const WaitingFor* missed = nullptr;  // what has waited for it longest
    for_each_edge_to(rank, [&](const WaitingFor& operation) {
      if (missed == nullptr || operation.age_s > missed->age_s) missed = &operation;
    });
    if (missed == nullptr) return "";
    int waiters = 0;
    for_each_edge_to(rank, [&](const WaitingFor& operation) {
      const bool same = operation.key == missed->key && operation.sequence == missed->sequence;
      waiters += same ? 1 : 0;
    });
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

  template <class Visit>
  void for_each_edge_to(int rank, Visit visit) const {
    for (int other = 0; other < graph_.size(); ++other) {
      for (const Edge& edge : graph_.edges(other)) {
        if (edge.to == rank) visit(*edge.operation);
      }
    }
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

// The ranks whose waiting is overdue; all that wait, where none is.
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

}  // namespace

HangVerdict analyse_hang(const std::vector<std::optional<RankReport>>& reports,
                         const std::vector<std::string>& hosts, double timeout_s) {
  const WaitGraph graph(reports);
  const Explanation explanation(graph, hosts);
  HangVerdict verdict;
  std::vector<std::string> parts;
  std::map<std::string, std::vector<int>> alone;  // by what is wrong with them
  for (const auto& component : TerminalComponents(graph, overdue_ranks(graph, timeout_s)).take()) {
    const int first = component.front();
    if (component.size() > 1 || !graph.edges(first).empty()) {
      parts.push_back(explanation.of_circle(component));
    } else {
      alone[explanation.of_one(first)].push_back(first);
    }
    verdict.culprits.insert(verdict.culprits.end(), component.begin(), component.end());
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
