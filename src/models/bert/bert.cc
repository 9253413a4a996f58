#include "models/bert/bert.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/nn/masked_rows.h"

#include "models/keys.h"
#include "models/plan_costs.h"

namespace trireme::models {
namespace {

constexpr float kBertDeviation = 0.02f;  // of all initial weights (Devlin et al. 2019)

VocabularyTable table_of(const BertConfig& config) {
  return {config.vocabulary, config.width, true, kBertDeviation};
}

class BertEmbedding : public nn::Block {
 public:
  BertEmbedding(const BertConfig& config, nn::BuildContext& build)
      : BertEmbedding(config, build, {parameters_, tensor_parallel(build), ""}) {}

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    nn::Value x = tokens_.forward(tape, batch);  // (B T, C)
    x = segments_.forward(tape, positions_.forward(tape, batch, x));
    return {nn::dropout(tape, parallel_, batch, norm_.forward(tape, x), dropout_, 0)};
  }

 private:
  BertEmbedding(const BertConfig& config, nn::BuildContext& build, const nn::LayerContext& context)
      : dropout_(static_cast<float>(config.dropout)),
        parallel_(context.parallel),
        tokens_(context.child("embedding"),
                vocabulary_table(parameters_, build, table_of(config), kEmbeddingName)),
        positions_(context.child("positions"), config.context, config.width, kBertDeviation),
        segments_(context.child("segments"), kBertSegments, config.width, kBertDeviation),
        norm_(context.child("embedding").child("norm"), nn::NormKind::kLayer, config.width, true,
              static_cast<float>(config.norm_epsilon)) {}

  float dropout_;
  nn::TensorParallel parallel_;
  nn::VocabularyEmbedding tokens_;
  nn::LearnedPositions positions_;
  nn::SegmentEmbedding segments_;
  nn::Norm norm_;
};

// The rows that have a target leave the stream first, so all that follows is done for these alone.
// Every tensor rank computes the transform, which is less than 1 % of the work; the vocabulary is
// split over them.
class BertHead : public nn::Block {
 public:
  BertHead(const BertConfig& config, nn::BuildContext& build)
      : BertHead(config, build, {parameters_, {&build.grid.comm(Axis::kTensor), false}, "head"}) {}

  // Without targets it returns the logits (rows of kTargetRows, vocabulary), fp32.
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    const nn::Value rows = nn::target_rows(tape, stream_, batch, in[0]);
    const nn::Value x =
        norm_.forward(tape, nn::gelu_erf(tape, transform_.forward(tape, rows)));  // (targets, C)
    if (!batch.field(nn::kTargets).defined()) {
      const Tensor logits =
          nn::vocabulary_logits(tape.context(), inside_, x.tensor(), table_, &bias_);
      return {tape.input(logits, false)};
    }
    nn::vocabulary_loss(tape, inside_, batch, x, table_, &bias_, {}, logits_);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  BertHead(const BertConfig& config, nn::BuildContext& build, const nn::LayerContext& context)
      : stream_(tensor_parallel(build)),
        inside_(context.parallel),
        transform_(context, {{"transform", config.width, 1, 0, nn::outside_holders(inside_)}},
                   config.width, true, kBertDeviation),
        norm_(context.child("norm"), nn::NormKind::kLayer, config.width, true,
              static_cast<float>(config.norm_epsilon)),
        bias_(parameters_.add(nn::vocabulary_bias(context.child("bias").name, inside_,
                                                  config.vocabulary, build.vocabulary_multiple))),
        table_(vocabulary_table(parameters_, build, table_of(config), kEmbeddingName)),
        logits_(config.logits) {}

  nn::TensorParallel stream_, inside_;  // of the blocks before, and of what follows the gathering
  nn::ColumnParallelLinear transform_;
  nn::Norm norm_;
  nn::Parameter& bias_;
  nn::Parameter& table_;
  DType logits_;
};

BertConfig bert(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  return {.layers = layers, .width = width, .heads = heads, .hidden = 4 * width};
}

// Base and large: Devlin et al. 2019, section 3. Tiny and small: Turc et al. 2019, table 1.
const std::array<std::pair<std::string_view, BertConfig>, 4>& bert_presets() {
  static const std::array<std::pair<std::string_view, BertConfig>, 4> kPresets = {
      {{"bert-tiny", bert(2, 128, 2)},
       {"bert-small", bert(4, 512, 8)},
       {"bert-base", bert(12, 768, 12)},
       {"bert-large", bert(24, 1024, 16)}}};
  return kPresets;
}

}  // namespace

std::int64_t BertConfig::targets() const {
  return std::max<std::int64_t>(context * 15 / 100, 1);
}

BertConfig bert_preset(std::string_view name) {
  return preset_named(bert_presets(), name);
}

std::vector<std::string_view> bert_preset_names() {
  return names_of_presets(bert_presets());
}

TransformerSizes transformer_sizes(const BertConfig& config) {
  return {.length = config.context,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.heads,
          .hidden = config.hidden,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .activation = nn::ActivationKind::kGeluErf,
          .causal = false,
          .layout = BlockLayout::kBehindSum,
          .dropout = static_cast<float>(config.dropout),
          .deviation = kBertDeviation,
          .output_deviation = kBertDeviation};
}

void check(const BertConfig& config) {
  check(transformer_sizes(config));
}

nn::ModelPlan bert_plan(const BertConfig& config) {
  check(config);
  const TransformerSizes sizes = transformer_sizes(config);
  nn::ModelPlan plan;
  plan.length = config.context;
  plan.description = fmt::format(
      "BERT, {}, {} positions, tied embeddings{}", sizes_text(sizes, config.layers), config.context,
      config.dropout > 0 ? fmt::format(", dropout {}", config.dropout) : "");
  const auto embedding = [config](nn::BuildContext& build) {
    return std::make_unique<BertEmbedding>(config, build);
  };
  const auto head = [config](nn::BuildContext& build) {
    return std::make_unique<BertHead>(config, build);
  };
  plan.blocks.push_back({.name = "embedding",
                         .shares = {kEmbeddingName},
                         .build = embedding,
                         .boundary = stream_of(config.width, 0)});
  add_layers(plan, sizes, config.layers);
  plan.blocks.push_back({.name = "head",
                         .shares = {kEmbeddingName},
                         .loss = true,
                         .build = head,
                         .sliced_classes = config.vocabulary,
                         .logits = config.logits});
  count_costs(plan, {{nn::kTokens, {config.context}, DType::kI32},
                     {nn::kTargetRows, {config.targets()}, DType::kI32},
                     {nn::kTargets, {config.targets()}, DType::kI32}});
  return plan;
}

}  // namespace trireme::models
