#include "trireme/inference/evaluator.h"

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/inference/evaluation.h"
#include "trireme/parallel/connections.h"
#include "trireme/setup/data_request.h"

namespace trireme {

std::shared_ptr<const tasks::TaskData> open_evaluation_data(
    Communicator& comm, const InferenceModel& model, const std::vector<WeightedPath>& paths) {
  tasks::DataRequest request = held_out_data(model.training(), model.trained_on().marks);
  request.any_split = !paths.empty();
  if (!paths.empty()) request.paths = paths;
  if (request.paths.empty()) {
    throw ConfigError(
        "--data is missing, and the model was trained without held-out data: name what to evaluate "
        "on, as in --data validation.h5");
  }
  // These are the weights of the training, from a time when data.validation could have some. Here
  // every sample counts once.
  for (WeightedPath& path : request.paths) path.weight.reset();
  auto data = tasks::task_of(model.training().model).open(request, comm);
  data->check_trained(model.trained_on());
  const std::string remark = data->remark_on(model.trained_on());
  if (comm.rank() == 0 && !remark.empty()) report_line(remark);
  return data;
}

EvaluationReport evaluate_on(ops::Context& ctx, const parallel::Stage& stage,
                             const tasks::TaskData& data, std::int64_t micro, std::int64_t length) {
  parallel::connect_stage(ctx, stage, micro, length);
  parallel::PipelineExecutor executor(ctx, stage);
  const Stopwatch watch;
  EvaluationReport report{.sums = evaluate(executor, data, micro, std::nullopt)};
  if (report.sums.targets == 0) {
    throw DataError(fmt::format("{}: {} without one target: there is no loss to tell",
                                data.paths().front(),
                                counted(static_cast<std::int64_t>(data.samples()), "sample")));
  }
  // The time of the slowest rank, so that all ranks report the same.
  report.seconds = stage.grid().world().all_reduce_host(watch.seconds(), ReduceOp::kMax);
  return report;
}

}  // namespace trireme
