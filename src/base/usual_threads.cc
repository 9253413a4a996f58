#include "trireme/base/usual_threads.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <thread>

#include "trireme/base/control_group.h"
#include "trireme/base/environment.h"

namespace trireme {

std::optional<int> openmp_threads() {
  const std::string text = environment("OMP_NUM_THREADS");  // "4", or "4,2" for nested regions
  int threads = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const bool ends = end == text.data() + text.size() || *end == ',';
  if (fault != std::errc() || !ends || threads < 1) return {};
  return threads;
}

int cores_within(int cores, std::optional<double> quota) {
  if (!quota) return cores;
  constexpr double kRounding = 1e-6;  // three thirds make one core
  return std::clamp(static_cast<int>(std::min(*quota + kRounding, 1e6)), 1, cores);
}

int usual_threads(int cores) {
  return std::min(cores, openmp_threads().value_or(cores));
}

int usual_threads() {
  const auto least = least_limit(group_limits(GroupResource::kProcessors));
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return usual_threads(cores_within(cores, least ? std::optional(least->amount) : std::nullopt));
}

}  // namespace trireme
