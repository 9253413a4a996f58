#include "trireme/optim/rule_choice.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/nn/declared.h"

namespace trireme::optim {

// Where several groups say something of a setting, the last one counts; factors are multiplied.
RuleSettings OptimizerConfig::of(const nn::ParameterSpec& parameter) const {
  RuleSettings chosen = rule_kind(rule.name).of_matrices && !parameter.inner_matrix ? others : rule;
  float rate = 1.0f, decay = 1.0f;
  for (const RuleGroup& group : groups) {
    if (!group.names.match(parameter.name)) continue;
    if (group.rule) chosen = *group.rule;
    rate *= group.rate;
    decay *= group.decay;
  }
  if (rule_kind(chosen.name).of_matrices && parameter.placement.global.rank() < 2) {
    throw ConfigError(
        fmt::format("optim.groups gives {} to {}, which is no matrix: its patterns must leave "
                    "vectors out",
                    chosen.name, parameter.name));
  }
  chosen.rate *= rate;
  chosen.weight_decay *= decay;
  return chosen;
}

void OptimizerConfig::check(const nn::ModelPlan& plan, const NamePatterns& frozen) const {
  if (groups.empty()) return;
  std::vector<nn::ParameterSpec> parameters = nn::declared_parameters(plan);
  for (const RuleGroup& group : groups) {
    nn::refuse_patterns_without_match("optim.groups", group.names, parameters);
  }
  std::erase_if(parameters, [&](const auto& parameter) { return frozen.match(parameter.name); });
  for (const RuleGroup& group : groups) {
    if (std::ranges::any_of(
            parameters, [&](const auto& parameter) { return group.names.match(parameter.name); })) {
      continue;
    }
    throw ConfigError(fmt::format("optim.groups {}: optim.freeze takes all of these parameters",
                                  fmt::join(group.names.patterns(), ",")));
  }
  for (const nn::ParameterSpec& parameter : parameters) of(parameter);
}

bool OptimizerConfig::rule_averages() const {
  const auto averages = [](const RuleSettings& one) {
    return rule_kind(one.name).averages_weights;
  };
  return averages(rule) || std::ranges::any_of(groups, [&](const RuleGroup& group) {
           return group.rule && averages(*group.rule);
         });
}

std::size_t OptimizerConfig::most_states() const {
  std::size_t most = 0;
  const auto count = [&](const RuleSettings& one) {
    most = std::max(most, make_rule(one)->states({1}).size());
  };
  count(rule);
  if (rule_kind(rule.name).of_matrices) count(others);
  for (const RuleGroup& group : groups) {
    if (group.rule) count(*group.rule);
  }
  return most + (average ? 1 : 0);
}

}  // namespace trireme::optim
