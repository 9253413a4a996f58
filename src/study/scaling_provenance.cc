// The conditions of a study's points, for people.
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/study/conditions.h"

namespace trireme::scaling {
namespace {

constexpr const char* kNotRecorded = "not recorded";

// Splits "n07" into "n" and "07". At most nine digits count, so that the number fits an int; the
// rest belong to the stem.
struct HostName {
  std::string stem, digits;

  explicit HostName(const std::string& name) {
    std::size_t begin = name.size();
    while (begin > 0 && name.size() - begin < 9 &&
           std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) {
      --begin;
    }
    stem = name.substr(0, begin);
    digits = name.substr(begin);
  }
  int number() const { return std::stoi(digits); }
  bool is_followed_by(const HostName& next) const {
    return !digits.empty() && digits.size() == next.digits.size() && stem == next.stem &&
           number() + 1 == next.number();
  }
};

// Returns the values of one key, each once, in the order in which they appear.
std::vector<std::string> values_of(std::span<const PointResult> results,
                                   std::string Conditions::*key) {
  std::vector<std::string> values;
  for (const PointResult& result : results) {
    const std::string value = result.conditions ? (*result.conditions).*key : kNotRecorded;
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, " | "));
}

constexpr std::pair<const char*, std::string Conditions::*> kSame[] = {
    {"program", &Conditions::program},
    {"processor", &Conditions::processor},
    {"device", &Conditions::device},
    {"MPI", &Conditions::mpi},
    {"network", &Conditions::network}};

std::string launchers_text(std::span<const PointResult> results) {
  std::vector<std::string> texts;
  for (const std::string& launcher : values_of(results, &Conditions::launcher)) {
    std::string text = launcher;
    for (const PointResult& result : results) {
      if (!result.conditions || result.conditions->launcher != launcher) continue;
      const std::vector<std::string>& hosts = result.conditions->hosts;
      if (launcher != "mpiexec" || hosts.size() != 1 || result.point.nodes == 1) continue;
      text += fmt::format(" on {} alone, whose processors stand for all nodes", hosts[0]);
      break;
    }
    texts.push_back(text);
  }
  return joined(texts);
}

std::string hosts_text(std::span<const PointResult> results) {
  std::vector<std::string> hosts;
  bool all = true;
  for (const PointResult& result : results) {
    all = all && result.conditions;
    if (!result.conditions) continue;
    hosts.insert(hosts.end(), result.conditions->hosts.begin(), result.conditions->hosts.end());
  }
  const std::string text = host_ranges(hosts);
  return all ? text : text.empty() ? kNotRecorded : fmt::format("{} | {}", text, kNotRecorded);
}

std::string jobs_text(std::span<const PointResult> results) {
  constexpr std::size_t kMost = 12;  // the table of runs shows all of them
  std::vector<std::string> jobs = values_of(results, &Conditions::job);
  for (std::string& job : jobs) {
    if (job.empty()) job = "none";
  }
  if (jobs.size() <= kMost) return fmt::format("{}", fmt::join(jobs, ", "));
  return fmt::format("{} and {} more", fmt::join(jobs.begin(), jobs.begin() + kMost, ", "),
                     jobs.size() - kMost);
}

}  // namespace

std::string host_ranges(const std::vector<std::string>& hosts) {
  std::vector<HostName> names;
  std::set<std::string> seen;
  for (const std::string& host : hosts) {
    if (seen.insert(host).second) names.emplace_back(host);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size();) {
    // All hosts of one stem that follow each other in the list.
    const HostName& first = names[i];
    std::vector<std::string> ranges;
    do {
      std::size_t last = i;
      while (last + 1 < names.size() && names[last].is_followed_by(names[last + 1])) ++last;
      ranges.push_back(last == i ? names[i].digits
                                 : fmt::format("{}-{}", names[i].digits, names[last].digits));
      i = last + 1;
    } while (i < names.size() && names[i].stem == first.stem && !first.digits.empty() &&
             !names[i].digits.empty());
    const bool single = ranges.size() == 1 && ranges[0].find('-') == std::string::npos;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first.stem);
    text += single ? ranges[0] : fmt::format("[{}]", fmt::join(ranges, ","));
  }
  return text;
}

Facts facts_of(std::span<const PointResult> results) {
  Facts facts;
  if (results.empty()) return facts;
  for (const auto& [name, key] : kSame) {
    facts.emplace_back(name, joined(values_of(results, key)));
  }
  facts.emplace_back("run by", launchers_text(results));
  facts.emplace_back("hosts", hosts_text(results));
  facts.emplace_back("jobs", jobs_text(results));
  return facts;
}

std::vector<std::string> differences_of(std::span<const PointResult> results) {
  std::vector<std::string> lines;
  for (const auto& [name, key] : kSame) {
    std::vector<std::string> values = values_of(results, key);
    std::erase(values, kNotRecorded);
    if (values.size() < 2) continue;
    lines.push_back(
        fmt::format("the runs differ in {}, so compare them with care: {}", name, joined(values)));
  }
  return lines;
}

}  // namespace trireme::scaling
