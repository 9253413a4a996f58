// Which rule updates which parameter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/name_patterns.h"
#include "trireme/nn/block.h"
#include "trireme/ops/averages.h"
#include "trireme/optim/update_rule.h"

namespace trireme::optim {

// Parameters that get other settings than most: a group of optim.groups.
struct RuleGroup {
  NamePatterns names;
  std::optional<RuleSettings> rule;  // empty: the one that they have without the group
  float rate = 1.0f;                 // factors on the learning rate and the decay of that
  float decay = 1.0f;
  bool operator==(const RuleGroup&) const = default;
};

struct OptimizerConfig {
  RuleSettings rule;  // optim.name
  // The settings of parameters that are no inner matrices, where `rule` is a rule of matrices.
  RuleSettings others;
  std::vector<RuleGroup> groups;
  // Query, key and value are so many matrices as they have heads.
  bool heads_apart = false;
  // An average of the weights over updates, for evaluations and exports.
  std::optional<ops::WeightAverage> average;
  bool decay_all = false;  // also parameters whose ParameterSpec::decay is false
  bool operator==(const OptimizerConfig&) const = default;

  // Whether evaluations have other weights than the steps, so that master values are apart from
  // weights in fp32, too.
  bool weights_apart() const { return average.has_value() || rule_averages(); }
  bool rule_averages() const;  // RuleKind::averages_weights of some rule

  // Throws ConfigError if a group gives a rule of matrices to a parameter that is none.
  RuleSettings of(const nn::ParameterSpec& parameter) const;
  // Throws ConfigError where a group names no parameter, or only frozen ones, or does not fit those
  // that it names.
  void check(const nn::ModelPlan& plan, const NamePatterns& frozen) const;
  // How many states a parameter of any kind has at most.
  std::size_t most_states() const;
};

}  // namespace trireme::optim
