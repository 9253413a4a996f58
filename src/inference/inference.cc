#include "trireme/inference/inference.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/step_setup.h"

namespace trireme {
namespace {

models::Model model_of(const Config& training, const std::string& path) {
  try {
    return models::resolve(training.model, {});
  } catch (const ConfigError& error) {
    throw CheckpointError(
        fmt::format("{}: its configuration describes no model: {}", path, error.what()));
  }
}

Config training_config(const Checkpoint& checkpoint) {
  try {
    return config_from_ini(checkpoint.info().config, checkpoint.path());
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

// Compares the model's size with the tensors in the file before memory is allocated, because the
// configuration in the file may say anything.
void check_size(const Checkpoint& checkpoint, const nn::ModelPlan& plan) {
  std::int64_t held = 0;
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    if (tensor.name.starts_with("parameters/")) held += tensor.shape.elements();
  }
  if (held == plan.parameters) return;
  throw CheckpointError(
      fmt::format("{}: its configuration describes a model of {} parameters ({}), but it holds {}",
                  checkpoint.path(), plan.parameters, plan.description, held));
}

}  // namespace

InferencePlan::InferencePlan(const Checkpoint& checkpoint,
                             const std::optional<std::string>& precision,
                             const Config::Shard& shard, bool of_averages)
    : training(training_config(checkpoint)),
      model(model_of(training, checkpoint.path())),
      trained_on{checkpoint.path(), model.data, {}},
      averages(of_averages) {
  check_size(checkpoint, model.plan);
  for (const auto& [attribute, value] : checkpoint.info().extra) {
    trained_on.marks.push_back({attribute, {}, value});
  }
  stage.compute = compute_type(precision.value_or(training.run.precision));
  stage.split_masters = training.optim.masters == "split" && stage.compute == DType::kBF16;
  stage.trains = false;
  stage.seed = {};
  stage.whole_weights = !shard.divides_weights();
  stage.prefetch = shard.prefetch;
}

InferenceModel::InferenceModel(ops::Context& ctx, const ProcessGrid& grid,
                               const Checkpoint& checkpoint, InferencePlan plan)
    : plan_(std::move(plan)),
      stage_(std::make_unique<parallel::Stage>(ctx, grid, plan_.model.plan, plan_.stage)) {
  std::vector<TensorSlice> slices = checkpoint_slices(*stage_, nullptr, false);
  if (plan_.averages) take_averages(checkpoint, slices);
  read_checkpoint(ctx, checkpoint, *stage_, slices);
}

}  // namespace trireme
