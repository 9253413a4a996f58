#include "trireme/train/evaluator.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/parallel/connections.h"
#include "trireme/tasks/texts.h"
#include "trireme/train/evaluation.h"

namespace trireme {

EvaluationReport evaluation_report(double loss_sum, std::int64_t tokens, std::int64_t bytes) {
  EvaluationReport report;
  report.loss = loss_sum / static_cast<double>(tokens);
  report.perplexity = std::exp(report.loss);
  report.bits_per_byte = loss_sum / std::numbers::ln2 / static_cast<double>(bytes);
  report.tokens = tokens;
  report.bytes = bytes;
  return report;
}

std::shared_ptr<const TokenDataset> open_evaluation_data(Communicator& comm,
                                                         const InferenceModel& model,
                                                         const std::vector<WeightedPath>& paths) {
  // Every token counts once, so weights do not matter here.
  std::vector<WeightedPath> unweighted = paths.empty() ? model.training().data.validation : paths;
  if (unweighted.empty()) {
    throw ConfigError(
        "--data is missing, and the model was trained without held-out data: name what to evaluate "
        "on, as in --data validation.h5");
  }
  for (WeightedPath& path : unweighted) path.weight = 1.0;
  auto data = TokenDataset::open({.data = unweighted,
                                  .split = paths.empty() ? "validation" : "",
                                  .context = model.model().plan.length,
                                  .order = SampleOrder::kSequential},
                                 comm);
  model.check_tokenizer(*data->tokenizer(), data->shards().front().path);
  return data;
}

EvaluationReport evaluate_on(ops::Context& ctx, const parallel::Stage& stage,
                             const std::shared_ptr<const TokenDataset>& data, std::int64_t micro,
                             bool mask_documents) {
  parallel::connect_stage(ctx, stage, micro, data->context());
  parallel::PipelineExecutor executor(ctx, stage);
  const Stopwatch watch;
  const auto texts = tasks::texts(data, mask_documents);
  const nn::EvaluationSums result = evaluate(executor, *texts, micro, std::nullopt);
  TRIREME_CHECK(result.targets == data->tokens(),
                fmt::format("{} of {} tokens were predicted", result.targets, data->tokens()));
  EvaluationReport report =
      evaluation_report(result.loss_sum, result.targets, data->original_bytes());
  // The time of the slowest rank, so that all ranks report the same.
  report.seconds = stage.grid().world().all_reduce_host(watch.seconds(), ReduceOp::kMax);
  return report;
}

}  // namespace trireme
