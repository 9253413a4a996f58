#include "trireme/config/optimizer_config.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr const char* kOthers = "adamw";  // of parameters that are no matrices
constexpr double kRateOfOriginalMuon = 0.02;

// The keys as another rule of the same run reads them.
Config::Optim as_read_by(Config::Optim optim, std::string_view rule) {
  optim.name = rule;
  return with_defaults_of_rule(std::move(optim));
}

DType type_of_matrices(const Config& config) {
  const std::string& type =
      config.optim.muon_precision.value_or(config.run.precision == "fp32" ? "fp32" : "bf16");
  return type == "fp32" ? DType::kF32 : DType::kBF16;
}

float largest_of(const Config::Optim& optim, const optim::RuleKind& kind) {
  if (kind.name == "adafactor") return static_cast<float>(optim.adafactor_clip);
  return optim.lamb_clip == 0.0 ? kind.defaults.largest : static_cast<float>(optim.lamb_clip);
}

std::optional<ops::WeightAverage> average_of(const Config::Optim& optim) {
  if (optim.average == "none") return std::nullopt;
  return ops::WeightAverage{
      .decay = optim.average == "swa" ? 1.0f : static_cast<float>(optim.average_decay),
      .from = optim.average_from.epochs() ? 0 : std::int64_t{optim.average_from}};
}

// The settings of a rule that some parameters get.
optim::RuleSettings settings_of(const Config& config, std::string_view rule) {
  const Config::Optim optim = as_read_by(config.optim, rule);
  const optim::RuleKind& kind = optim::rule_kind(rule);
  const Config::Optim main = with_defaults_of_rule(config.optim);
  const bool beside_muon = rule != main.name && optim::rule_kind(main.name).of_matrices;
  return {.name = optim.name,
          .rate = beside_muon ? static_cast<float>(*main.adamw_lr / *main.lr) : 1.0f,
          .beta1 = static_cast<float>(*optim.beta1),
          .beta2 = static_cast<float>(*optim.beta2),
          .epsilon = static_cast<float>(*optim.eps),
          .weight_decay = static_cast<float>(*optim.weight_decay),
          .coupled_decay = kind.with_other_decay == rule && optim.decay
                               ? *optim.decay == "coupled"
                               : kind.defaults.coupled_decay,
          .momentum = static_cast<float>(*optim.momentum),
          .nesterov = *optim.nesterov,
          .scale = optim.muon_scale == "original" ? optim::MatrixScale::kOriginal
                                                  : optim::MatrixScale::kLikeAdamW,
          .matrices = type_of_matrices(config),
          .coefficient = static_cast<float>(optim.lars_coefficient),
          .largest = largest_of(optim, kind),
          .share_decay = static_cast<float>(optim.adafactor_decay)};
}

[[noreturn]] void refuse_group(std::string_view group, const std::string& what) {
  throw ConfigError(
      fmt::format("optim.groups: {} {}; expected PATTERN,...: [RULE] [lr=FACTOR] [decay=FACTOR], "
                  "and ; between groups, as in 'embedding.*: lr=0.5; *.down.weight: lion lr=0.1'",
                  shown(std::string(group)), what));
}

constexpr const char* kRuleOfGroup = "optimizer";

// "lr=0.5", "decay=0" or "lion". Returns what it sets: "lr", "decay" or kRuleOfGroup.
std::string read_setting(const Config& config, std::string_view text, const std::string& setting,
                         optim::RuleGroup& group) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos) {
    const std::vector<std::string> names = optim::rule_names();
    if (std::ranges::find(names, setting) == names.end()) {
      refuse_group(text, fmt::format("names no optimizer: {} is none of {}", shown(setting),
                                     fmt::join(names, ", ")));
    }
    group.rule = settings_of(config, setting);
    return kRuleOfGroup;
  }
  const std::string name = setting.substr(0, equals);
  if (name != "lr" && name != "decay") refuse_group(text, fmt::format("has no {}", shown(name)));
  double factor = 0.0;
  if (!read_value(setting.substr(equals + 1), factor, between(0, limits::kReal)).empty()) {
    refuse_group(text, fmt::format("has a factor that is no number from 0: {}", shown(setting)));
  }
  (name == "lr" ? group.rate : group.decay) = static_cast<float>(factor);
  return name;
}

