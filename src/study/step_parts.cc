#include "trireme/study/step_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/study/bench.h"
#include "trireme/tensor/dtype.h"

namespace trireme::bench {
namespace {

constexpr std::size_t kMostLines = 40;
constexpr std::size_t kNameWidth = 56;

StepPart& operator+=(StepPart& sum, const StepPart& more) {
  sum.calls += more.calls;
  sum.seconds += more.seconds;
  sum.flops += more.flops;
  sum.bytes += more.bytes;
  return sum;
}

// The means of sums over so many steps, the longest first.
std::vector<StepPart> means(const std::map<std::string, StepPart>& sums, double steps) {
  std::vector<StepPart> parts;
  for (const auto& [name, sum] : sums) {
    parts.push_back(
        {sum.name, sum.calls / steps, sum.seconds / steps, sum.flops / steps, sum.bytes / steps});
  }
  std::ranges::stable_sort(parts, std::ranges::greater(), &StepPart::seconds);
  return parts;
}

std::string name_of_operation(const ops::OperationTimes::Key& key) {
  const auto& [name, dtype, sizes, flops, bytes] = key;
  std::string text = fmt::format("{} {}", name, trireme::name_of(dtype));
  bool first = true;
  for (const std::int64_t size : sizes) {
    if (size <= 0) continue;
    text += fmt::format("{}{}", std::exchange(first, false) ? " " : " x ", size);
  }
  return text;
}

double seconds_in(const cuda::DeviceWork& work) {
  return static_cast<double>(work.end_ns - work.begin_ns) * 1e-9;
}

// Nanoseconds between the first kernel's begin and the last one's end in which none ran.
std::int64_t gaps_between(const std::vector<cuda::DeviceWork>& work) {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const cuda::DeviceWork& one : work) {
    if (one.kernel) spans.emplace_back(one.begin_ns, one.end_ns);
  }
  if (spans.empty()) return 0;
  std::ranges::sort(spans);
  std::int64_t gaps = 0, end = spans.front().second;
  for (const auto& [begin, its_end] : spans) {
    gaps += std::max<std::int64_t>(0, begin - end);
    end = std::max(end, its_end);
  }
  return gaps;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

void erase_all(std::string& text, std::string_view what) {
  for (std::size_t at; (at = text.find(what)) != std::string::npos;) text.erase(at, what.size());
}

bool in_name(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::optional<double> median_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

// A name that is longer than its column loses its middle, since templates begin alike.
std::string fitted(const std::string& name) {
  if (name.size() <= kNameWidth) return name;
  constexpr std::size_t kBegin = 32, kEnd = kNameWidth - kBegin - 3;
  return name.substr(0, kBegin) + "..." + name.substr(name.size() - kEnd);
}

std::string or_dash(bool known, double value) {
  return known ? fmt::format("{:.3f}", value) : "-";
}

// A line for parts together, whose floor is known if each one's is.
std::string row_text(const std::string& name, std::span<const StepPart> parts, const Roof& roof,
                     double step) {
  StepPart all;
  std::optional<double> floor = 0.0;
  for (const StepPart& part : parts) {
    all += part;
    const std::optional<double> more = part.floor(roof);
    floor = floor && more ? std::optional(*floor + *more) : std::nullopt;
  }
  const bool share = floor && all.seconds > 0.0;
  return fmt::format("{:<{}}{:>8.6g}{:>11.3f}{:>10}{:>10}{:>11}{:>8}{:>8.1f}", fitted(name),
                     kNameWidth, all.calls, all.seconds * 1e3,
                     or_dash(all.flops > 0.0, all.flops * 1e-9),
                     or_dash(all.bytes > 0.0, all.bytes * 1e-6),
                     or_dash(floor.has_value(), floor.value_or(0.0) * 1e3),
                     share ? fmt::format("{:.1f}", 100.0 * *floor / all.seconds) : "-",
                     100.0 * all.seconds / step);
}

}  // namespace

std::optional<double> StepPart::floor(const Roof& roof) const {
  if (flops <= 0.0 && bytes <= 0.0) return std::nullopt;
  return roof.floor(flops, bytes);
}

double StepParts::sum() const {
  double seconds = 0.0;
  for (const StepPart& part : parts) seconds += part.seconds;
  return seconds;
}

StepParts operation_parts(const ops::OperationTimes& times, int steps, double step) {
  std::map<std::string, StepPart> sums;
  for (const auto& [key, seconds] : times.calls()) {
    StepPart part{.name = name_of_operation(key)};
    part.calls = static_cast<double>(seconds.size());
    for (const double one : seconds) part.seconds += one;
    part.flops = part.calls * std::get<3>(key);
    part.bytes = part.calls * std::get<4>(key);
    sums.try_emplace(part.name, StepPart{.name = part.name}).first->second += part;
  }
  return {.parts = means(sums, steps), .step = step};
}

std::string short_kernel_name(const std::string& mangled) {
  std::string name = demangled(mangled);
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "<unnamed>::");
  // The parameters, the last pair of parentheses. A function that is a template names its result
  // first, and a kernel's is void.
  if (name.ends_with(')')) {
    int depth = 0;
    for (std::size_t at = name.size(); at-- > 0;) {
      depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
      if (depth > 0) continue;
      name.erase(at);
      break;
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  for (std::size_t at = 0; (at = name.find("::", at)) != std::string::npos;) {
    std::size_t begin = at;
    while (begin > 0 && in_name(name[begin - 1])) --begin;
    if (begin == at) {  // behind a template's arguments, which tell one kernel from another
      at += 2;
      continue;
    }
    name.erase(begin, at + 2 - begin);
    at = begin;
  }
  return name;
}

void KernelSum::add(const cuda::KernelRecords& records, double step_seconds,
                    std::span<const ops::OperationTimes::Key> operations) {
  std::vector<double> seconds_of(operations.size());
  const auto place_of = [&](const cuda::DeviceWork& work) {
    const std::size_t place = work.operation - 1;  // 0 becomes the largest
    return place < operations.size() ? std::optional(place) : std::nullopt;
  };
  for (const cuda::DeviceWork& work : records.work) {
    if (const auto place = place_of(work)) seconds_of[*place] += seconds_in(work);
  }
  for (const cuda::DeviceWork& work : records.work) {
    auto found = parts_.find(work.name);
    if (found == parts_.end()) {
      const std::string name = work.kernel ? short_kernel_name(work.name) : work.name;
      found = parts_.try_emplace(work.name, StepPart{.name = name}).first;
    }
    StepPart part{.name = {}, .calls = 1.0, .seconds = seconds_in(work), .bytes = work.bytes};
    const auto place = place_of(work);
    if (place && seconds_of[*place] > 0.0) {
      const double share = part.seconds / seconds_of[*place];
      part.flops = share * std::get<3>(operations[*place]);
      part.bytes = share * std::get<4>(operations[*place]);
    }
    found->second += part;
  }
  ++steps_;
  seconds_ += step_seconds;
  gaps_ += static_cast<double>(gaps_between(records.work)) * 1e-9;
  lost_ += records.lost;
}

StepParts KernelSum::mean() const {
  TRIREME_CHECK(steps_ > 0, "the mean of no steps");
  const double steps = steps_;
  return {.parts = means(parts_, steps),
          .step = seconds_ / steps,
          .gaps = gaps_ / steps,
          .lost = lost_};
}

KernelParts kernel_parts(const OpenTrace& open, int steps, const TracedStep& step) {
  KernelParts result;
  std::unique_ptr<cuda::KernelTrace> trace;
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const CudaError& error) {
      result.why_not = error.what();
      trace.reset();
    }
  };
  attempt([&] { trace = open(); });
  const auto drop_earlier = [&] {
    if (trace) attempt([&] { trace->take(); });
  };
  const auto traced_step = [&] {
    std::shared_ptr<ops::OperationTimes> operations;
    if (trace) {
      operations = std::make_shared<ops::OperationTimes>([&](std::uint64_t number) {
        if (!trace) return;
        attempt([&] { number == 0 ? trace->end_operation() : trace->begin_operation(number); });
      });
    }
    const double seconds = step(drop_earlier, operations);
    return std::pair(seconds, operations);
  };
  traced_step();  // the first launch of each kernel under a trace takes longer
  KernelSum sum;
  for (int i = 0; i < steps; ++i) {
    const auto [seconds, operations] = traced_step();
    if (trace) attempt([&, s = seconds] { sum.add(trace->take(), s, operations->marked()); });
  }
  if (!trace) return result;
  result.parts = sum.mean();
  if (!result.parts->parts.empty()) return result;
  return {.parts = {}, .why_not = "CUPTI recorded no kernel"};
}

GpuState gpu_state(const std::vector<cuda::HealthReport>& reports, std::string_view pci_bus_id) {
  GpuState state;
  std::vector<double> clocks, powers;
  for (const cuda::HealthReport& report : reports) {
    if (!report.why_not.empty()) state.why_not = report.why_not;
    for (const cuda::GpuHealth& gpu : report.gpus) {
      if (gpu.pci_bus_id != pci_bus_id) continue;
      if (gpu.clock) clocks.push_back(*gpu.clock);
      if (gpu.max_clock) state.max_clock = *gpu.max_clock;
      if (gpu.power) powers.push_back(*gpu.power);
      state.slowed_by_heat |= gpu.slowed_by_heat;
      state.slowed_by_power |= gpu.slowed_by_power;
    }
  }
  state.clock = median_of(std::move(clocks));
  state.power = median_of(std::move(powers));
  if (state.clock || state.power) {
    state.why_not.clear();
  } else if (state.why_not.empty()) {
    state.why_not = fmt::format("NVML tells nothing of the GPU at {}", pci_bus_id);
  }
  return state;
}

std::vector<std::string> parts_table(std::string_view what, const StepParts& parts,
                                     const Roof& roof) {
  std::vector<std::string> lines{fmt::format("{:<{}}{:>8}{:>11}{:>10}{:>10}{:>11}{:>8}{:>8}", what,
                                             kNameWidth, "calls", "ms", "GFLOP", "MB", "floor ms",
                                             "roof %", "step %")};
  const std::span<const StepPart> all = parts.parts;
  const std::size_t shown = std::min(all.size(), kMostLines);
  for (const StepPart& part : all.first(shown)) {
    lines.push_back(row_text(part.name, {&part, 1}, roof, parts.step));
  }
  const auto rest = all.subspan(shown);
  if (!rest.empty()) {
    lines.push_back(row_text(fmt::format("{} others", rest.size()), rest, roof, parts.step));
  }
  lines.push_back(row_text("sum", all, roof, parts.step));
  const auto time = [&](std::string_view name, double seconds) {
    lines.push_back(fmt::format("{:<{}}{:>8}{:>11.3f}{:>50.1f}", name, kNameWidth, "",
                                seconds * 1e3, 100.0 * seconds / parts.step));
  };
  if (parts.gaps) time("gaps in which no kernel ran", *parts.gaps);
  time("the step", parts.step);
  if (parts.lost > 0) {
    lines.push_back(
        fmt::format("{} records of kernels were lost: the table lacks them", parts.lost));
  }
  return lines;
}

std::string gpu_state_text(const GpuState& state) {
  if (!state.why_not.empty()) return "GPU: clocks and power are not known: " + state.why_not;
  std::string text = "GPU:";
  if (state.clock) text += fmt::format(" {:.0f}", *state.clock);
  if (state.clock && state.max_clock) text += fmt::format(" of {:.0f}", *state.max_clock);
  if (state.clock) text += " MHz";
  if (state.clock && state.power) text += ",";
  if (state.power) text += fmt::format(" {:.0f} W", *state.power);
  if (state.slowed_by_heat) text += ", slowed by heat";
  if (state.slowed_by_power) text += ", slowed by power";
  return text;
}

}  // namespace trireme::bench
