#include "trireme/base/node_names.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace trireme