std::vector<optim::RuleGroup> groups_of(const Config& config) {
  std::vector<optim::RuleGroup> groups;
  if (config.optim.groups == "none") return groups;
  std::istringstream all(config.optim.groups);
  for (std::string text; std::getline(all, text, ';');) {
    if (text.find_first_not_of(" \t") == std::string::npos) continue;
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos) refuse_group(text, "has no colon");
    optim::RuleGroup& group = groups.emplace_back();
    group.names = NamePatterns::of_list(text.substr(0, colon));
    if (group.names.has_empty_pattern()) refuse_group(text, "holds an empty pattern");
    std::istringstream settings(text.substr(colon + 1));
    std::string setting;
    if (!(settings >> setting)) refuse_group(text, "says nothing of its parameters");
    std::set<std::string> set;
    do {
      const auto [kind, is_new] = set.insert(read_setting(config, text, setting, group));
      if (!is_new) refuse_group(text, fmt::format("has more than one {}", *kind));
    } while (settings >> setting);
  }
  if (groups.empty()) refuse_group(config.optim.groups, "holds no group");
  return groups;
}

// Whether some parameters get a rule for which `is` holds.
template <class Is>
bool some_rule(const optim::OptimizerConfig& optimizer, const Is& is) {
  const auto holds = [&](const optim::RuleSettings& rule) {
    return is(optim::rule_kind(rule.name));
  };
  return holds(optimizer.rule) ||
         std::ranges::any_of(optimizer.groups, [&](const optim::RuleGroup& group) {
           return group.rule && holds(*group.rule);
         });
}

void check_decay(const Config::Optim& optim) {
  if (!optim.decay) return;
  const optim::RuleKind& kind = optim::rule_kind(optim.name);
  if ((*optim.decay == "coupled") == kind.defaults.coupled_decay) return;
  if (kind.with_other_decay.empty()) {
    throw ConfigError(fmt::format("optim.decay is {}, which {} does not have: leave it out",
                                  *optim.decay, optim.name));
  }
  if (kind.with_other_decay == kind.name) return;
  throw ConfigError(fmt::format(
      "optim.decay is {}, but optim.name is {}: give --optim.name {}, which is the same with such "
      "decay",
      *optim.decay, optim.name, kind.with_other_decay));
}

void check_nesterov(const Config::Optim& optim, const optim::OptimizerConfig& optimizer) {
  if (!optim.nesterov.value_or(false)) return;
  if (!some_rule(optimizer, [](const optim::RuleKind& kind) { return kind.has_nesterov; })) {
    throw ConfigError(
        fmt::format("optim.nesterov is true, but optim.name is {}: only lars, muon and sgd have it",
                    optim.name));
  }
  // The optimizer has an fp32 number, in which the least numbers are 0, too.
  if (optimizer.rule.momentum == 0.0f) {
    throw ConfigError("optim.nesterov is true, but optim.momentum is 0: give it one, such as 0.9");
  }
}

// Keys of a rule that no parameter gets would do nothing.
void check_keys_of_rules(const Config::Optim& optim, const optim::OptimizerConfig& optimizer) {
  const auto refuse = [&](std::string_view key, std::string_view rule) {
    throw ConfigError(
        fmt::format("{} is given, but optim.name is {}: only {} has it, so leave it out", key,
                    optim.name, rule));
  };
  if (optim.adamw_lr && !optim::rule_kind(optim.name).of_matrices) refuse("optim.adamw_lr", "muon");
  const Config::Optim usual;
  const struct {
    std::string_view key, rule;
    bool given;
  } keys[] = {
      {"optim.muon_scale", "muon", optim.muon_scale != usual.muon_scale},
      {"optim.muon_precision", "muon", optim.muon_precision.has_value()},
      {"optim.muon_heads", "muon", optim.muon_heads},
      {"optim.lamb_clip", "lamb", optim.lamb_clip != usual.lamb_clip},
      {"optim.lars_coefficient", "lars", optim.lars_coefficient != usual.lars_coefficient},
      {"optim.adafactor_clip", "adafactor", optim.adafactor_clip != usual.adafactor_clip},
      {"optim.adafactor_decay", "adafactor", optim.adafactor_decay != usual.adafactor_decay},
  };
  for (const auto& [key, rule, given] : keys) {
    const auto is = [rule = rule](const optim::RuleKind& kind) { return kind.name == rule; };
    if (given && !some_rule(optimizer, is)) refuse(key, rule);
  }
}

