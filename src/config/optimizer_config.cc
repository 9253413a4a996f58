#include "trireme/config/optimizer_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
      const auto nearest = nearest_name(setting, names);
      refuse_group(text, fmt::format("names no optimizer: {} is none of {}{}", shown(setting),
                                     fmt::join(names, ", "),
                                     nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
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
  const bool has_others = optim::rule_kind(optimizer.rule.name).of_matrices;
  return holds(optimizer.rule) || (has_others && holds(optimizer.others)) ||
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
  // The optimizer has an fp32 number, in which the least numbers are 0, too.
  if (optim.nesterov.value_or(false) && optimizer.rule.momentum == 0.0f) {
    throw ConfigError("optim.nesterov is true, but optim.momentum is 0: give it one, such as 0.9");
  }
}

[[noreturn]] void refuse_key_of_rules(std::string_view key, std::string_view used,
                                      bool is_auto_without) {
  std::vector<std::string_view> others;
  for (const optim::RuleKind& kind : optim::rule_kinds()) {
    if (kind.has(key)) others.push_back(kind.name);
  }
  throw ConfigError(
      fmt::format("optim.{} is given, but optim.name is {}: only {} {} it, so leave it out{}", key,
                  used, fmt::join(others, ", "), others.size() == 1 ? "has" : "have",
                  is_auto_without ? ", or give auto" : ""));
}

// Keys of a rule that no parameter gets would do nothing. Earlier versions recorded AdamW's
// defaults for every rule: such a record is taken.
void check_keys_of_rules(const Config::Optim& optim, const optim::OptimizerConfig& optimizer) {
  const Config::Optim usual, recorded = with_defaults_of_rule(usual);
  const auto is_given = [](const std::optional<double>& key, const std::optional<double>& was) {
    return key && key != was;
  };
  const struct {
    std::string_view key;
    bool given, is_auto_without = false;
  } keys[] = {
      {"beta1", is_given(optim.beta1, recorded.beta1), true},
      {"beta2", is_given(optim.beta2, recorded.beta2), true},
      {"eps", is_given(optim.eps, recorded.eps), true},
      {"momentum", is_given(optim.momentum, recorded.momentum), true},
      {"nesterov", optim.nesterov.value_or(false), true},
      {"muon_scale", optim.muon_scale != usual.muon_scale},
      {"muon_precision", optim.muon_precision.has_value(), true},
      {"muon_heads", optim.muon_heads},
      {"lamb_clip", optim.lamb_clip != usual.lamb_clip},
      {"lars_coefficient", optim.lars_coefficient != usual.lars_coefficient},
      {"adafactor_clip", optim.adafactor_clip != usual.adafactor_clip},
      {"adafactor_decay", optim.adafactor_decay != usual.adafactor_decay},
  };
  for (const auto& [key, given, is_auto_without] : keys) {
    const auto has = [key = key](const optim::RuleKind& kind) { return kind.has(key); };
    if (given && !some_rule(optimizer, has)) {
      refuse_key_of_rules(key, optim.name, is_auto_without);
    }
  }
  // It is beside Muon alone that AdamW has a rate of its own.
  if (optim.adamw_lr && !optim::rule_kind(optim.name).has("adamw_lr")) {
    refuse_key_of_rules("adamw_lr", optim.name, true);
  }
}

// Numbers whose use in fp32 is another than in the text.
void check_least_numbers(const Config::Optim& optim, const optim::OptimizerConfig& optimizer) {
  for (const auto& [key, value] : {std::pair("clip", optim.clip),
                                   {"clip_each", optim.clip_each},
                                   {"clip_value", optim.clip_value},
                                   {"lamb_clip", optim.lamb_clip}}) {
    if (value == 0.0 || value >= limits::kLeastReal) continue;
    throw ConfigError(fmt::format("optim.{} is {}: must be at least {}, or 0 for no limit", key,
                                  value, limits::kLeastReal));
  }
  const auto squares_epsilon = [](const optim::RuleKind& kind) { return kind.name == "adafactor"; };
  if (!optim.eps || !some_rule(optimizer, squares_epsilon)) return;
  if (*optim.eps * *optim.eps >= static_cast<double>(std::numeric_limits<float>::min())) return;
  throw ConfigError(fmt::format(
      "optim.eps is {}, but adafactor squares it, which fp32 cannot hold: give at "
      "least 1.1e-19; where others have {} as epsilon1, that is the square: give {:.3g}",
      *optim.eps, *optim.eps, std::sqrt(*optim.eps)));
}

[[noreturn]] void refuse_given(std::string_view key, std::string_view why) {
  throw ConfigError(fmt::format("{} is given, but {}", key, why));
}

// What would follow from an average of weights that the run does not keep.
void refuse_keys_of_average(const Config& config, std::string_view why) {
  if (config.eval.weights == "average") refuse_given("eval.weights average", why);
  if (!(config.optim.average_from == Config::Optim().average_from)) {
    refuse_given("optim.average_from", why);
  }
}

// Schedule-free rules average weights themselves.
void check_schedule_free(const Config& config) {
  if (config.optim.average != "none") {
    refuse_given("optim.average", "schedule_free averages the weights itself: leave it out");
  }
  refuse_keys_of_average(config, "schedule_free's weights are an average themselves: leave it out");
  if (config.schedule.name != "constant") {
    throw ConfigError(
        fmt::format("schedule.name is {}, but schedule_free's average takes the place of a decay: "
                    "give --schedule.name constant, which has a warm-up, too",
                    config.schedule.name));
  }
}

void check_average(const Config& config) {
  const Config::Optim& optim = config.optim;
  if (optimizer_of(config).rule_averages()) {
    check_schedule_free(config);
  } else if (optim.average == "none") {
    constexpr std::string_view kNone =
        "optim.average is none: give --optim.average ema or swa, or leave it out";
    refuse_keys_of_average(config, kNone);
    if (optim.recompute_norms) refuse_given("optim.recompute_norms", kNone);
  }
  if (optim.average_decay != Config::Optim().average_decay && optim.average != "ema") {
    refuse_given("optim.average_decay", "optim.average is not ema: leave it out");
  }
  if (optim.recompute_norms && !models::has_batch_norms(config.model)) {
    refuse_given(
        "optim.recompute_norms",
        fmt::format("model.family {} has no batch norms: leave it out", config.model.family));
  }
}

void check_masters(const Config& config, const optim::OptimizerConfig& optimizer) {
  if (config.optim.masters != "split") return;
  const auto refuse = [](const std::string& why) {
    throw ConfigError(fmt::format(
        "optim.masters is split, but {}: give optim.masters fp32, or leave it out", why));
  };
  const std::string& precision = config.run.precision;
  if (precision != "bf16" && precision != "fp8") {
    refuse(fmt::format("run.precision is {}, and only weights in bf16 are a part of fp32 values",
                       precision));
  }
  std::string_view whole;
  const auto takes_none = [&](const optim::RuleKind& kind) {
    if (!kind.takes_split) whole = kind.name;
    return !kind.takes_split;
  };
  if (some_rule(optimizer, takes_none)) {
    refuse(fmt::format("{} needs fp32 values that lie in one piece", whole));
  }
  if (optimizer.average) {
    refuse(
        fmt::format("optim.average is {}, and evaluations of the average take the place of the "
                    "weights, which are a part of the values that the steps go on from",
                    config.optim.average));
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
  check_keys_of_rules(config.optim, optimizer);
  check_nesterov(config.optim, optimizer);
  check_least_numbers(config.optim, optimizer);
  check_average(config);
  check_masters(config, optimizer);
}

}  // namespace trireme
