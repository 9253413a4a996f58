#include "models/gpt/gpt.h"

#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "models/plan_costs.h"

namespace trireme::models {
namespace {

using nn::MicroBatch;
using nn::Tape;
using nn::Value;
using nn::Values;

// Standard deviation of initial weights, and that of projections into the residual stream, which is
// smaller so that the stream's variance does not grow with depth (Radford et al. 2019,
// section 2.3).
constexpr float kDeviation = 0.02f;
float residual_deviation(const GptConfig& config) {
  return kDeviation / std::sqrt(2.0f * static_cast<float>(config.layers));
}

VocabularyTable table_of(const GptConfig& config) {
  return {config.vocabulary, config.width, config.tied, kDeviation};
}

class EmbeddingBlock : public nn::Block {
 public:
  EmbeddingBlock(const GptConfig& config, nn::BuildContext& build)
      : config_(config),
        parallel_(tensor_parallel(build)),
        table_(vocabulary_table(parameters_, build, table_of(config), kEmbeddingName)),
        tokens_({parameters_, parallel_, "embedding"}, table_) {
    if (config.positions == nn::PositionKind::kLearned) {
      positions_.emplace(nn::LayerContext{parameters_, parallel_, "positions"}, config.context,
                         config.width, kDeviation / 2);
    }
  }

  Values forward(Tape& tape, const MicroBatch& batch, Values) const override {
    Value x = tokens_.forward(tape, batch);  // (B T, C)
    if (positions_) x = positions_->forward(tape, batch, x);
    return {nn::dropout(tape, parallel_, batch, x, config_.dropout, 0)};
  }

 private:
  GptConfig config_;
  nn::TensorParallel parallel_;
  nn::Parameter& table_;
  nn::VocabularyEmbedding tokens_;
  std::optional<nn::LearnedPositions> positions_;
};

class HeadBlock : public nn::Block {
 public:
  HeadBlock(const GptConfig& config, nn::BuildContext& build)
      : parallel_(tensor_parallel(build)),
        norm_({parameters_, parallel_, "norm"}, config.norm, config.width, config.bias,
              config.norm_epsilon),
        table_(vocabulary_table(parameters_, build, table_of(config), "head.weight")) {}

  Values forward(Tape& tape, const MicroBatch& batch, Values in) const override {
    const Value x = norm_.forward(tape, in[0]);  // (B T, C)
    if (batch.cache != nullptr) {
      return {tape.input(nn::last_logits(tape, parallel_, batch, x, table_), false)};
    }
    nn::vocabulary_loss(tape, parallel_, batch, x, table_);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  nn::TensorParallel parallel_;
  nn::Norm norm_;
  nn::Parameter& table_;
};

}  // namespace

TransformerSizes transformer_sizes(const GptConfig& config) {
  return {.length = config.context,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .hidden = config.hidden,
          .norm = config.norm,
          .norm_epsilon = config.norm_epsilon,
          .activation = config.activation,
          .positions = config.positions,
          .rotary_theta = config.rotary_theta,
          .bias = config.bias,
          .dropout = config.dropout,
          .deviation = kDeviation,
          .output_deviation = residual_deviation(config)};
}

std::int64_t default_hidden(nn::ActivationKind activation, std::int64_t width) {
  return activation == nn::ActivationKind::kGelu ? 4 * width : (8 * width / 3 + 63) / 64 * 64;
}

void check(const GptConfig& c) {
  const auto positive = [](std::int64_t value, const char* key) {
    if (value <= 0)
      throw ConfigError(fmt::format("model.{} is {}: it must be at least 1", key, value));
  };
  positive(c.layers, "layers");
  positive(c.width, "width");
  positive(c.heads, "heads");
  positive(c.kv_heads, "kv_heads");
  positive(c.hidden, "hidden");
  positive(c.vocabulary, "vocabulary");
  positive(c.context, "context");
  check(transformer_sizes(c));
}

nn::ModelPlan gpt_plan(const GptConfig& config) {
  check(config);
  nn::ModelPlan plan;
  plan.length = config.context;
  const TransformerSizes sizes = transformer_sizes(config);
  plan.description =
      fmt::format("{}, {}, {}, {} positions{}", sizes_text(sizes, config.layers),
                  config.norm == nn::NormKind::kLayer ? "layer norm" : "RMS norm",
                  config.activation == nn::ActivationKind::kGelu ? "GELU" : "SwiGLU",
                  config.positions == nn::PositionKind::kLearned ? "learned" : "rotary",
                  config.tied ? ", tied embeddings" : "");
  const std::vector<std::string> shared(config.tied ? 1 : 0, kEmbeddingName);
  const auto embedding = [config](nn::BuildContext& build) {
    return std::make_unique<EmbeddingBlock>(config, build);
  };
  const auto head = [config](nn::BuildContext& build) {
    return std::make_unique<HeadBlock>(config, build);
  };
  plan.blocks.push_back({.name = "embedding",
                         .shares = shared,
                         .build = embedding,
                         .boundary = stream_of(config.width, 0)});
  add_layers(plan, sizes, config.layers);
  plan.blocks.push_back({.name = "head",
                         .shares = shared,
                         .loss = true,
                         .build = head,
                         .sliced_classes = config.vocabulary});
  count_costs(plan, {{nn::kTokens, {config.context}, DType::kI32},
                     {nn::kTargets, {config.context}, DType::kI32}});
  return plan;
}

}  // namespace trireme::models
