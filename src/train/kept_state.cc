#include "train/kept_state.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/config.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/setup/checkpoint_tensors.h"

namespace trireme {
namespace {

// What the run before had. Of another version, which knew other keys, nothing is known.
struct Before {
  NamePatterns frozen;
  std::optional<optim::OptimizerConfig> optimizer;
};

Before read_before(const Checkpoint& checkpoint) {
  try {
    const Config config = config_from_ini(checkpoint.info().config, checkpoint.path());
    return {frozen_parameters(config.optim), optimizer_of(config)};
  } catch (const ConfigError&) {
    return {};
  }
}

std::string words(std::int64_t count, const char* one, const char* several) {
  return fmt::format("the optimizer's state of {} {}", counted(count, "parameter"),
                     count == 1 ? one : several);
}

// Lines of what all ranks see in the checkpoint: parameters that were frozen, or are now.
void add_lines_of_frozen(const Checkpoint& checkpoint, const NamePatterns& before,
                         const NamePatterns& now, std::vector<std::string>& lines) {
  constexpr std::string_view kParameters = "parameters/";
  std::set<std::string_view> thawed, dropped;
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    const std::string_view of_state = parameter_of_state(tensor.name);
    if (!of_state.empty() && now.match(of_state)) dropped.insert(of_state);
    if (!tensor.name.starts_with(kParameters)) continue;
    const std::string_view name = std::string_view(tensor.name).substr(kParameters.size());
    if (before.match(name) && !now.match(name)) thawed.insert(name);
  }
  if (!thawed.empty()) {
    lines.push_back(
        words(std::ssize(thawed), "that was frozen begins anew", "that were frozen begins anew"));
  }
  if (!dropped.empty()) {
    lines.push_back(words(std::ssize(dropped), "that is frozen now is dropped",
                          "that are frozen now is dropped"));
  }
}

}  // namespace

KeptState kept_state(Communicator& comm, const Checkpoint& checkpoint, const parallel::Stage& stage,
                     const optim::OptimizerConfig& now) {
  const Before before = read_before(checkpoint);
  KeptState kept;
  std::vector<std::string> counted;  // parameters whose rule counts updates
  bool other_rule = false, some_stay = false, begins_counted = false, counted_stay = false;
  for (const nn::Parameter* parameter : stage.parameters()) {
    const nn::ParameterSpec& spec = parameter->spec();
    const optim::RuleSettings rule = now.of(spec);
    if (!spec.trains || !optim::keeps_states(rule)) continue;
    const bool counts = optim::rule_kind(rule.name).counts_updates;
    const bool thawed = before.frozen.match(spec.name);
    const bool other =
        !thawed && before.optimizer && !optim::keep_same_states(before.optimizer->of(spec), rule);
    if (counts) counted.push_back(spec.name);
    if (thawed || other) kept.anew.insert(spec.name);
    other_rule |= other;
    (thawed || other ? begins_counted : counted_stay) |= counts;
    some_stay |= !thawed && !other;
  }
  const auto on_some_rank = [&comm](bool here) { return !comm.agree(!here); };
  other_rule = on_some_rank(other_rule);
  some_stay = on_some_rank(some_stay);
  begins_counted = on_some_rank(begins_counted);
  counted_stay = on_some_rank(counted_stay);
  if (other_rule && !some_stay) {
    kept.lines.emplace_back("the optimizer's state is of another rule, and begins anew");
  } else if (other_rule) {
    kept.lines.emplace_back(
        "the optimizer's state of parameters that another rule updates now begins anew");
  }
  add_lines_of_frozen(checkpoint, before.frozen, stage.options().trained.frozen, kept.lines);
  if (begins_counted) kept.anew.insert(counted.begin(), counted.end());
  if (begins_counted && counted_stay) {
    kept.lines.emplace_back(
        "the rest of Adam's averages begins anew with it, since one count of updates corrects all");
  }
  kept.counts_anew = begins_counted || (other_rule && !some_stay);
  return kept;
}

bool KeptState::lacks(std::string_view tensor) const {
  return !is_average(tensor) && anew.contains(parameter_of_state(tensor));
}

std::string words_on_rounding(Communicator& comm, const parallel::StageOptions& stage,
                              const std::set<std::string>& rounded) {
  const std::vector<std::string>& frozen = stage.trained.frozen_names;
  if (frozen.empty()) return "";
  std::vector<std::int64_t> changed;
  for (const std::string& name : frozen) changed.push_back(rounded.contains(name) ? 1 : 0);
  comm.all_reduce_host(std::span(changed), ReduceOp::kMax);
  const auto count = std::ranges::count(changed, 1);
  if (count == 0) return "";
  const auto first = std::ranges::find(changed, 1) - changed.begin();
  return fmt::format(
      "optim.freeze: {} of {} frozen parameters ({}{}) {} rounded to {}, and checkpoints and "
      "exports will have the rounded values; --run.precision fp32 would keep them as they were",
      count, frozen.size(), frozen[static_cast<std::size_t>(first)], count == 1 ? "" : ", ...",
      count == 1 ? "is" : "are", name_of(stage.compute));
}

}  // namespace trireme
