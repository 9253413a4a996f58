#include "trireme/train/evaluation.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {

tasks::ReadFor read_for(const parallel::Stage& stage) {
  return {.training = true,
          .inputs = stage.grid().index(Axis::kPipeline) == 0,
          .targets = stage.last()};
}

nn::EvaluationSums evaluate(parallel::PipelineExecutor& executor, const tasks::TaskData& data,
                            std::int64_t micro, std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  std::int64_t count = (samples + micro - 1) / micro;
  if (limit) count = std::min(count, *limit);
  const ProcessGrid& grid = executor.stage().grid();
  const parallel::MicroBatchShare mine =
      parallel::share_of(static_cast<int>(count), grid.extent(kDataAxes), grid.index(kDataAxes));
  // A micro-batch is a step of the reader.
  const BatchPlan plan = [=](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
    if (step >= static_cast<std::uint64_t>(mine.count)) return std::nullopt;
    const std::int64_t first = (mine.first + static_cast<std::int64_t>(step)) * micro;
    std::vector<std::uint64_t> wanted(static_cast<std::size_t>(std::min(micro, samples - first)));
    std::iota(wanted.begin(), wanted.end(), static_cast<std::uint64_t>(first));
    return wanted;
  };
  tasks::ReadFor what = read_for(executor.stage());
  what.training = false;
  const auto reader = data.read_steps(plan, micro, what);
  return parallel::evaluate(executor, mine.count, [&](int /*i*/) {
    reader->read();
    return std::move(reader->micro_batches(executor.context()).front());
  });
}

}  // namespace trireme
