#include "trireme/optim/update_rule.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"

#include "optim/rules.h"

namespace trireme::optim {

std::span<const RuleKind> rule_kinds() {
  static const std::array kKinds = {
      RuleKind{.name = "adam",
               .defaults = {.name = "adam", .coupled_decay = true, .momentum = 0.9f},
               .with_other_decay = "adamw",
               .counts_updates = true,
               .make = make_adamw},
      RuleKind{.name = "adamw",
               .defaults = {.momentum = 0.9f},
               .with_other_decay = "adam",
               .counts_updates = true,
               .make = make_adamw},
      RuleKind{.name = "lion",
               .learning_rate = 1e-4,
               .defaults = {.name = "lion", .beta2 = 0.99f, .weight_decay = 1.0f, .momentum = 0.9f},
               .make = make_lion},
      RuleKind{.name = "muon",
               .defaults = {.name = "muon", .momentum = 0.95f, .nesterov = true},
               .has_nesterov = true,
               .of_matrices = true,
               .make = make_muon},
      RuleKind{.name = "sgd",
               .defaults = {.name = "sgd", .momentum = 0.9f},
               .with_other_decay = "sgd",
               .has_nesterov = true,
               .make = make_sgd},
  };
  return kKinds;
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const RuleKind& kind : rule_kinds()) names.emplace_back(kind.name);
  return names;
}

const RuleKind& rule_kind(std::string_view name) {
  const auto found = std::ranges::find(rule_kinds(), name, &RuleKind::name);
  if (found == rule_kinds().end()) {
    throw InternalError("there is no optimizer " + std::string(name));
  }
  return *found;
}

std::unique_ptr<UpdateRule> make_rule(const RuleSettings& settings) {
  return rule_kind(settings.name).make(settings);
}

bool keep_same_states(const RuleSettings& a, const RuleSettings& b) {
  return rule_kind(a.name).make == rule_kind(b.name).make &&
         make_rule(a)->states() == make_rule(b)->states();
}

}  // namespace trireme::optim