void check_average(const Config& config) {
  const Config usual;
  const Config::Optim& optim = config.optim;
  const auto refuse = [](std::string_view key, const char* why) {
    throw ConfigError(fmt::format("{} is given, but {}", key, why));
  };
  const bool none = optim.average == "none";
  constexpr const char* kNone =
      "optim.average is none: give --optim.average ema or swa, or leave it out";
  if (none && config.eval.weights == "average") refuse("eval.weights average", kNone);
  if (none && !(optim.average_from == usual.optim.average_from))
    refuse("optim.average_from", kNone);
  if (optim.average_decay != usual.optim.average_decay && optim.average != "ema") {
    refuse("optim.average_decay", "optim.average is not ema: leave it out");
  }
  const bool rule_averages = optimizer_of(config).rule_averages();
  if (none && !rule_averages && optim.recompute_norms) refuse("optim.recompute_norms", kNone);
  if (!rule_averages) return;
  if (!none) refuse("optim.average", "schedule_free averages the weights itself: leave it out");
  if (config.schedule.name != "constant") {
    throw ConfigError(
        fmt::format("schedule.name is {}, but schedule_free's average takes the place of a decay: "
                    "give --schedule.name constant, which has a warm-up, too",
                    config.schedule.name));
  }
}

}  // namespace

Config::Optim with_defaults_of_rule(Config::Optim optim) {
  const optim::RuleKind& kind = optim::rule_kind(optim.name);
  const auto fill = [](std::optional<double>& key, double usual) { key = key.value_or(usual); };
  // 0.1f is 0.1 to its reader.
  const auto same_digits = [](float value) { return std::stod(fmt::format("{}", value)); };
  const bool original = kind.of_matrices && optim.muon_scale == "original";
  fill(optim.lr, original ? kRateOfOriginalMuon : kind.learning_rate);
  if (kind.of_matrices) {
    fill(optim.adamw_lr, original ? optim::rule_kind(kOthers).learning_rate : *optim.lr);
  }
  fill(optim.weight_decay, same_digits(kind.defaults.weight_decay));
  fill(optim.beta1, same_digits(kind.defaults.beta1));
  fill(optim.beta2, same_digits(kind.defaults.beta2));
  fill(optim.eps, same_digits(kind.defaults.epsilon));
  fill(optim.momentum, same_digits(kind.defaults.momentum));
  optim.nesterov = optim.nesterov.value_or(kind.defaults.nesterov);
  return optim;
}

optim::OptimizerConfig optimizer_of(const Config& config) {
  return {.rule = settings_of(config, config.optim.name),
          .others = settings_of(config, kOthers),
          .groups = groups_of(config),
          .heads_apart = config.optim.muon_heads,
          .average = average_of(config.optim),
          .decay_all = config.optim.decay_norms};
}

int recomputed_steps(const Config& config, const nn::ModelPlan& model) {
  constexpr int kOfScheduleFree = 64;
  const auto has_states = [](const nn::BlockPlan& block) { return block.states > 0; };
  if (std::ranges::none_of(model.blocks, has_states)) return 0;
  const int wanted = config.optim.recompute_norms.value_or(
      optimizer_of(config).rule_averages() ? kOfScheduleFree : 0);
  const int of_step = config.batch.global / config.batch.micro;
  return (wanted + of_step - 1) / of_step;
}

void check_optimizer(const Config& config) {
  const optim::OptimizerConfig optimizer = optimizer_of(config);
  check_decay(config.optim);
  check_nesterov(config.optim, optimizer);
  check_keys_of_rules(config.optim, optimizer);
  check_average(config);
}

}  // namespace trireme
