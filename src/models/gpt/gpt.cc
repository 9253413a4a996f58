#include "models/gpt/gpt.h"

#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"

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

constexpr const char* kEmbeddingName = "embedding.weight";

nn::TensorParallel tensor_parallel(const nn::BuildContext& build) {
  return {&build.grid.comm(Axis::kTensor), build.sequence_parallel};
}

// The vocabulary matrix of the embedding or of the head. If they are tied and this stage has
// already made the matrix for the other, returns that one.
nn::Parameter& vocabulary_table(nn::ParameterSet& parameters, nn::BuildContext& build,
                                const GptConfig& config, const char* name) {
  const bool shares = config.tied && build.tied_parameter != nullptr;
  if (shares && !build.separates_uses) {
    build.tied_parameter->add_use();
    return *build.tied_parameter;
  }
  nn::ParameterSpec spec =
      nn::vocabulary_parameter(config.tied ? kEmbeddingName : name, tensor_parallel(build),
                               config.vocabulary, config.width, kDeviation);
  spec.tied = config.tied;
  if (shares) spec.use_of = build.tied_parameter;
  if (config.tied && !shares) spec.copies = build.tied;
  nn::Parameter& table = parameters.add(std::move(spec));
  if (config.tied && !shares) build.tied_parameter = &table;
  return table;
}

class EmbeddingBlock : public nn::Block {
 public:
  EmbeddingBlock(const GptConfig& config, nn::BuildContext& build)
      : config_(config),
        parallel_(tensor_parallel(build)),
        table_(vocabulary_table(parameters_, build, config, kEmbeddingName)),
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

class TransformerBlock : public nn::Block {
 public:
  TransformerBlock(const GptConfig& config, nn::BuildContext& build, int layer)
      : TransformerBlock(config, build, layer,
                         {parameters_, tensor_parallel(build), fmt::format("blocks.{}", layer)}) {}

  Values forward(Tape& tape, const MicroBatch& batch, Values in) const override {
    const Value& x = in[0];  // (B T, C)
    const Value attended =
        drop(tape, batch, attention_.forward(tape, batch, norm1_.forward(tape, x)), 0);
    const auto [sum, normed] = norm2_.forward_added(tape, x, attended);
    return {nn::add(tape, sum, drop(tape, batch, mlp_.forward(tape, normed), 1))};
  }

 private:
  TransformerBlock(const GptConfig& config, nn::BuildContext& build, int layer,
                   const nn::LayerContext& context)
      : dropout_(config.dropout),
        layer_(layer),
        parallel_(context.parallel),
        norm1_(context.child("norm1"), config.norm, config.width, config.bias),
        attention_(context.child("attention"), build,
                   {config.width, config.heads, config.kv_heads, config.bias, config.positions,
                    config.rotary_theta, kDeviation, residual_deviation(config), layer}),
        norm2_(context.child("norm2"), config.norm, config.width, config.bias),
        mlp_(context.child("mlp"), config.activation, config.width, config.hidden, config.bias,
             kDeviation, residual_deviation(config)) {}

  Value drop(Tape& tape, const MicroBatch& batch, const Value& x, int branch) const {
    return nn::dropout(tape, parallel_, batch, x, dropout_,
                       static_cast<std::uint32_t>(1 + 2 * layer_ + branch));
  }

