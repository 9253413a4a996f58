// What the keys optim.* come to.
#pragma once

#include "trireme/config/config.h"
#include "trireme/nn/block.h"
#include "trireme/optim/rule_choice.h"

namespace trireme {

// The keys with a value for each that the rule has a default for.
Config::Optim with_defaults_of_rule(Config::Optim optim);
// What the optimizer is told: optim.*, and the defaults of its rules. Throws ConfigError for
// optim.groups that are none.
optim::OptimizerConfig optimizer_of(const Config& config);
// The steps from whose micro-batches the running statistics of averaged weights are computed anew:
// as many as have those of optim.recompute_norms, or of its default. 0: nothing is computed anew.
int recomputed_steps(const Config& config, const nn::ModelPlan& model);
// Throws ConfigError for keys that the rules do not have, or that contradict each other.
void check_optimizer(const Config& config);

}  // namespace trireme
