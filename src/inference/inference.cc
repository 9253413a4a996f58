#include "trireme/train/inference.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpoint_tensors.h"
#include "trireme/train/step_setup.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr ExitStatus kOfWeights = ExitStatus::kCheckpoint;

// Returns the folder that holds the checkpoints, or nothing if `where` is not a folder.
std::string checkpoint_folder(const std::string& where) {
  if (!look_ahead(where, kOfWeights).is_folder()) return "";
  const std::string inside = (fs::path(where) / "checkpoints").string();
  return look_at(inside, kOfWeights).is_folder() ? inside : where;
}

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

Checkpoint open_checkpoint_or_run(Communicator& comm, const std::string& where) {
  // Only one rank looks, so that all take the same path.
  const std::string kind = comm.read_once([&] {
    const FileFacts facts = look_ahead(where, kOfWeights);
    return !facts.is_there() ? "none" : facts.is_folder() ? "folder" : "file";
  });
  if (kind == "none") {
    throw CheckpointError(fmt::format(
        "{}: there is no such file or folder; name a checkpoint (step-00001000.h5) or a run folder",
        where));
  }
  if (kind == "file") return Checkpoint::open(comm, where);
  const std::string folder = comm.read_once([&] { return checkpoint_folder(where); });
  LatestCheckpoint latest = open_latest_checkpoint(comm, folder);
  if (!latest.checkpoint) {
    throw CheckpointError(
        latest.refused.empty()
            ? fmt::format("{}: no checkpoint is there; a run writes its first after "
                          "checkpoint.every steps",
                          folder)
            : fmt::format("{}: no good checkpoint is there; the newest is {}", folder,
                          latest.refused.front()));
  }
  if (comm.rank() == 0) {
    for (const std::string& reason : latest.refused) report_line("damaged, not used: " + reason);
  }
  return *latest.checkpoint;
}

std::int64_t largest_checkpoint_bytes(Communicator& comm, const std::string& where) {
  const auto largest = [&]() -> std::int64_t {
    std::int64_t bytes = 0;
    try {
      const FileFacts facts = look_ahead(where, kOfWeights);
      if (!facts.is_folder()) return facts.bytes;
      for (const CheckpointFile& file : list_checkpoints(checkpoint_folder(where))) {
        bytes = std::max(bytes, file.bytes);
      }
    } catch (const Error&) {  // whoever opens it reports that
    }
    return bytes;
  };
  return comm.all_reduce_host(comm.rank() == 0 ? largest() : std::int64_t{0}, ReduceOp::kMax);
}

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
