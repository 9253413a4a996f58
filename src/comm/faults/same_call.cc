#include "comm/faults/same_call.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/comm/gather_lines.h"

namespace trireme {
namespace {

using Lines = std::vector<std::string>;

constexpr std::string_view kCommit = "commit ";

bool is_flag(std::string_view word) {
  return word.starts_with("--") && word.size() > 2;
}

// The commit, then each flag with its values, sorted by flags: "--run.seed 1".
Lines lines_of(const ProgramCall& call) {
  Lines settings;
  for (std::string word : call.arguments) {
    std::ranges::replace(word, '\n', ' ');
    if (is_flag(word)) {
      const std::size_t equals = word.find('=');
      if (equals != word.npos) word[equals] = ' ';
      settings.push_back(std::move(word));
    } else if (settings.empty()) {
      settings.push_back(std::move(word));
    } else {
      settings.back() += ' ' + word;
    }
  }
  const auto flag_of = [](std::string_view setting) {
    return setting.substr(0, setting.find(' '));
  };
  std::ranges::stable_sort(settings, {}, flag_of);
  settings.insert(settings.begin(), std::string(kCommit) + call.commit);
  return settings;
}

// FNV-1a.
std::int64_t fingerprint(const Lines& lines) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::string& line : lines) {
    for (const char c : line + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  return static_cast<std::int64_t>(hash);
}

// The first line that is in `lines` but not in `others`; empty: there is none.
std::string first_beyond(const Lines& lines, const Lines& others) {
  const auto found = std::ranges::find_if(lines, [&](const std::string& line) {
    return std::ranges::find(others, line) == others.end();
  });
  return found == lines.end() ? "" : *found;
}

std::string first_word(const std::string& line) {
  return line.substr(0, line.find(' '));
}

std::string line_that_begins(const Lines& lines, const std::string& word) {
  const auto found = std::ranges::find_if(
      lines, [&](const std::string& line) { return first_word(line) == word; });
  return found == lines.end() ? "" : *found;
}

// "ranks 1, 3, 5 and 2 more"
std::string words_for(const std::vector<int>& ranks) {
  constexpr std::size_t kNamed = 8;
  if (ranks.size() == 1) return fmt::format("rank {} has", ranks.front());
  const std::vector<int> named(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, ranks.size())));
  const std::string more =
      ranks.size() > kNamed ? fmt::format(" and {} more", ranks.size() - kNamed) : "";
  return fmt::format("ranks {}{} have", fmt::join(named, ", "), more);
}

std::string describe(const std::vector<Lines>& all) {
  const Lines& first = all.front();
  const auto other = std::ranges::find_if(all, [&](const Lines& lines) { return lines != first; });
  std::string theirs = first_beyond(*other, first);
  const std::string word = first_word(theirs.empty() ? first_beyond(first, *other) : theirs);
  const std::string ours = line_that_begins(first, word);
  theirs = line_that_begins(*other, word);
  std::vector<int> ranks;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (line_that_begins(all[rank], word) != ours) ranks.push_back(static_cast<int>(rank));
  }
  const auto or_none = [&](const std::string& line) { return line.empty() ? "no " + word : line; };
  return fmt::format("{} {}, rank 0 has {}: all ranks need the same {}", words_for(ranks),
                     or_none(theirs), or_none(ours),
                     word == first_word(std::string(kCommit)) ? "program" : "flags");
}

}  // namespace

std::optional<std::string> difference_between_ranks(Communicator& world, const ProgramCall& own) {
  const Lines lines = lines_of(own);
  const std::int64_t hash = fingerprint(lines);
  std::array<std::int64_t, 2> most = {hash, ~hash};  // the second gives the least
  world.all_reduce_host(std::span<std::int64_t>(most), ReduceOp::kMax);
  if (most[0] == ~most[1]) return std::nullopt;
  return describe(gather_lines(world, lines));
}

}  // namespace trireme
