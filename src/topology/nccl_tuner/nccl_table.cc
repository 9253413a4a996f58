#include "trireme/topology/nccl_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

namespace trireme {
namespace {

constexpr std::string_view kTitle = "trireme-nccl-table 1";
constexpr std::string_view kAnySize = "any";

constexpr std::array<std::string_view, kNcclCollectives> kCollectiveNames{
    "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"};
constexpr std::array<std::string_view, kNcclAlgorithms> kAlgorithmNames{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, kNcclProtocols> kProtocolNames{"ll", "ll128", "simple"};

template <class Value, std::size_t size>
std::optional<Value> value_named(const std::array<std::string_view, size>& names,
                                 std::string_view name) {
  const auto* const found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Value>(found - names.begin());
}

std::optional<std::uint64_t> number_in(std::string_view word, std::uint64_t least,
                                       std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  if (value < least || value > most) return std::nullopt;
  return value;
}

// Cuts `text` at the first `separator` and returns what stands before it.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view first = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return first;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = cut(line, ' ');
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// "ring/simple" or "ring/simple/8"
std::optional<NcclCell> cell_of(std::string_view word) {
  const auto algorithm = value_named<NcclAlgorithm>(kAlgorithmNames, cut(word, '/'));
  const bool limited = word.find('/') != std::string_view::npos;
  const auto protocol = value_named<NcclProtocol>(kProtocolNames, cut(word, '/'));
  const auto channels =
      limited ? number_in(word, 1, kMostNcclChannels) : std::optional<std::uint64_t>(0);
  if (!algorithm || !protocol || !channels) return std::nullopt;
  return NcclCell{*algorithm, *protocol, static_cast<int>(*channels)};
}

// Takes a file line by line. Each function returns what is wrong with its line; nothing if all is
// well.
class Reader {
 public:
  std::string_view take(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words.front().starts_with('#')) return "";
    if (!titled_) {
      titled_ = line == kTitle;
      return titled_ ? "" : "the first line must be 'trireme-nccl-table 1'";
    }
    if (words.front() == "communicator") return communicator(words);
    if (tables_.empty()) return "rules come after a line 'communicator RANKS NODES'";
    if (words.front() == "compared") return compared(words);
    return rule(words);
  }
  bool titled() const { return titled_; }
  std::vector<NcclTable> result() { return std::move(tables_); }

 private:
  std::string_view communicator(const std::vector<std::string_view>& words) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
    const auto ranks = words.size() == 3 ? number_in(words[1], 1, kMost) : std::nullopt;
    const auto nodes = ranks ? number_in(words[2], 1, *ranks) : std::nullopt;
    if (!nodes) return "must be 'communicator RANKS NODES'";
    if (find_nccl_table(tables_, *ranks, *nodes) != nullptr) return "a second table of that size";
    tables_.push_back({*ranks, *nodes, {}, {}});
    return "";
  }

  std::string_view compared(const std::vector<std::string_view>& words) {
    for (const std::string_view word : std::span(words).subspan(1)) {
      const auto algorithm = value_named<NcclAlgorithm>(kAlgorithmNames, word);
      if (!algorithm) return "must be 'compared ALGORITHM...'";
      tables_.back().compared.push_back(*algorithm);
    }
    return "";
  }

  std::string_view rule(const std::vector<std::string_view>& words) {
    const auto collective = value_named<NcclCollective>(kCollectiveNames, words.front());
    const auto bytes = words.size() < 3       ? std::nullopt
                       : words[1] == kAnySize ? std::optional(NcclRule::kAllSizes)
                                              : number_in(words[1], 0, NcclRule::kAllSizes - 1);
    if (!collective || !bytes) {
      return "must be 'COLLECTIVE BYTES ALGORITHM/PROTOCOL[/CHANNELS]...'";
    }
    NcclRule made{*collective, *bytes, {}};
    for (const std::string_view word : std::span(words).subspan(2)) {
      const auto cell = cell_of(word);
      if (!cell) return "not ALGORITHM/PROTOCOL or ALGORITHM/PROTOCOL/CHANNELS";
      made.cells.push_back(*cell);
    }
    for (const NcclRule& known : tables_.back().rules) {
      if (known.collective == made.collective && known.most_bytes >= made.most_bytes) {
        return "sizes of a collective must rise";
      }
    }
    tables_.back().rules.push_back(std::move(made));
    return "";
  }

