#include "trireme/train/evaluation.h"

#include <algorithm>

namespace trireme {

nn::EvaluationSums evaluate(parallel::PipelineExecutor& executor, const tasks::TaskData& data,
                            std::int64_t micro, std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  std::int64_t count = (samples + micro - 1) / micro;
  if (limit) count = std::min(count, *limit);
  const ProcessGrid& grid = executor.stage().grid();
  const parallel::MicroBatchShare mine =
      parallel::share_of(static_cast<int>(count), grid.extent(kDataAxes), grid.index(kDataAxes));
  return parallel::evaluate(executor, mine.count, [&](int i) {
    const auto first = static_cast<std::uint64_t>((mine.first + i) * micro);
    return data.evaluation_batch(executor.context(), first, micro);
  });
}

}  // namespace trireme
