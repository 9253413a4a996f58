// The rules, for the registry.
#pragma once

#include "trireme/optim/update_rule.h"

namespace trireme::optim {

std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config);
std::unique_ptr<UpdateRule> make_lion(const OptimizerConfig& config);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config);

}  // namespace trireme::optim
