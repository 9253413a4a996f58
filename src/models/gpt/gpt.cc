#include "models/gpt/gpt.h"

#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

#include "models/keys.h"
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

ops::LogitBend bend_of(const GptConfig& config) {
  return {config.logit_scale, config.logit_cap};
}

// Published models hold the factor in the type that they compute in.
float rounded(float factor, DType dtype) {
  if (dtype == DType::kBF16) return static_cast<float>(BFloat16(factor));
  return dtype == DType::kF16 ? static_cast<float>(Half(factor)) : factor;
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
    x = nn::scaled(tape, x, rounded(config_.embedding_scale, x.tensor().dtype()));
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
        norm_({parameters_, parallel_, "norm"}, config.norm, config.width, config.biases.norm,
              config.norm_epsilon, config.norm_plus_one),
        table_(vocabulary_table(parameters_, build, table_of(config), "head.weight")),
        bend_(bend_of(config)),
        logits_(config.logits) {}

  Values forward(Tape& tape, const MicroBatch& batch, Values in) const override {
    const Value x = norm_.forward(tape, in[0]);  // (B T, C)
    if (batch.cache != nullptr) {
      return {tape.input(nn::last_logits(tape, parallel_, batch, x, table_, bend_), false)};
    }
    nn::vocabulary_loss(tape, parallel_, batch, x, table_, nullptr, bend_, logits_);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  nn::TensorParallel parallel_;
  nn::Norm norm_;
  nn::Parameter& table_;
  ops::LogitBend bend_;
  DType logits_;
};

// The digit of a layer in a pattern of 0 and 1 that is repeated.
bool digit_of(const std::string& pattern, std::int64_t layer) {
  return pattern[static_cast<std::size_t>(layer) % pattern.size()] == '1';
}

nn::Rotations rotations_of(const GptConfig& c, bool window) {
  const auto all = static_cast<double>(c.head_channels());
  const auto channels = 2 * static_cast<std::int64_t>(all * shortest(c.rotary_share) / 2);
  return scaled_rotations(window ? c.window_scaling.value_or(c.rotary_scaling) : c.rotary_scaling,
                          window ? c.window_theta.value_or(c.rotary_theta) : c.rotary_theta,
                          channels, c.context, c.rotary_adjacent);
}

const char* kind_of(bool window, bool turns) {
  if (window) return turns ? "window layer" : "window layer without positions";
  return turns ? "layer" : "layer without positions";
}

}  // namespace

bool GptConfig::has_window(std::int64_t layer) const {
  return window > 0 && digit_of(window_layers, layer);
}

bool GptConfig::turns(std::int64_t layer) const {
  return positions == nn::PositionKind::kRotary && digit_of(rotary_layers, layer);
}

TransformerSizes transformer_sizes(const GptConfig& config, std::int64_t layer) {
  const bool window = config.has_window(layer), turns = config.turns(layer);
  return {.length = config.context,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .hidden = config.hidden,
          .norm = config.norm,
          .norm_epsilon = config.norm_epsilon,
          .activation = config.activation,
          .positions = config.positions,
          .rotations = turns ? rotations_of(config, window) : nn::Rotations(),
          .biases = config.biases,
          .layout = config.layout,
          .norm_plus_one = config.norm_plus_one,
          .residual_scale = config.residual_scale,
          .head_channels = config.head_size,
          .query_key_norm = config.query_key_norm,
          .attention_scale = config.attention_scale,
          .attention_cap = config.attention_cap,
          .window = window ? config.window : 0,
          .kind = kind_of(window, turns || config.positions == nn::PositionKind::kLearned),
          .dropout = config.dropout,
          .deviation = kDeviation,
          .output_deviation = residual_deviation(config)};
}

std::int64_t default_hidden(nn::ActivationKind activation, std::int64_t width) {
  return nn::is_gated(activation) ? (8 * width / 3 + 63) / 64 * 64 : 4 * width;
}

