// The rules, for the registry.
#pragma once

#include "trireme/optim/update_rule.h"

namespace trireme::optim {

std::unique_ptr<UpdateRule> make_adafactor(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_adamw(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lamb(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lars(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_lion(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_muon(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_schedule_free(const RuleSettings& settings);
std::unique_ptr<UpdateRule> make_sgd(const RuleSettings& settings);

}  // namespace trireme::optim
