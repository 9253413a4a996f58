// What one rank has observed, told to all: references that one rank alone trains are trained once,
// not on every rank.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/equality.h"

namespace trireme::testing {

// Collective over `world`. The gradients, weights, losses and evaluation that `root` passes, with
// the same bits.
Observed told(const Observed& here, int root, Communicator& world);

// Collective over `world`. Observes each case by its key; the ranks share the work, and all get all
// results.
std::map<std::string, Observed> observe_shared(
    ops::Context& ctx, const ProcessGrid& alone,
    const std::vector<std::pair<std::string, EqualityCase>>& cases, Communicator& world);

// Collective over `world`. The gradients of the first step, which its first rank computes alone.
LocalParts gradients_alone(ops::Context& ctx, const ProcessGrid& alone, const EqualityCase& test,
                           Communicator& world);

}  // namespace trireme::testing
