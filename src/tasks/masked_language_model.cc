#include "tasks/masked_language_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/io/read_ahead.h"
#include "trireme/io/token_shard.h"
#include "trireme/tasks/masked_texts.h"

#include "tasks/file_here.h"
#include "tasks/read_steps.h"
#include "tasks/text_data.h"

namespace trireme::tasks {
namespace {

class MaskedTexts final : public TextData {
 public:
  // `masking` masks samples of the data, which have as many tokens as its samples have of text.
  MaskedTexts(std::shared_ptr<const TokenDataset> data, std::shared_ptr<const TextMasking> masking,
              bool training)
      : TextData(std::move(data), masking->special().vocabulary),
        masking_(std::move(masking)),
        training_(training) {}

  std::vector<Measure> figures(const nn::EvaluationSums& sums) const override {
    return {{"loss", fmt::format("{:.6f}", sums.mean_loss())},
            {"perplexity", fmt::format("{:.4f}", std::exp(sums.mean_loss()))},
            {"masked tokens", fmt::format("{}, of {}, in windows of {}", sums.targets,
                                          data().tokens(), data().context())}};
  }

  std::unique_ptr<StepReader> read_steps(BatchPlan plan, std::int64_t micro,
                                         const ReadFor& what) const override {
    // In order, the targets of a dataset are its tokens: it predicts each once.
    const auto rows = training_ ? &TokenBatch::tokens : &TokenBatch::targets;
    return std::make_unique<ReadSteps<ReadAhead<MaskedBatch>, MaskedSize>>(
        masking_->size(), micro, what.training, 1, std::move(plan),
        [data = shared_data(), masking = masking_,
         rows](const std::vector<std::uint64_t>& samples) {
          return masking->batch(samples, data->read(samples).*rows);
        },
        ReadAheadOptions{});
  }

 private:
  std::shared_ptr<const TextMasking> masking_;
  bool training_;
};

// The text that a sample has room for. A family's samples may have no room: the data refuse them.
std::int64_t text_length(const Shape& sample) {
  return std::max<std::int64_t>(1, sample[0] - kTokensAroundText);
}

MaskedSize masked_size(const DataRequest& request) {
  return {.length = request.sample[0],
          .most = masked_tokens(text_length(request.sample), request.mask_share),
          .padded = request.masks_documents};
}

class MaskedLanguageModel final : public Task {
 public:
  std::string_view name() const override { return "masked_language_model"; }

  std::shared_ptr<const TaskData> open(const DataRequest& request,
                                       Communicator& comm) const override {
    auto data = open_text(request, text_length(request.sample), comm);
    auto masking = std::make_shared<const TextMasking>(
        *data->tokenizer(), MaskingOptions{.length = request.sample[0],
                                           .share = request.mask_share,
                                           .seed = request.seed,
                                           .training = request.training,
                                           .ends_documents = request.masks_documents});
    return std::make_shared<MaskedTexts>(std::move(data), std::move(masking), request.training);
  }

  models::DataFacts facts_on_this_host(const std::vector<WeightedPath>& paths) const override {
    const std::optional<std::string> path = file_here(paths);
    if (!path) return {};
    const TokenShardInfo info = read_token_shard_info(*path);
    return {
        .vocabulary =
            special_tokens(*make_tokenizer(info.tokenizer_kind, info.tokenizer_model)).vocabulary};
  }

  Unit unit() const override { return {"token", "tokens"}; }
  std::int64_t units_of_sample(const Shape& sample) const override { return sample[0]; }
  std::string_view samples_name() const override { return "sequences"; }
  std::string size_of(const Shape& sample) const override { return std::to_string(sample[0]); }

  std::string measures(const nn::EvaluationSums& sums) const override {
    return fmt::format("loss {:.4f} over {} masked tokens, perplexity {:.2f}", sums.mean_loss(),
                       sums.targets, std::exp(sums.mean_loss()));
  }

  nn::HostMicroBatch blank_batch(ops::Context& ctx, const DataRequest& request, std::int64_t micro,
                                 const ReadFor& /*what*/) const override {
    return make_host_masked_texts(ctx, micro, masked_size(request));
  }

  nn::MicroBatch made_up_batch(ops::Context& ctx, const models::Model& model, int number,
                               std::int64_t micro) const override {
    const MaskedSize size = masked_size({.paths = {}, .sample = {model.plan.length}});
    const auto token = [&](std::int64_t at) {
      const auto index = static_cast<std::uint64_t>(number * micro * size.length + at);
      return static_cast<std::int32_t>(philox_uniform_at(1, index) * 0.999f *
                                       static_cast<float>(*model.data.vocabulary));
    };
    MaskedBatch data;
    for (std::int64_t i = 0; i < micro; ++i) {
      data.samples.push_back(static_cast<std::uint64_t>(number * micro + i));
      data.ends.push_back(static_cast<std::int32_t>(size.length));
      for (std::int64_t t = 0; t < size.length; ++t) {
        data.tokens.push_back(token(i * size.length + t));
      }
      for (std::int64_t k = 0; k < size.most; ++k) {
        data.positions.push_back(static_cast<std::int32_t>(k * size.length / size.most));
        data.targets.push_back(token(i * size.length + k));
      }
    }
    return make_micro_batch(ctx, data, size, 0, micro, true);
  }
};

}  // namespace

const Task& masked_language_model() {
  static const MaskedLanguageModel kTask;
  return kTask;
}

}  // namespace trireme::tasks