  float dropout_;
  int layer_;
  nn::TensorParallel parallel_;
  nn::Norm norm1_;
  nn::Attention attention_;
  nn::Norm norm2_;
  nn::Mlp mlp_;
};

class HeadBlock : public nn::Block {
 public:
  HeadBlock(const GptConfig& config, nn::BuildContext& build)
      : parallel_(tensor_parallel(build)),
        norm_({parameters_, parallel_, "norm"}, config.norm, config.width, config.bias),
        table_(vocabulary_table(parameters_, build, config, "head.weight")) {}

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

// Elements of one layer's parameters.
std::int64_t layer_parameters(const GptConfig& c, bool matrices_only) {
  const std::int64_t kv_width = c.width / c.heads * c.kv_heads;
  const std::int64_t up = c.activation == nn::ActivationKind::kSwiglu ? 2 * c.hidden : c.hidden;
  const std::int64_t matrices = c.width * (2 * c.width + 2 * kv_width) + c.width * (up + c.hidden);
  if (matrices_only) return matrices;
  const std::int64_t biases = c.bias ? 2 * c.width + 2 * kv_width + up + c.width : 0;
  const std::int64_t norms = (c.norm == nn::NormKind::kLayer && c.bias ? 4 : 2) * c.width;
  return matrices + biases + norms;
}

std::int64_t count_parameters(const GptConfig& c) {
  std::int64_t count = c.layers * layer_parameters(c, false) + c.vocabulary * c.width;
  if (!c.tied) count += c.vocabulary * c.width;
  if (c.positions == nn::PositionKind::kLearned) count += c.context * c.width;
  return count + (c.norm == nn::NormKind::kLayer && c.bias ? 2 : 1) * c.width;
}

// The numbers that the forward of a block reads from memory and writes to it for a sample: those of
// each operation's rows, and each weight once.
double embedding_traffic(const GptConfig& c) {
  const std::int64_t positions = c.positions == nn::PositionKind::kLearned ? 2 * c.width : 0;
  return static_cast<double>(c.context * (2 * c.width + positions));
}

double layer_traffic(const GptConfig& c) {
  const std::int64_t qkv = c.width + 2 * (c.width / c.heads * c.kv_heads);
  const std::int64_t up = c.activation == nn::ActivationKind::kSwiglu ? 2 * c.hidden : c.hidden;
  const std::int64_t attention = 2 * c.width + 2 * (c.width + qkv) + 2 * c.width;
  const std::int64_t mlp = 4 * c.width + c.width + 2 * up + 2 * c.hidden + 4 * c.width;
  return static_cast<double>(c.context * (attention + mlp) + layer_parameters(c, true));
}

double head_traffic(const GptConfig& c) {
  return static_cast<double>(c.context * (3 * c.width + 3 * c.vocabulary) + c.vocabulary * c.width);
}

}  // namespace

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
  if (c.width % c.heads != 0) {
    throw ConfigError(
        fmt::format("model.heads {} does not divide model.width {}", c.heads, c.width));
  }
  if (c.heads % c.kv_heads != 0) {
    throw ConfigError(
        fmt::format("model.kv_heads {} does not divide model.heads {}", c.kv_heads, c.heads));
  }
  if (c.positions == nn::PositionKind::kRotary && c.width / c.heads % 2 != 0) {
    throw ConfigError(
        fmt::format("rotary positions need an even head size, not {} (model.width / "
                    "model.heads)",
                    c.width / c.heads));
  }
}

nn::ModelPlan gpt_plan(const GptConfig& config) {
  check(config);
  nn::ModelPlan plan;
  plan.length = config.context;
  plan.parameters = count_parameters(config);
  const double context = static_cast<double>(config.context);
  // Per sample, forward: 2 FLOPs per weight and position, and causal attention's half matrices.
  const double layer_flops = 2.0 * context * static_cast<double>(layer_parameters(config, true)) +
                             2.0 * context * context * static_cast<double>(config.width);
  const double head_flops =
      2.0 * context * static_cast<double>(config.vocabulary) * static_cast<double>(config.width);
  plan.flops_per_sample = 3.0 * (static_cast<double>(config.layers) * layer_flops + head_flops);
  plan.description = fmt::format(
      "{} layers, width {}, {} heads{}, {}, {}, {} positions{}", config.layers, config.width,
      config.heads,
      config.kv_heads == config.heads ? ""
                                      : fmt::format(" ({} for keys and values)", config.kv_heads),
      config.norm == nn::NormKind::kLayer ? "layer norm" : "RMS norm",
      config.activation == nn::ActivationKind::kGelu ? "GELU" : "SwiGLU",
      config.positions == nn::PositionKind::kLearned ? "learned" : "rotary",
      config.tied ? ", tied embeddings" : "");

  const auto stream = [width = config.width](std::int64_t batch, std::int64_t length,
                                             const nn::TensorParallel& parallel) {
    return std::vector<nn::BoundaryTensor>{{{parallel.outside_rows(batch * length), width}}};
  };
  const auto add = [&](std::string name, double flops, double floats, bool holds_tied, auto make) {
    plan.blocks.push_back({.name = std::move(name),
                           .flops = flops,
                           .bytes = floats * sizeof(float),
                           .holds_tied = holds_tied,
                           .build = make,
                           .boundary = stream});
  };
  add("embedding", 0.01 * layer_flops, embedding_traffic(config), config.tied,
      [config](nn::BuildContext& build) {
        return std::make_unique<EmbeddingBlock>(config, build);
      });
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    add(fmt::format("blocks.{}", layer), layer_flops, layer_traffic(config), false,
        [config, layer](nn::BuildContext& build) {
          return std::make_unique<TransformerBlock>(config, build, layer);
        });
  }
  add("head", head_flops, head_traffic(config), config.tied,
      [config](nn::BuildContext& build) { return std::make_unique<HeadBlock>(config, build); });
  plan.blocks.back().loss = true;
  plan.blocks.back().boundary = {};
  plan.blocks.back().sliced_classes = config.vocabulary;
  return plan;
}

}  // namespace trireme::models
