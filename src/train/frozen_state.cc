#include "train/frozen_state.h"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/config.h"

namespace trireme {
namespace {

// The parameter whose state the tensor of a checkpoint is, or nothing.
std::string parameter_of_state(const std::string& tensor) {
  constexpr std::string_view kOptimizer = "optimizer/";
  if (!tensor.starts_with(kOptimizer)) return "";
  return tensor.substr(kOptimizer.size(), tensor.rfind('/') - kOptimizer.size());
}

NamePatterns frozen_before(const Checkpoint& checkpoint) {
  try {
    return frozen_parameters(config_from_ini(checkpoint.info().config, checkpoint.path()).optim);
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return {};
  }
}

}  // namespace

FrozenSince frozen_since(const Checkpoint& checkpoint, const nn::TrainedParameters& now) {
  constexpr std::string_view kParameters = "parameters/";
  const NamePatterns before = frozen_before(checkpoint);
  FrozenSince since;
  std::set<std::string> dropped;
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    if (tensor.name.starts_with(kParameters)) {
      const std::string name = tensor.name.substr(kParameters.size());
      if (before.match(name) && !now.frozen.match(name)) since.thawed.insert(name);
    }
    const std::string name = parameter_of_state(tensor.name);
    if (!name.empty() && now.frozen.match(name)) dropped.insert(name);
  }
  since.dropped = std::ssize(dropped);
  return since;
}

bool FrozenSince::lacks(const std::string& tensor) const {
  return thawed.contains(parameter_of_state(tensor));
}

std::vector<std::string> FrozenSince::lines() const {
  std::vector<std::string> lines;
  if (!thawed.empty()) {
    lines.push_back(fmt::format("the optimizer's state of {} that {} frozen begins anew",
                                counted(std::ssize(thawed), "parameter"),
                                thawed.size() == 1 ? "was" : "were"));
  }
  if (dropped > 0) {
    lines.push_back(fmt::format("the optimizer's state of {} that {} frozen now is dropped",
                                counted(dropped, "parameter"), dropped == 1 ? "is" : "are"));
  }
  return lines;
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
      "optim.freeze: {} of {} frozen parameters, such as {}, {} rounded to {}, and checkpoints and "
      "exports will have the rounded values; --run.precision fp32 would keep them as they were",
      count, frozen.size(), frozen[static_cast<std::size_t>(first)], count == 1 ? "is" : "are",
      name_of(stage.compute));
}

}  // namespace trireme
