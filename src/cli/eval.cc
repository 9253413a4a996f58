#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/inference/evaluator.h"
#include "trireme/setup/step_setup.h"

#include "cli/commands.h"
#include "cli/inference_arguments.h"

namespace trireme::cli {
namespace {

struct EvalArguments {
  InferenceRequest inference;
  std::vector<WeightedPath> data;
  int micro = 4;
};

std::string table(const PreparedInference& prepared, const tasks::TaskData& data,
                  const EvaluationReport& report, const ops::AttentionChoice& attention) {
  const Checkpoint& checkpoint = prepared.checkpoint;
  std::string text;
  const auto add = [&](std::string_view what, const std::string& value) {
    text += fmt::format("{}{:<15}{}", text.empty() ? "" : "\n", what, value);
  };
  add("checkpoint", fmt::format("{}, step {}", checkpoint.path(), checkpoint.info().step));
  add("data", fmt::format("{}", fmt::join(data.paths(), ", ")));
  add("grid", prepared.shape.to_string());
  if (prepared.plan.model.attention) add("attention", attention.text);
  for (const auto& [name, value] : data.figures(report.sums)) add(name, value);
  const models::ModelRequest& request = prepared.plan.training.model;
  const tasks::Task& task = tasks::task_of(request);
  const auto units = static_cast<double>(data.samples()) *
                     static_cast<double>(task.units_of_sample(models::sample_shape(request)));
  const double per_second = units / report.seconds;
  add(task.unit().rate(), fmt::format("{:.0f} ({:.1f} s)", per_second, report.seconds));
  return text;
}

ExitStatus evaluate_on_ranks(Runtime& runtime, const EvalArguments& given) {
  PreparedInference prepared(runtime, given.inference, {.micro = given.micro});
  const InferenceModel& model = prepared.model;
  ops::Context& ctx = prepared.device.context;
  const ops::AttentionChoice attention =
      attention_choice(runtime.world(), ctx, model.model(), prepared.shape,
                       {.micro = given.micro,
                        .compute = prepared.plan.stage.compute,
                        .masks_documents = model.training().data.mask_documents});
  const auto data = open_evaluation_data(runtime.world(), model, given.data);
  const EvaluationReport report =
      evaluate_on(ctx, model.stage(), *data, given.micro, model.model().plan.length);
  if (runtime.rank() == 0) print_line(table(prepared, *data, report, attention));
  return ExitStatus::kDone;
}

}  // namespace

Work parse_eval(const Arguments& arguments) {
  EvalArguments given;
  Options options("trireme eval --checkpoint RUN_OR_FILE [--data PATH,...] [--KEY VALUE]...");
  options.add("data", given.data, "HDF5 shards",
              "what to evaluate on: files or folders; default: the held-out data of the training");
  options.paths({"data"}, PathForm::kWeightedList);
  declare_inference(options, given.inference);
  options.add("batch.micro", given.micro, "samples", "what one replica computes at a time",
              between(1, limits::kSequences));
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  check_inference(given.inference);
  refuse_weights("--data", given.data);
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return evaluate_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