  bool titled_ = false;
  std::vector<NcclTable> tables_;
};

}  // namespace

std::string_view name_of(NcclCollective collective) {
  return kCollectiveNames.at(static_cast<std::size_t>(collective));
}
std::string_view name_of(NcclAlgorithm algorithm) {
  return kAlgorithmNames.at(static_cast<std::size_t>(algorithm));
}
std::string_view name_of(NcclProtocol protocol) {
  return kProtocolNames.at(static_cast<std::size_t>(protocol));
}

std::string write_nccl_tables(const std::vector<NcclTable>& tables) {
  std::string text(kTitle);
  text += '\n';
  const auto add = [&text](std::string_view word) { text.append(" ").append(word); };
  for (const NcclTable& table : tables) {
    text += "communicator";
    add(std::to_string(table.ranks));
    add(std::to_string(table.nodes));
    text += "\ncompared";
    for (const NcclAlgorithm algorithm : table.compared) add(name_of(algorithm));
    text += '\n';
    for (const NcclRule& rule : table.rules) {
      text += name_of(rule.collective);
      add(rule.most_bytes == NcclRule::kAllSizes ? kAnySize : std::to_string(rule.most_bytes));
      for (const NcclCell& cell : rule.cells) {
        add(name_of(cell.algorithm));
        text.append("/").append(name_of(cell.protocol));
        if (cell.channels > 0) text.append("/").append(std::to_string(cell.channels));
      }
      text += '\n';
    }
  }
  return text;
}

std::optional<std::vector<NcclTable>> read_nccl_tables(std::string_view text,
                                                       std::string& problem) {
  if (text.size() > kMostNcclTableBytes) {
    problem = "larger than 1 MiB";
    return std::nullopt;
  }
  Reader reader;
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view wrong = reader.take(cut(text, '\n'));
    if (wrong.empty()) continue;
    problem = "line " + std::to_string(line) + ": " + std::string(wrong);
    return std::nullopt;
  }
  if (!reader.titled()) {
    problem = "empty";
    return std::nullopt;
  }
  return reader.result();
}

const NcclTable* find_nccl_table(const std::vector<NcclTable>& tables, std::uint64_t ranks,
                                 std::uint64_t nodes) {
  const auto found = std::ranges::find_if(
      tables, [&](const NcclTable& table) { return table.ranks == ranks && table.nodes == nodes; });
  return found == tables.end() ? nullptr : &*found;
}

std::optional<NcclCell> choose_nccl_cell(const NcclTable& table, NcclCollective collective,
                                         std::uint64_t bytes, const NcclOffer& offer) {
  const auto rule = std::ranges::find_if(table.rules, [&](const NcclRule& candidate) {
    return candidate.collective == collective && bytes <= candidate.most_bytes;
  });
  if (rule == table.rules.end()) return std::nullopt;
  const auto time_of = [&offer](int algorithm, int protocol) {
    if (algorithm >= offer.algorithms || protocol >= offer.protocols) return -1.0f;
    return offer
        .times[static_cast<std::size_t>(algorithm) * static_cast<std::size_t>(offer.protocols) +
               static_cast<std::size_t>(protocol)];
  };
  // NCCL takes the first of the smallest times.
  int best = -1;
  float least = 0.0f;
  for (int algorithm = 0; algorithm < offer.algorithms; ++algorithm) {
    for (int protocol = 0; protocol < offer.protocols; ++protocol) {
      const float time = time_of(algorithm, protocol);
      if (time >= 0.0f && (best < 0 || time < least)) {
        best = algorithm;
        least = time;
      }
    }
  }
  if (best < 0 ||
      std::ranges::find(table.compared, static_cast<NcclAlgorithm>(best)) == table.compared.end()) {
    return std::nullopt;
  }
  for (const NcclCell& cell : rule->cells) {
    const float time = time_of(static_cast<int>(cell.algorithm), static_cast<int>(cell.protocol));
    if (time >= 0.0f) return cell;
  }
  return std::nullopt;
}

}  // namespace trireme
