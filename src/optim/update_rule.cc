#include "trireme/optim/update_rule.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/ops/elementwise.h"

#include "optim/rules.h"

namespace trireme::optim {

bool RuleKind::has(std::string_view key) const {
  return std::ranges::find(keys, key) != keys.end();
}

std::span<const RuleKind> rule_kinds() {
  static const std::array kKinds = {
      RuleKind{.name = "adafactor",
               .learning_rate = 1e-2,
               .defaults = {.name = "adafactor",
                            .epsilon = std::numeric_limits<float>::epsilon(),
                            .weight_decay = 0.0f,
                            .largest = 1.0f},
               .keys = {"eps", "adafactor_clip", "adafactor_decay"},
               .counts_updates = true,
               .make = make_adafactor},
      RuleKind{.name = "adam",
               .defaults = {.name = "adam", .coupled_decay = true, .momentum = 0.9f},
               .with_other_decay = "adamw",
               .keys = {"beta1", "beta2", "eps"},
               .counts_updates = true,
               .takes_split = true,
               .make = make_adamw},
      RuleKind{.name = "adamw",
               .defaults = {.momentum = 0.9f},
               .with_other_decay = "adam",
               .keys = {"beta1", "beta2", "eps"},
               .counts_updates = true,
               .takes_split = true,
               .make = make_adamw},
      RuleKind{.name = "lamb",
               .defaults = {.name = "lamb",
                            .beta2 = 0.999f,
                            .epsilon = 1e-6f,
                            .weight_decay = 0.01f,
                            .momentum = 0.9f},
               .keys = {"beta1", "beta2", "eps", "lamb_clip"},
               .counts_updates = true,
               .make = make_lamb},
      RuleKind{.name = "lars",
               .learning_rate = 1.0,
               .defaults =
                   {.name = "lars", .weight_decay = 1e-4f, .coupled_decay = true, .momentum = 0.9f},
               .keys = {"momentum", "nesterov", "lars_coefficient"},
               .make = make_lars},
      RuleKind{.name = "lion",
               .learning_rate = 1e-4,
               .defaults = {.name = "lion", .beta2 = 0.99f, .weight_decay = 1.0f, .momentum = 0.9f},
               .keys = {"beta1", "beta2"},
               .takes_split = true,
               .make = make_lion},
      RuleKind{.name = "muon",
               .defaults = {.name = "muon", .momentum = 0.95f, .nesterov = true},
               .keys = {"momentum", "nesterov", "muon_scale", "muon_precision", "muon_heads",
                        "adamw_lr"},
               .takes_split = true,
               .of_matrices = true,
               .make = make_muon},
      RuleKind{.name = "schedule_free",
               .learning_rate = 2.5e-3,
               .defaults = {.name = "schedule_free", .beta2 = 0.999f, .momentum = 0.9f},
               .keys = {"beta1", "beta2", "eps"},
               .counts_updates = true,
               .averages_weights = true,
               .make = make_schedule_free},
      RuleKind{.name = "sgd",
               .defaults = {.name = "sgd", .momentum = 0.9f},
               .with_other_decay = "sgd",
               .keys = {"momentum", "nesterov"},
               .takes_split = true,
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
         make_rule(a)->states({1}) == make_rule(b)->states({1});
}

void UpdateRule::write_weights(ops::Context& ctx, const FlatShard& shard,
                               const States& /*states*/) const {
  if (shard.weights.raw() != shard.master.raw()) ops::cast(ctx, shard.master, shard.weights);
}

void UpdateRule::update_all(ops::Context& ctx, std::span<const ShardUpdate> updates) const {
  for (const ShardUpdate& one : updates) update(ctx, one.shard, *one.states);
}

bool keeps_states(const RuleSettings& settings) {
  return !make_rule(settings)->states({1}).empty();
}

}  // namespace trireme::optim
