#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/step_setup.h"

#include "cli/commands.h"
#include "cli/inference_arguments.h"

namespace trireme::cli {
namespace {

struct EvalArguments {
  InferenceArguments inference;
  std::vector<WeightedPath> data;
  int micro = 4;
};

std::string table(const InferenceModel& model, const Checkpoint& checkpoint,
                  const tasks::TaskData& data, const EvaluationReport& report,
                  const GridShape& grid, const ops::AttentionChoice& attention) {
  std::string text;
  const auto add = [&](std::string_view what, const std::string& value) {
    text += fmt::format("{}{:<15}{}", text.empty() ? "" : "\n", what, value);
  };
  add("checkpoint", fmt::format("{}, step {}", checkpoint.path(), checkpoint.info().step));
  add("data", fmt::format("{}", fmt::join(data.paths(), ", ")));
  add("grid", grid.to_string());
  if (model.model().attention) add("attention", attention.text);
  for (const auto& [name, value] : data.figures(report.sums)) add(name, value);
  const models::ModelRequest& request = model.training().model;
  const tasks::Task& task = tasks::task_of(request);
  const auto units = static_cast<double>(data.samples()) *
                     static_cast<double>(task.units_of_sample(models::sample_shape(request)));
  const double per_second = units / report.seconds;
  add(task.unit().rate(), fmt::format("{:.0f} ({:.1f} s)", per_second, report.seconds));
  return text;
}

ExitStatus evaluate_on_ranks(Runtime& runtime, const EvalArguments& given) {
  allow_time_to_load(runtime, given.inference);
  const GridShape shape = inference_grid(given.inference, runtime.size());
  ComputeDevice device = inference_device(given.inference, runtime);
  ops::Context& ctx = device.context;
  const ProcessGrid grid(runtime, shape);
  const Checkpoint checkpoint = open_checkpoint_or_run(runtime.world(), given.inference.checkpoint);
  const InferenceModel model(ctx, grid, checkpoint, given.inference.precision,
                             given.inference.shard);
  runtime.set_timeout(given.inference.timeout);
  check_inference_memory(runtime, device, model, given.micro, /*predicts=*/false);
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, model.model(), shape,
                       {.micro = given.micro,
                        .compute = model.stage().options().compute,
                        .masks_documents = model.training().data.mask_documents});
  const auto data = open_evaluation_data(runtime.world(), model, given.data);
  const EvaluationReport report =
      evaluate_on(ctx, model.stage(), *data, given.micro, model.model().plan.length);
  if (runtime.rank() == 0) {
    print_line(table(model, checkpoint, *data, report, grid.shape(), attention));
  }
  return ExitStatus::kDone;
}

}  // namespace

Work parse_eval(const Arguments& arguments) {
  EvalArguments given;
  Options options("trireme eval --checkpoint RUN_OR_FILE [--data PATH,...] [--KEY VALUE]...");
  options.add("data", given.data, "HDF5 shards",
              "what to evaluate on: files or folders; default: the held-out data of the training");
  declare_inference(options, given.inference);
  options.add("batch.micro", given.micro, "samples", "what one replica computes at a time",
              between(1, limits::kSequences));
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  check_inference(given.inference);
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return evaluate_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
