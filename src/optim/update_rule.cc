#include "trireme/optim/update_rule.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"

#include "optim/rules.h"

namespace trireme::optim {

std::span<const RuleKind> rule_kinds() {
  static const std::array kKinds = {
      RuleKind{.name = "adam",
               .defaults = {.rule = "adam", .coupled_decay = true, .momentum = 0.9f},
               .with_other_decay = "adamw",
               .make = make_adamw},
      RuleKind{.name = "adamw",
               .defaults = {.momentum = 0.9f},
               .with_other_decay = "adam",
               .make = make_adamw},
      RuleKind{.name = "lion",
               .learning_rate = 1e-4,
               .defaults = {.rule = "lion", .beta2 = 0.99f, .weight_decay = 1.0f, .momentum = 0.9f},
               .make = make_lion},
      RuleKind{.name = "sgd",
               .defaults = {.rule = "sgd", .momentum = 0.9f},
               .with_other_decay = "sgd",
               .has_nesterov = true,
               .make = make_sgd},
  };
  return kKinds;
}

const RuleKind& rule_kind(std::string_view name) {
  const auto found = std::ranges::find(rule_kinds(), name, &RuleKind::name);
  if (found == rule_kinds().end()) {
    throw InternalError("there is no optimizer " + std::string(name));
  }
  return *found;
}

std::unique_ptr<UpdateRule> make_rule(const OptimizerConfig& config) {
  return rule_kind(config.rule).make(config);
}

bool keep_same_states(const OptimizerConfig& a, const OptimizerConfig& b) {
  return rule_kind(a.rule).make == rule_kind(b.rule).make &&
         make_rule(a)->states() == make_rule(b)->states();
}

}  // namespace trireme::optim
