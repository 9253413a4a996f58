#include "trireme/base/node_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

constexpr std::size_t kMostDigits = 18;  // of a number that is certain to fit

// How many digits a name ends with that are its number.
std::size_t digits_of(std::string_view name) {
  std::size_t digits = 0;
  while (digits < name.size() && digits < kMostDigits && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9') {
    ++digits;
  }
  return digits;
}

// What stands before the number, and the digits of the number if some begin with 0; else 0.
using Family = std::pair<std::string, std::size_t>;

Family padded_family(const std::string& name) {
  const std::size_t digits = digits_of(name);
  return {name.substr(0, name.size() - digits), digits};
}

// Names like n08 and n10 are one family, n8 and n10 are another.
std::set<Family> padded_families(const std::vector<std::string>& names) {
  std::set<Family> families;
  for (const std::string& name : names) {
    const std::size_t digits = digits_of(name);
    if (digits > 1 && name[name.size() - digits] == '0') families.insert(padded_family(name));
  }
  return families;
}

std::string in_brackets(const Family& family, const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    std::string run = fmt::format("{:0{}}", numbers[i], family.second);
    if (last > i) run += fmt::format("-{:0{}}", numbers[last], family.second);
    runs.push_back(std::move(run));
    i = last + 1;
  }
  const std::string text = fmt::format("{}", fmt::join(runs, ","));
  return numbers.size() == 1 ? family.first + text : fmt::format("{}[{}]", family.first, text);
}

}  // namespace

namespace {

constexpr std::size_t kMostNameLength = 128;  // twice what Linux allows

// Expands one list. `end` is what ends a name: a comma, or the end of the list.
class NodeListParser {
 public:
  NodeListParser(std::string_view list, std::size_t most) : list_(list), rest_(list), most_(most) {}

  std::vector<std::string> names() {
    std::vector<std::string> all;
    while (!rest_.empty()) {
      std::vector<std::string> names = entry();
      require(all.size() + names.size() <= most_, fmt::format("more than {} names", most_));
      all.insert(all.end(), names.begin(), names.end());
      if (!rest_.empty()) rest_.remove_prefix(1);  // a comma
    }
    return all;
  }

 private:
  void require(bool ok, const std::string& what) const {
    if (!ok) throw ConfigError(fmt::format("the list of nodes '{}': {}", shown(list_), what));
  }
  // Reads an entry, up to a comma outside of brackets.
  std::vector<std::string> entry() {
    std::vector<std::string> names{""};
    while (!rest_.empty() && rest_.front() != ',') {
      if (rest_.front() == '[') {
        names = with_each(names, numbers());
        continue;
      }
      require(rest_.front() != ']', "a ] without its [");
      for (std::string& name : names) name += rest_.front();
      rest_.remove_prefix(1);
      check_length(names.front());
    }
    require(!names.front().empty(), "an empty name");
    return names;
  }
  // All names of an entry are about as long as the first one.
  void check_length(const std::string& name) const {
    require(name.size() <= kMostNameLength,
            fmt::format("a name of more than {} characters", kMostNameLength));
  }
  std::vector<std::string> with_each(const std::vector<std::string>& names,
                                     const std::vector<std::string>& numbers) const {
    require(names.size() <= most_ / numbers.size(), fmt::format("more than {} names", most_));
    check_length(names.front() + numbers.front());
    std::vector<std::string> result;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) result.push_back(name + number);
    }
    return result;
  }
  // The inside of brackets, "1-3,07", with as many digits as are written.
  std::vector<std::string> numbers() {
    const std::size_t end = rest_.find(']');
    require(end != std::string_view::npos, "a [ without its ]");
    std::string_view inside = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    std::vector<std::string> result;
    while (true) {
      const std::string_view range = inside.substr(0, inside.find(','));
      const std::size_t dash = range.find('-');
      const std::string_view low = range.substr(0, dash);
      const std::int64_t first = number(low);
      const std::int64_t last =
          dash == std::string_view::npos ? first : number(range.substr(dash + 1));
      require(first <= last, "a range that runs down");
      require(last - first < static_cast<std::int64_t>(most_ - std::min(most_, result.size())),
              fmt::format("more than {} names", most_));
      for (std::int64_t i = first; i <= last; ++i) {
        result.push_back(fmt::format("{:0{}}", i, low.size()));
      }
      if (range.size() == inside.size()) return result;
      inside.remove_prefix(range.size() + 1);
    }
  }
  std::int64_t number(std::string_view digits) const {
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, value);
    require(!digits.empty() && digits.size() <= kMostDigits && result.ptr == end && value >= 0,
            fmt::format("'{}' is no number", shown(digits)));
    return value;
  }

  std::string_view list_, rest_;
  std::size_t most_;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, std::size_t most) {
  return NodeListParser(list, most).names();
}

std::string host_name() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) return "unknown host";
  return host;
}

std::string node_list(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::set<Family> padded = padded_families(names);
  std::map<Family, std::vector<std::int64_t>> numbered;
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    const std::size_t digits = digits_of(name);
    if (digits == 0) {
      texts.push_back(name);
    } else {
      Family family = padded_family(name);
      if (!padded.contains(family)) family.second = 0;
      numbered[family].push_back(std::stoll(name.substr(name.size() - digits)));
    }
  }
  for (auto& [family, numbers] : numbered) {
    std::sort(numbers.begin(), numbers.end());
    texts.push_back(in_brackets(family, numbers));
  }
  std::sort(texts.begin(), texts.end());
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<int> match_nodes(const std::vector<std::string>& wanted,
                             const std::vector<std::string>& known) {
  constexpr int kSeveral = -2;
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  std::map<std::string_view, int> names, short_names;  // of `known`: index, or kSeveral
  for (std::size_t i = 0; i < known.size(); ++i) {
    const int index = static_cast<int>(i);
    if (!names.emplace(known[i], index).second) continue;  // the same name once more
    const auto [at, is_new] = short_names.emplace(short_name(known[i]), index);
    if (!is_new) at->second = kSeveral;
  }
  std::map<std::string_view, std::string_view> asked;  // of each short name; empty: several
  for (const std::string& name : wanted) {
    const auto [at, is_new] = asked.emplace(short_name(name), name);
    if (!is_new && at->second != name) at->second = {};
  }
  std::vector<int> found;
  found.reserve(wanted.size());
  for (const std::string& name : wanted) {
    const auto exact = names.find(name);
    const auto similar = short_names.find(short_name(name));
    found.push_back(exact != names.end() ? exact->second
                    : similar == short_names.end() || similar->second == kSeveral ||
                            asked.at(short_name(name)).empty()
                        ? -1
                        : similar->second);
  }
  return found;
}

}  // namespace trireme
