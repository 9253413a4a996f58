#include "models/bert/transformers_names.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/foreign_config.h"

namespace trireme::models {
namespace {

std::string config_json(const BertConfig& c) {
  return Json::object({{"architectures", Json::array({"BertForMaskedLM"})},
                       {"model_type", "bert"},
                       {"vocab_size", c.vocabulary},
                       {"max_position_embeddings", c.context},
                       {"type_vocab_size", kBertSegments},
                       {"hidden_size", c.width},
                       {"num_hidden_layers", c.layers},
                       {"num_attention_heads", c.heads},
                       {"intermediate_size", c.hidden},
                       {"hidden_act", "gelu"},
                       {"layer_norm_eps", c.norm_epsilon},
                       {"hidden_dropout_prob", 0.0},
                       {"attention_probs_dropout_prob", 0.0},
                       {"tie_word_embeddings", true},
                       {"pad_token_id", Json()}})
             .dump(2) +
         "\n";
}

}  // namespace

ForeignModel transformers_model(const BertConfig& c) {
  ForeignModel model{
      .format = "BERT as transformers has it",
      .tensors = {},
      .prefix = "bert.",
      .unused = {"embeddings.position_ids"},  // 0, 1, 2 ...
      .copies = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                 {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
      .left_out = {"pooler.dense.weight", "pooler.dense.bias",  // of other tasks
                   "cls.seq_relationship.weight", "cls.seq_relationship.bias"},
      .older_endings = {{"LayerNorm.weight", "LayerNorm.gamma"},
                        {"LayerNorm.bias", "LayerNorm.beta"}},
      .config = [c] { return config_json(c); }};
  std::vector<ForeignTensor>& all = model.tensors;
  const auto add = [&](const std::string& name, const std::string& ours, const Shape& weight) {
    add_same_layer(all, name, ours, weight);
  };
  const Shape vector = {c.width}, square = {c.width, c.width};
  const std::string embeddings = "bert.embeddings.";
  all.push_back(
      same_tensor(embeddings + "word_embeddings.weight", kEmbeddingName, {c.vocabulary, c.width}));
  all.push_back(same_tensor(embeddings + "position_embeddings.weight", "positions.weight",
                            {c.context, c.width}));
  all.push_back(same_tensor(embeddings + "token_type_embeddings.weight", "segments.weight",
                            {kBertSegments, c.width}));
  add(embeddings + "LayerNorm", "embedding.norm", vector);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string name = fmt::format("bert.encoder.layer.{}", layer);
    const std::string ours = fmt::format("blocks.{}", layer);
    for (const char* part : {"query", "key", "value"}) {
      add(fmt::format("{}.attention.self.{}", name, part),
          fmt::format("{}.attention.{}", ours, part), square);
    }
    add(name + ".attention.output.dense", ours + ".attention.output", square);
    add(name + ".attention.output.LayerNorm", ours + ".norm1", vector);
    add(name + ".intermediate.dense", ours + ".mlp.up", {c.hidden, c.width});
    add(name + ".output.dense", ours + ".mlp.down", {c.width, c.hidden});
    add(name + ".output.LayerNorm", ours + ".norm2", vector);
  }
  add("cls.predictions.transform.dense", "head.transform", square);
  add("cls.predictions.transform.LayerNorm", "head.norm", vector);
  all.push_back(same_tensor("cls.predictions.bias", "head.bias", {c.vocabulary}));
  return model;
}

ForeignKeys keys_of_bert(const Json& json) {
  constexpr std::string_view kWhose = "our BERT models";
  ForeignConfig config(json);
  config.require("hidden_act", "gelu", kWhose);
  config.require("position_embedding_type", "absolute", kWhose);
  config.require("type_vocab_size", kBertSegments, kWhose);
  config.require("tie_word_embeddings", true, kWhose);
  config.require("is_decoder", false, kWhose);
  config.require("add_cross_attention", false, kWhose);
  // What models for other tasks read.
  config.ignore({"classifier_dropout", "pooler_fc_size", "pooler_num_attention_heads",
                 "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality"});
  OptionValues keys = {{"layers", write_value(config.integer("num_hidden_layers", 12))},
                       {"width", write_value(config.integer("hidden_size", 768))},
                       {"heads", write_value(config.integer("num_attention_heads", 12))},
                       {"hidden", write_value(config.integer("intermediate_size", 3072))},
                       {"vocabulary", write_value(config.integer("vocab_size", 30522))},
                       {"context", write_value(config.integer("max_position_embeddings", 512))},
                       {"norm_epsilon", write_value(config.number("layer_norm_eps", 1e-12))}};
  return {std::move(keys), config.rest()};
}

}  // namespace trireme::models
