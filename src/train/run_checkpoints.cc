#include "train/run_checkpoints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/ops/attention.h"
#include "trireme/train/inference.h"
#include "trireme/train/setup.h"

#include "train/starting_point.h"

namespace trireme {

std::string RunCheckpoints::attention_library() const {
  const Config::Model& model = run_.config.model;
  const int tensor = run_.grid.shape().tensor;
  return ops::attention_description(run_.device.context,
                                    {.batch = run_.config.batch.micro,
                                     .length = *model.context,
                                     .heads = *model.heads / tensor,
                                     .kv_heads = std::max(*model.kv_heads / tensor, 1),
                                     .head_size = *model.width / *model.heads},
                                    run_.step.stage().options().compute,
                                    run_.config.data.mask_documents);
}

// What a run used that can change bits: compared on resume.
std::map<std::string, std::string> RunCheckpoints::recorded_choices() const {
  const ops::Context& ctx = run_.device.context;
  return {
      {"attention", attention_library()},
      {"carrier", run_.device.carrier},
      {"device", run_.device.name},
      {"grid", run_.grid.shape().to_string()},
      {"threads", std::to_string(ctx.threads)},
      {"instruction_set", std::string(ops::instruction_set(ctx))},
      {"matmul", std::string(ops::matmul_description(ctx, run_.step.stage().options().compute))}};
}

void RunCheckpoints::check_data(const Checkpoint& checkpoint) const {
  const CheckpointInfo& info = checkpoint.info();
  if (info.seed != static_cast<std::uint64_t>(run_.config.run.seed)) {
    throw ConfigError(
        fmt::format("{} was trained with run.seed {}, not {}: the order of the data would change",
                    checkpoint.path(), info.seed, run_.config.run.seed));
  }
  const auto tokenizer = info.extra.find(kTokenizerAttribute);
  if (tokenizer != info.extra.end() &&
      tokenizer->second != tokenizer_checksum(*run_.data.tokenizer())) {
    throw DataError(
        fmt::format("{} was trained on another tokenizer's tokens than those of data.train",
                    checkpoint.path()));
  }
}

RunCheckpoints::Position RunCheckpoints::resume() {
  StartingPoint start(run_.runtime.world(), run_.folder, run_.config.run.resume);
  const std::optional<Checkpoint> checkpoint = start.open();
  if (checkpoint) restore(*checkpoint);
  // Last: a start that is refused leaves the folder as it is.
  const bool continues = start.settle(checkpoint);
  if (!checkpoint) return {.continues = continues};
  return {checkpoint->info().step, checkpoint->info().samples, continues};
}

void RunCheckpoints::restore(const Checkpoint& checkpoint) {
  check_data(checkpoint);
  const parallel::Stage& stage = run_.step.stage();
  ops::Context& ctx = run_.device.context;
  std::vector<TensorSlice> slices = checkpoint_slices(stage, &run_.step.optimizer(), false);
  ops::StepState state = ops::read_step_state(ctx);
  for (TensorSlice& slice : loss_scale_slices(state)) {
    // A run of another precision has left none.
    const bool scales = !loss_scaling(run_.config).is_fixed();
    if (scales && checkpoint.contents().find(slice.name)) slices.push_back(std::move(slice));
  }
  checkpoint.read(run_.runtime.world(), slices);
  ops::write_step_state(ctx, state);
  for (const nn::FlatGroup* group : stage.groups()) group->refresh_weights(ctx);
  if (run_.runtime.rank() == 0) say_resumed(checkpoint);
}

void RunCheckpoints::say_resumed(const Checkpoint& checkpoint) const {
  print_line(fmt::format("going on from {}, step {}", checkpoint.path(), checkpoint.info().step));
  std::string changed;
  for (const auto& [key, value] : recorded_choices()) {
    const auto before = checkpoint.info().extra.find(key);
    if (before == checkpoint.info().extra.end() || before->second == value) continue;
    changed +=
        fmt::format("{}{} was {}, is {}", changed.empty() ? "" : "; ", key, before->second, value);
  }
  if (!changed.empty()) print_line("results will agree to rounding, not to the bit: " + changed);
}

std::string RunCheckpoints::save(const Position& position) {
  CheckpointInfo info;
  info.step = position.step;
  info.samples = position.samples;
  info.seed = static_cast<std::uint64_t>(run_.config.run.seed);
  info.config = config_to_ini(run_.config);
  info.extra = recorded_choices();
  info.extra[kTokenizerAttribute] = tokenizer_checksum(*run_.data.tokenizer());
  CheckpointOptions options;
  options.keep = run_.config.checkpoint.keep;
  options.generation = run_.folder.generation();
  options.check_still_ours = [this] { run_.folder.check_still_ours(); };
  std::vector<TensorSlice> slices =
      checkpoint_slices(run_.step.stage(), &run_.step.optimizer(), true);
  ops::StepState state = ops::read_step_state(run_.device.context);
  if (run_.runtime.rank() == 0 && !loss_scaling(run_.config).is_fixed()) {
    for (TensorSlice& slice : loss_scale_slices(state)) slices.push_back(std::move(slice));
  }
  return write_checkpoint(run_.runtime.world(), run_.runtime.recorder(), run_.folder.checkpoints(),
                          info, slices, options);
}

}  // namespace trireme
