// A search for orders of events in which something goes wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "trireme/topology/simulated_ranks.h"

namespace trireme::testing {

struct Finding {
  std::uint64_t seed;
  std::string what;
};

// Calls `run` with the seeds 1 to `seeds`, in order, and returns the first that it throws for. With
// TRIREME_INTERLEAVINGS=N in the environment it takes N seeds instead, and with TRIREME_SEED=N only
// the seed N.
std::optional<Finding> search_interleavings(int seeds,
                                            const std::function<void(std::uint64_t seed)>& run);

// The same as a sentence, which says how to replay it. Empty if there is no finding.
std::string found_in(int seeds, const std::function<void(std::uint64_t seed)>& run);

// Throws InternalError with this text unless `right`.
void expect(bool right, const std::string& what);

// What a seed decides besides the order of events: which messages leave before they are received,
// and how reductions are cut.
SimulatedWorld::Options drawn_world(std::uint64_t seed);

// Draws what a rank does, from the seed and its number.
class Draws {
 public:
  explicit Draws(std::uint64_t seed, int rank = 0)
      : random_(seed * 7919 + static_cast<std::uint64_t>(rank)) {}
  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
  bool yes() { return below(2) == 1; }

 private:
  std::mt19937_64 random_;
};

}  // namespace trireme::testing
