#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/topology/rank_order.h"

namespace trireme {
namespace {

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && last == end) return -1;  // no rank either
  if (error != std::errc() || last != end) return std::nullopt;
  return value;
}

class OrderFile {
 public:
  OrderFile(std::string_view text, std::string origin, const std::vector<std::string>& hosts)
      : lines_(lines_of_small_file(text)),
        origin_(std::move(origin)),
        ranks_(static_cast<int>(hosts.size())) {
    for (int rank = 0; rank < ranks_; ++rank) {
      ranks_of_[hosts[static_cast<std::size_t>(rank)]].push_back(rank);
    }
  }

  std::vector<int> read() {
    if (lines_.empty()) {
      throw ConfigError(fmt::format("{}: no line names a rank or a node", shown(origin_)));
    }
    // A node may have a name of digits.
    const std::string& first = lines_.front().text;
    if (ranks_of_.contains(first) || !whole_number(first)) return read_hosts();
    return read_ranks();
  }

 private:
  std::vector<int> read_ranks() {
    std::vector<int> order;
    std::map<std::int64_t, int> seen;
    for (const FileLine& line : lines_) {
      const std::optional<std::int64_t> rank = whole_number(line.text);
      if (!rank) refuse(line, fmt::format("'{}' is not a rank", shown(line.text)));
      if (*rank < 0 || *rank >= ranks_) {
        refuse(line,
               fmt::format("{} is not a rank: there are 0 to {}", shown(line.text), ranks_ - 1));
      }
      check_first(seen, *rank, line, fmt::format("rank {}", *rank));
      order.push_back(static_cast<int>(*rank));
    }
    if (static_cast<int>(order.size()) != ranks_) {
      throw ConfigError(fmt::format("{}: lists {} of {} ranks: each must be listed once",
                                    shown(origin_), order.size(), ranks_));
    }
    return order;
  }

  std::vector<int> read_hosts() {
    std::vector<int> order;
    std::map<std::string, int> seen;
    std::vector<std::string> listed, hosts;
    for (const FileLine& line : lines_) listed.push_back(line.text);
    for (const auto& [host, ranks] : ranks_of_) hosts.push_back(host);
    const std::vector<int> found = match_nodes(listed, hosts);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (found[i] < 0) {
        refuse(lines_[i],
               fmt::format("'{}' is neither a rank nor a node of this run, which is on {}",
                           shown(listed[i]), some_hosts()));
      }
      const std::string& host = hosts[static_cast<std::size_t>(found[i])];
      check_first(seen, host, lines_[i], fmt::format("node '{}'", shown(host)));
      const std::vector<int>& ranks = ranks_of_.at(host);
      order.insert(order.end(), ranks.begin(), ranks.end());
    }
    for (const auto& [host, ranks] : ranks_of_) {
      if (seen.contains(host)) continue;
      throw ConfigError(fmt::format("{}: lists {} of {} nodes, not '{}': each must be listed once",
                                    shown(origin_), seen.size(), ranks_of_.size(), shown(host)));
    }
    return order;
  }

  template <class Key>
  void check_first(std::map<Key, int>& seen, const Key& key, const FileLine& line,
                   const std::string& what) {
    const auto [before, is_first] = seen.emplace(key, line.number);
    if (!is_first) refuse(line, fmt::format("{} stands in line {} already", what, before->second));
  }

  std::string some_hosts() const {
    constexpr std::size_t kNamed = 3;
    std::string text;
    for (const auto& [host, ranks] : ranks_of_) {
      text += (text.empty() ? "" : ", ") + shown(host);
      if (static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1 == kNamed) break;
    }
    return ranks_of_.size() > kNamed ? text + ", ..." : text;
  }

  [[noreturn]] void refuse(const FileLine& line, const std::string& why) const {
    throw ConfigError(fmt::format("{}, line {}: {}", shown(origin_), line.number, why));
  }

  std::vector<FileLine> lines_;
  std::string origin_;
  int ranks_;
  std::map<std::string, std::vector<int>> ranks_of_;  // by host
};

}  // namespace

std::vector<int> read_rank_order(std::string_view text, const std::string& origin,
                                 const std::vector<std::string>& hosts) {
  return OrderFile(text, origin, hosts).read();
}

std::string describe_places(const std::vector<int>& order, const std::vector<std::string>& hosts) {
  std::vector<std::string> names;  // by first place
  std::map<std::string, std::string> places;
  for (std::size_t first = 0; first < order.size();) {
    const std::string& host = hosts[static_cast<std::size_t>(order[first])];
    std::size_t last = first;
    while (last + 1 < order.size() && hosts[static_cast<std::size_t>(order[last + 1])] == host) {
      ++last;
    }
    std::string& text = places[host];
    if (text.empty()) names.push_back(host);
    text += text.empty() ? "" : " ";
    text += last == first ? std::to_string(first) : fmt::format("{}-{}", first, last);
    first = last + 1;
  }
  std::string all;
  for (const std::string& name : names) {
    all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", name, places[name]);
  }
  return all;
}

}  // namespace trireme
