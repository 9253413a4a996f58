#include "models/bert/bert_family.h"

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

#include "models/bert/bert.h"
#include "models/bert/onnx_graph.h"
#include "models/bert/transformers_names.h"
#include "models/encoder_keys.h"

namespace trireme::models {
namespace {

BertConfig bert_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  return preset ? bert_preset(*preset) : BertConfig();
}

std::int64_t bert_context(const OptionValues& keys) {
  return model_key<int>(keys, "context").value_or(static_cast<int>(bert_of(keys).context));
}

BertConfig bert_with(const OptionValues& keys, const DataFacts& data) {
  const BertConfig preset = bert_of(keys);
  BertConfig result = preset;
  read_encoder_keys(keys, result);
  result.vocabulary =
      number_of_data(keys, "vocabulary", data.vocabulary, "tokens", preset.vocabulary);
  result.context = bert_context(keys);
  result.logits = type_of_logits_key(keys);
  check(result);
  return result;
}

OptionValues bert_keys(const BertConfig& model) {
  OptionValues keys = encoder_keys(model);
  keys["vocabulary"] = write_value(model.vocabulary);
  keys["context"] = write_value(model.context);
  write_logits_key(model.logits, keys);
  return keys;
}

std::vector<Operation> bert_operations(const BertConfig& config, std::int64_t samples) {
  const std::int64_t rows = samples * config.context, width = config.width;
  const std::int64_t targets = samples * config.targets();
  const TransformerSizes sizes = transformer_sizes(config);
  std::vector<Operation> list = layer_operations(sizes, samples);
  list.emplace_back(EmbeddingSizes{rows, config.vocabulary, width});
  list.emplace_back(PositionsSizes{rows, config.context, width});
  list.emplace_back(LinearSizes{"head_transform", targets, width, width});
  list.emplace_back(LossSizes{targets, width, config.vocabulary, config.logits});
  list.emplace_back(UpdateSizes{bert_plan(config).blocks[1].parameters});
  return list;
}

class BertFamily final : public Family {
 public:
  std::string_view name() const override { return "bert"; }
  std::string_view task() const override { return "masked_language_model"; }
  std::vector<std::string_view> presets() const override { return bert_preset_names(); }
  void add_keys(Options& options, OptionValues& keys) const override;
  void check_keys(const OptionValues& keys) const override {
    check_divides("model.heads", model_key<int>(keys, "heads"), "model.width",
                  model_key<int>(keys, "width"));
  }
  Shape sample_shape(const OptionValues& keys) const override { return {bert_context(keys)}; }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override {
    return bert_model(bert_with(keys, data));
  }
  std::string summary(const OptionValues& keys) const override;
  std::vector<std::string_view> foreign_types() const override { return {"bert"}; }
  ForeignKeys keys_of_foreign(const Json& config) const override { return keys_of_bert(config); }
};

void BertFamily::add_keys(Options& options, OptionValues& keys) const {
  const KeyAdder model(options, keys);
  model.add<std::string>(
      "preset", "",
      "a published model's sizes, as bert-small (default: bert-base); the other model keys change "
      "it",
      not_empty(), OnChange::kCompared);
  add_encoder_sizes(model);
  model.add<int>("vocabulary", "tokens", "size of the vocabulary; auto: that of the data",
                 between(1, limits::kTokens));
  model.add<int>("context", "tokens", "length of a training sequence", between(1, limits::kTokens));
  add_encoder_rest(model);
  add_logits_key(model);
}

std::string BertFamily::summary(const OptionValues& keys) const {
  return summary_of(keys, {{"layers", "layers"},
                           {"width", "wide"},
                           {"heads", "heads"},
                           {"context", "tokens of context"}});
}

}  // namespace

Model bert_model(const BertConfig& config) {
  return {.request = {"bert", bert_keys(config)},
          .plan = bert_plan(config),
          .data = {.vocabulary = static_cast<int>(config.vocabulary)},
          .attention = transformer_sizes(config).attention(1),
          .check_grid =
              [config](const GridShape& grid) {
                nn::check_heads_fit(config.heads, config.heads, grid[Axis::kTensor]);
              },
          .operations = [config](std::int64_t samples) { return bert_operations(config, samples); },
          .foreign = [config] { return transformers_model(config); },
          .onnx = [config](DType weights) { return onnx_model(config, weights); }};
}

const Family& bert_family() {
  static const BertFamily kFamily;
  return kFamily;
}

}  // namespace trireme::models
