#include "trireme/train/token_batches.h"

#include <algorithm>
#include <numeric>

#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme {

nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training) {
  const auto real = static_cast<std::int64_t>(
      std::min(data.samples.size() - begin, static_cast<std::size_t>(micro)));
  const nn::HostMicroBatch host =
      nn::make_host_micro_batch(ctx, micro, context, !data.first_key.empty());
  const auto take_rows = [&](const std::vector<std::int32_t>& from, const Tensor& rows,
                             std::int32_t rest) {
    const auto values = rows.span<std::int32_t>();
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin) * context;
    std::fill(std::copy(first, first + real * context, values.begin()), values.end(), rest);
  };
  take_rows(data.tokens, host.tokens, 0);
  take_rows(data.targets, host.targets, ops::kMaskedTarget);
  if (host.first_key.defined()) take_rows(data.first_key, host.first_key, 0);
  for (std::int64_t b = 0; b < micro; ++b) {
    host.samples.data<std::int64_t>()[b] =
        b < real ? static_cast<std::int64_t>(data.samples[begin + static_cast<std::size_t>(b)]) : 0;
  }
  const auto targets = host.targets.span<std::int32_t>();
  const auto count = std::count_if(targets.begin(), targets.end(),
                                   [](std::int32_t target) { return target >= 0; });
  return host.to_device(ctx, count, training);
}

parallel::EvaluationResult evaluate(parallel::PipelineExecutor& executor, const TokenDataset& data,
                                    std::int64_t micro, bool mask_documents,
                                    std::optional<std::int64_t> limit) {
  const auto samples = static_cast<std::int64_t>(data.samples());
  std::int64_t count = (samples + micro - 1) / micro;
  if (limit) count = std::min(count, *limit);
  ops::Context& ctx = executor.context();
  const ProcessGrid& grid = executor.stage().grid();
  const parallel::MicroBatchShare mine =
      parallel::share_of(static_cast<int>(count), grid.extent(kDataAxes), grid.index(kDataAxes));
  return parallel::evaluate(executor, mine.count, [&](int i) {
    const auto first = static_cast<std::uint64_t>((mine.first + i) * micro);
    std::vector<std::uint64_t> wanted(
        std::min(static_cast<std::uint64_t>(micro), data.samples() - first));
    std::iota(wanted.begin(), wanted.end(), first);
    return make_micro_batch(ctx, data.read(wanted, mask_documents), data.context(), 0, micro,
                            false);
  });
}

}  // namespace trireme
