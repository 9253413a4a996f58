#include "support/interleavings.h"

#include <array>
#include <cstdlib>
#include <exception>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/segments.h"

namespace trireme::testing {

std::optional<Finding> search_interleavings(int seeds,
                                            const std::function<void(std::uint64_t seed)>& run) {
  std::uint64_t first = 1, last = static_cast<std::uint64_t>(seeds);
  if (const char* count = std::getenv("TRIREME_INTERLEAVINGS"))
    last = std::strtoull(count, nullptr, 10);
  if (const char* one = std::getenv("TRIREME_SEED")) first = last = std::strtoull(one, nullptr, 10);
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    try {
      run(seed);
    } catch (const std::exception& error) {
      return Finding{seed, error.what()};
    }
  }
  return std::nullopt;
}

std::string found_in(int seeds, const std::function<void(std::uint64_t seed)>& run) {
  const auto finding = search_interleavings(seeds, run);
  if (!finding) return "";
  return fmt::format("{} (TRIREME_SEED={} replays it)", finding->what, finding->seed);
}

void expect(bool right, const std::string& what) {
  if (!right) throw InternalError(what);
}

SimulatedWorld::Options drawn_world(std::uint64_t seed) {
  Draws draws(seed);
  constexpr std::array<std::size_t, 3> kEager = {0, 64, std::size_t{1} << 20};
  return {.costs = {.latency = 1e-6},
          .seed = seed,
          .segment_bytes = draws.yes() ? std::size_t{200} : std::size_t{4096},
          .worthwhile_bytes = draws.yes() ? std::size_t{50} : kWorthwhileBytes,
          .eager_bytes = kEager[static_cast<std::size_t>(draws.below(3))]};
}

}  // namespace trireme::testing
