#include "models/gpt/gpt_family.h"

#include <set>

#include "models/gpt/gpt.h"
#include "models/gpt/gpt_keys.h"
#include "models/gpt/onnx_graph.h"
#include "models/gpt/transformers_names.h"
#include "models/keys.h"

namespace trireme::models {
namespace {

std::vector<Operation> operations_of(const GptConfig& model, std::int64_t samples) {
  const std::int64_t rows = samples * model.context, width = model.width;
  std::vector<Operation> list = layer_operations(transformer_sizes(model), samples);
  list.emplace_back(EmbeddingSizes{rows, model.vocabulary, width});
  if (model.positions == nn::PositionKind::kLearned) {
    list.emplace_back(PositionsSizes{rows, model.context, width});
  }
  list.emplace_back(LossSizes{rows, width, model.vocabulary, model.logits});
  list.emplace_back(UpdateSizes{gpt_plan(model).parameters / model.layers});
  return list;
}

std::vector<std::int64_t> far_from(const GptConfig& config) {
  std::set<std::int64_t> all;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    all.insert(transformer_sizes(config, layer).rotations.far_from);
  }
  all.erase(0);  // of layers that never do
  return {all.begin(), all.end()};
}

class GptFamily final : public Family {
 public:
  std::string_view name() const override { return "gpt"; }
  std::string_view task() const override { return "causal_language_model"; }
  std::vector<std::string_view> presets() const override { return gpt_preset_names(); }
  void add_keys(Options& options, OptionValues& keys) const override {
    add_gpt_keys(options, keys);
  }
  void check_keys(const OptionValues& keys) const override { check_gpt_keys(keys); }
  Shape sample_shape(const OptionValues& keys) const override { return {gpt_context(keys)}; }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override;
  std::string summary(const OptionValues& keys) const override;
  std::vector<std::string_view> foreign_types() const override { return transformers_types(); }
  ForeignKeys keys_of_foreign(const Json& config) const override {
    return keys_of_transformers(config);
  }
};

Model GptFamily::resolve(const OptionValues& keys, const DataFacts& data) const {
  return gpt_model(gpt_config(keys, data));
}

std::string GptFamily::summary(const OptionValues& keys) const {
  return summary_of(keys, {{"layers", "layers"},
                           {"width", "wide"},
                           {"heads", "heads"},
                           {"context", "tokens of context"}});
}

}  // namespace

Model gpt_model(const GptConfig& config) {
  return {
      .request = {"gpt", keys_of(config)},
      .plan = gpt_plan(config),
      .data = {.vocabulary = static_cast<int>(config.vocabulary)},
      .attention = transformer_sizes(config).attention(1),
      .far_from = far_from(config),
      .check_grid =
          [config](const GridShape& grid) {
            nn::check_heads_fit(config.heads, config.kv_heads, grid[Axis::kTensor]);
          },
      .operations = [config](std::int64_t samples) { return operations_of(config, samples); },
      .foreign = [config] { return transformers_model(config); },
      .foreign_as = [config](std::string_view type) { return transformers_model(config, type); },
      .head = config.tied ? std::vector<std::string>() : std::vector<std::string>{"head.weight"},
      .onnx = [config](DType weights) { return onnx_model(config, weights); }};
}

const Family& gpt_family() {
  static const GptFamily kFamily;
  return kFamily;
}

}  // namespace trireme::models
