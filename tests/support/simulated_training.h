// Training as support/equality.h has it, on ranks that are simulated, so that many layouts take
// seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/topology/simulated_ranks.h"

#include "support/comm_values.h"
#include "support/equality.h"
#include "support/simulated_network.h"

namespace trireme::testing {

// Returns what each rank of the case's grid observes.
inline std::vector<Observed> observe_simulated(const EqualityCase& test) {
  const int ranks = test.grid.ranks();
  std::vector<Observed> all(static_cast<std::size_t>(ranks));
  const SimulatedRanksOptions options;
  run_simulated_ranks(one_switch(ranks), ranks, options, [&](SimulatedRank& rank) {
    ops::Context ctx = ops::make_cpu_context(1);
    const ProcessGrid grid(rank, test.grid);
    all[static_cast<std::size_t>(rank.rank())] = observe(ctx, grid, test);
  });
  return all;
}

// Expects the bits of the tensor ranks of `expected`, which have one stage and one replica, and
// that somebody holds each of their parameters.
inline void expect_bits_of(const std::vector<Observed>& expected, const EqualityCase& test) {
  const auto expect_parts = [](const LocalParts& observed, const LocalParts& whole,
                               const char* what) {
    for (const auto& [name, part] : observed) {
      EXPECT_TRUE(same_bits(part.values, whole.at(name).values)) << what << " of " << name;
    }
  };
  SCOPED_TRACE(test.to_string());
  const std::vector<Observed> observed = observe_simulated(test);
  std::map<std::string, int> holders;
  for (std::size_t rank = 0; rank < observed.size(); ++rank) {
    const Observed& here = observed[rank];
    const Observed& whole = expected[rank % expected.size()];  // tensor ranks are neighbours
    EXPECT_EQ(here.losses, whole.losses);
    EXPECT_EQ(here.evaluation, whole.evaluation);
    expect_parts(here.gradients, whole.gradients, "gradient");
    expect_parts(here.weights, whole.weights, "weight");
    expect_parts(here.updated, whole.updated, "updated weight");
    for (const auto& [name, values] : here.states) {
      EXPECT_TRUE(same_bits(values, whole.states.at(name))) << name;
    }
    for (const auto& [name, part] : here.weights) ++holders[name];
  }
  for (const auto& [name, part] : expected.front().weights) {
    EXPECT_GT(holders[name], 0) << "nobody holds " << name;
  }
}

}  // namespace trireme::testing
