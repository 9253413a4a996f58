#include "trireme/inference/evaluation.h"

#include <algorithm>
#include <utility>

#include "trireme/base/philox.h"

namespace trireme {
namespace {

// The key of the order in which an evaluation of some samples takes them: a constant, so that it
// depends on nothing but their number.
constexpr std::uint64_t kOrderOfSome = 0x6576616c75617465;  // "evaluate"

}  // namespace

tasks::ReadFor read_for(const parallel::Stage& stage) {
  return {.training = true,
          .inputs = stage.grid().index(Axis::kPipeline) == 0,
          .targets = stage.last()};
}

bool takes_all(const tasks::TaskData& data, std::int64_t micro, std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  return !limit || *limit >= (samples + micro - 1) / micro;
}

nn::EvaluationSums evaluate(parallel::PipelineExecutor& executor, const tasks::TaskData& data,
                            std::int64_t micro, std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  const bool all = takes_all(data, micro, limit);
  const std::int64_t count = all ? (samples + micro - 1) / micro : *limit;
  const ProcessGrid& grid = executor.stage().grid();
  const auto work = parallel::WorkSplit::even(static_cast<int>(count), grid.extent(kDataAxes));
  const int replica = grid.index(kDataAxes), mine = work.count(replica);
  // A micro-batch is a step of the reader.
  const BatchPlan plan = [=](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
    if (step >= static_cast<std::uint64_t>(mine)) return std::nullopt;
    const std::int64_t first = work.micro(replica, static_cast<int>(step)).number * micro;
    std::vector<std::uint64_t> wanted(static_cast<std::size_t>(std::min(micro, samples - first)));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint64_t number = static_cast<std::uint64_t>(first) + i;
      wanted[i] =
          all ? number : permuted_index(kOrderOfSome, static_cast<std::uint64_t>(samples), number);
    }
    return wanted;
  };
  tasks::ReadFor what = read_for(executor.stage());
  what.training = false;
  const auto reader = data.read_steps(plan, micro, what);
  return parallel::evaluate(executor, mine, [&](int /*i*/) {
    reader->read();
    return std::move(reader->micro_batches(executor.context()).front());
  });
}

}  // namespace trireme
