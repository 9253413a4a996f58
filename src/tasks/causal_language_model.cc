#include "tasks/causal_language_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/io/token_shard.h"
#include "trireme/tasks/texts.h"

#include "tasks/file_here.h"
#include "tasks/read_steps.h"
#include "tasks/text_data.h"

namespace trireme::tasks {
namespace {

class Texts final : public TextData {
 public:
  Texts(std::shared_ptr<const TokenDataset> data, bool masks_documents)
      : TextData(std::move(data), {}), masks_documents_(masks_documents) {}

  std::vector<Measure> figures(const nn::EvaluationSums& sums) const override {
    // Begins of texts are no targets.
    const bool all = sums.targets == data().tokens();
    TRIREME_CHECK(all || (data().tokenizer()->begin_of_text() && sums.targets < data().tokens()),
                  fmt::format("{} of {} tokens were predicted", sums.targets, data().tokens()));
    const auto bytes = data().original_bytes();
    std::vector<Measure> figures = {
        {"loss", fmt::format("{:.6f}", sums.mean_loss())},
        {"perplexity", fmt::format("{:.4f}", std::exp(sums.mean_loss()))}};
    if (bytes > 0) {  // none are known of tokens without a tokenizer
      figures.push_back(
          {"bits per byte", fmt::format("{:.6f}", bits_per_byte(sums.loss_sum, bytes))});
    }
    const std::string of_bytes = bytes > 0 ? fmt::format(", of {} bytes", bytes) : "";
    figures.push_back({"tokens", fmt::format("{}{}, in windows of {}", sums.targets, of_bytes,
                                             data().context())});
    return figures;
  }

  std::unique_ptr<StepReader> read_steps(BatchPlan plan, std::int64_t micro,
                                         const ReadFor& what) const override {
    return std::make_unique<ReadSteps<BatchReader, std::int64_t>>(
        data().context(), micro, what.training, 1, shared_data(), std::move(plan),
        BatchReaderOptions{.with_first_key = masks_documents_});
  }

 private:
  bool masks_documents_;
};

class CausalLanguageModel final : public Task {
 public:
  std::string_view name() const override { return "causal_language_model"; }

  std::shared_ptr<const TaskData> open(const DataRequest& request,
                                       Communicator& comm) const override {
    return texts(open_text(request, request.sample[0], comm, true), request.masks_documents);
  }

  models::DataFacts facts_on_this_host(const std::vector<WeightedPath>& paths) const override {
    const std::optional<std::string> path = file_here(paths);
    if (!path) return {};
    return {.vocabulary = static_cast<int>(read_token_shard_info(*path).vocabulary)};
  }

  Unit unit() const override { return {"token", "tokens"}; }
  std::int64_t units_of_sample(const Shape& sample) const override { return sample[0]; }
  std::string_view samples_name() const override { return "sequences"; }
  std::string size_of(const Shape& sample) const override { return std::to_string(sample[0]); }

  std::string measures(const nn::EvaluationSums& sums) const override {
    return fmt::format("loss {:.4f} over {} tokens, perplexity {:.2f}", sums.mean_loss(),
                       sums.targets, std::exp(sums.mean_loss()));
  }

  nn::HostMicroBatch blank_batch(ops::Context& ctx, const DataRequest& request, std::int64_t micro,
                                 const ReadFor& /*what*/) const override {
    return make_host_texts(ctx, micro, request.sample[0], request.masks_documents);
  }

  nn::MicroBatch made_up_batch(ops::Context& ctx, const models::Model& model, int number,
                               std::int64_t micro) const override {
    const std::int64_t length = model.plan.length, rows = micro * length;
    const auto token = [&](std::int64_t at) {
      const auto index = static_cast<std::uint64_t>(number * rows + at);
      return static_cast<std::int32_t>(philox_uniform_at(1, index) * 0.999f *
                                       static_cast<float>(*model.data.vocabulary));
    };
    TokenBatch data;
    for (std::int64_t i = 0; i < micro; ++i) {
      data.samples.push_back(static_cast<std::uint64_t>(number * micro + i));
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      data.tokens.push_back(token(i));
      data.targets.push_back(token(i + 1));
    }
    return make_micro_batch(ctx, data, length, 0, micro, true);
  }
};

}  // namespace

const Task& causal_language_model() {
  static const CausalLanguageModel kTask;
  return kTask;
}

double bits_per_byte(double loss_sum, std::int64_t bytes) {
  return loss_sum / std::numbers::ln2 / static_cast<double>(bytes);
}

std::shared_ptr<const TaskData> texts(std::shared_ptr<const TokenDataset> data,
                                      bool masks_documents) {
  return std::make_shared<Texts>(std::move(data), masks_documents);
}

}  // namespace trireme::tasks