namespace {

void check_pattern(const char* key, const std::string& pattern) {
  if (pattern.empty() || pattern.find_first_not_of("01") != std::string::npos) {
    throw ConfigError(fmt::format(
        "model.{} is \"{}\": it must be a digit 0 or 1 for each layer, repeated, such as 110", key,
        printable(pattern)));
  }
}

// What does not fit together, of choices of which each may be right by itself.
void check_choices(const GptConfig& c) {
  check_pattern("window_layers", c.window_layers);
  check_pattern("rotary_layers", c.rotary_layers);
  if (c.head_size == 0) {
    check_divides("model.heads", static_cast<int>(c.heads), "model.width",
                  static_cast<int>(c.width));
  }
  const bool rotary = c.positions == nn::PositionKind::kRotary;
  if (rotary && c.head_channels() % 2 != 0) {
    throw ConfigError(
        fmt::format("rotary positions need an even head size, not {} ({})", c.head_channels(),
                    c.head_size > 0 ? "model.head_size" : "model.width / model.heads"));
  }
  if (rotary && std::floor(static_cast<float>(c.head_channels()) * c.rotary_share) < 2.0f) {
    throw ConfigError(
        fmt::format("model.rotary_share is {}: no pair of the {} channels of a head is left that "
                    "turns",
                    c.rotary_share, c.head_channels()));
  }
  if (c.norm_plus_one && c.norm == nn::NormKind::kLayer) {
    throw ConfigError("model.norm_plus_one needs model.norm rms: layer norms multiply by weights");
  }
}

}  // namespace

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
  check_choices(c);
  check(transformer_sizes(c));
}

namespace {

const char* activation_text(nn::ActivationKind kind) {
  switch (kind) {
    case nn::ActivationKind::kGelu:
      return "GELU";
    case nn::ActivationKind::kGeluErf:
      return "exact GELU";
    case nn::ActivationKind::kSwiglu:
      return "SwiGLU";
    case nn::ActivationKind::kGeglu:
      return "GeGLU";
  }
  return "";
}

std::string windows_text(const GptConfig& config) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) count += config.has_window(layer);
  if (count == 0) return "";
  return fmt::format(", windows of {} in {} layers", config.window, count);
}

// The sizes of layers by what tells layers apart.
class LayerKinds {
 public:
  explicit LayerKinds(const GptConfig& config) : config_(config) {}
  const TransformerSizes& operator()(std::int64_t layer) {
    const std::pair key(config_.has_window(layer), config_.turns(layer));
    const auto found = kinds_.find(key);
    if (found != kinds_.end()) return found->second;
    return kinds_.emplace(key, transformer_sizes(config_, layer)).first->second;
  }

 private:
  const GptConfig& config_;
  std::map<std::pair<bool, bool>, TransformerSizes> kinds_;
};

}  // namespace

nn::ModelPlan gpt_plan(const GptConfig& config) {
  check(config);
  nn::ModelPlan plan;
  plan.length = config.context;
  const TransformerSizes sizes = transformer_sizes(config);
  plan.description =
      fmt::format("{}, {}, {}, {} positions{}{}", sizes_text(sizes, config.layers),
                  config.norm == nn::NormKind::kLayer ? "layer norm" : "RMS norm",
                  activation_text(config.activation),
                  config.positions == nn::PositionKind::kLearned ? "learned" : "rotary",
                  windows_text(config), config.tied ? ", tied embeddings" : "");
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
  LayerKinds kinds(config);
  add_layers(
      plan, [&](std::int64_t layer) -> const TransformerSizes& { return kinds(layer); },
      config.layers);
  plan.blocks.push_back({.name = "head",
                         .shares = shared,
                         .loss = true,
                         .build = head,
                         .sliced_classes = config.vocabulary,
                         .logits = config.logits});
  count_costs(plan, {{nn::kTokens, {config.context}, DType::kI32},
                     {nn::kTargets, {config.context}, DType::kI32}});
  return plan;
}

}  // namespace trireme::models
