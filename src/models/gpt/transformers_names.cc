#include "models/gpt/transformers_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "models/foreign_config.h"
#include "models/gpt/gpt_keys.h"
#include "models/gpt/model_types.h"

namespace trireme::models {
namespace {

using Fused = NamedLayer::Fused;

const std::vector<ModelType>& model_types() {
  static const std::vector<ModelType> kTypes = [] {
    std::vector<ModelType> all = llama_types();
    for (const auto& more : {gemma_types(), other_types()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return kTypes;
}

// Models of texts and pictures, whose text model is in text_config: their type, and that of the
// text model where it does not say.
constexpr std::array<std::pair<std::string_view, const char*>, 2> kOuterTypes = {
    {{"gemma3", "gemma3_text"}, {"mistral3", "mistral"}}};

// A layer or a norm inside one of our blocks.
struct BlockLayer {
  Shape weight;
  bool bias;
  std::int64_t heads = 0;  // that its rows are divided into
};

// The layers of a block by name.
std::map<std::string, BlockLayer> block_layers(const GptConfig& c) {
  const std::int64_t head = c.head_channels();
  const std::int64_t queries = head * c.heads, keys = head * c.kv_heads;
  const bool norm_bias = c.norm == nn::NormKind::kLayer && c.biases.norm;
  std::map<std::string, BlockLayer> all = {
      {"attention.query", {{queries, c.width}, c.biases.qkv, c.heads}},
      {"attention.key", {{keys, c.width}, c.biases.qkv, c.kv_heads}},
      {"attention.value", {{keys, c.width}, c.biases.qkv, c.kv_heads}},
      {"attention.output", {{c.width, queries}, c.biases.output}},
      {"mlp.up", {{c.hidden, c.width}, c.biases.mlp}},
      {"mlp.down", {{c.width, c.hidden}, c.biases.mlp}}};
  if (nn::is_gated(c.activation)) all["mlp.gate"] = all["mlp.up"];
  if (c.query_key_norm != nn::QueryKeyNorm::kNone) {
    const bool of_head = c.query_key_norm == nn::QueryKeyNorm::kHead;
    all["attention.query_norm"] = {{of_head ? head : queries}, false};
    all["attention.key_norm"] = {{of_head ? head : keys}, false};
  }
  const BlockLayer norm = {{c.width}, norm_bias};
  if (c.layout != BlockLayout::kAfter) all["norm1"] = norm;
  if (c.layout != BlockLayout::kAfter && c.layout != BlockLayout::kParallelOneNorm) {
    all["norm2"] = norm;
  }
  if (c.layout == BlockLayout::kAfter || c.layout == BlockLayout::kBoth) {
    all["norm1_after"] = all["norm2_after"] = norm;
  }
  return all;
}

// The rows of our parameter of that shape from `row` on, at element `offset` of a foreign tensor
// whose rows have as many elements.
ForeignPart rows_of(const std::string& parameter, const Shape& shape, std::int64_t row,
                    std::int64_t rows, std::int64_t offset) {
  std::vector<std::int64_t> start(static_cast<std::size_t>(shape.rank()), 0);
  start[0] = row;
  std::vector<std::int64_t> strides = {1};
  if (shape.rank() == 2) strides = {shape[1], 1};
  return {.ours = "parameters/" + parameter,
          .shape = shape,
          .start = std::move(start),
          .extent = shape.with(0, rows),
          .offset = offset,
          .strides = std::move(strides)};
}

// One tensor of the rows of several of our parameters.
ForeignTensor fused_rows(std::string name, const std::vector<std::string>& ours,
                         const std::vector<Shape>& shapes, Fused fused, std::int64_t heads) {
  if (fused == Fused::kTransposed) return fused_transposed(std::move(name), ours, shapes);
  std::int64_t rows = 0;
  for (const Shape& shape : shapes) rows += shape[0];
  ForeignTensor tensor{.name = std::move(name), .shape = shapes.front().with(0, rows), .parts = {}};
  const std::int64_t groups = fused == Fused::kByHead ? heads : 1;
  std::int64_t offset = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const std::int64_t each = shapes[i][0] / groups;
      tensor.parts.push_back(rows_of(ours[i], shapes[i], group * each, each, offset));
      offset += each * (shapes[i].elements() / shapes[i][0]);
    }
  }
  return tensor;
}

void add_block(std::vector<ForeignTensor>& all, const GptConfig& c, const TensorNames& names,
               std::int64_t number) {
  const std::map<std::string, BlockLayer> layers = block_layers(c);
  for (const NamedLayer& layer : names.layer) {
    if (!layers.contains(layer.ours.front())) continue;
    std::vector<std::string> weights, biases;
    std::vector<Shape> shapes, vectors;
    for (const std::string& ours : layer.ours) {
      const std::string name = fmt::format("blocks.{}.{}", number, ours);
      weights.push_back(name + ".weight");
      biases.push_back(name + ".bias");
      shapes.push_back(layers.at(ours).weight);
      vectors.push_back({shapes.back()[0]});
    }
    const BlockLayer& first = layers.at(layer.ours.front());
    const std::string theirs =
        fmt::format("{}{}.{}.{}", names.prefix, names.layers, number, layer.theirs);
    all.push_back(fused_rows(theirs + ".weight", weights, shapes, layer.fused, first.heads));
    if (!first.bias) continue;
    all.push_back(fused_rows(theirs + ".bias", biases, vectors, layer.fused, first.heads));
  }
}

Json written_config(const ModelType& type, GptConfig c) {
  Json json = Json::object(
      {{"architectures", Json::array({type.architecture})}, {"model_type", type.name}});
  ConfigFields fields(json);
  type.fields(fields, c);
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) json[token] = Json();
  return json;
}

struct ReadConfig {
  GptConfig model;
  std::vector<std::string> rest;
};

ReadConfig read_config(const ModelType& type, const Json& json) {
  ForeignConfig from(json);
  ConfigFields fields(from, fmt::format("our {} models", type.title));
  GptConfig model;
  type.fields(fields, model);
  return {simplest(model), from.rest()};
}

// The keys by which a type's models are told from each other.
OptionValues compared_keys(GptConfig model) {
  model.dropout = 0.0f;
  model.context = reach_of(model);
  if (model.positions == nn::PositionKind::kLearned) model.rotary_theta = 0.0f;
  return keys_of(simplest(std::move(model)));
}

// What a type's config.json says of a model is all of it, if it comes back from there.
bool describes(const ModelType& type, const GptConfig& c) {
  try {
    const GptConfig back = read_config(type, written_config(type, c)).model;
    return compared_keys(back) == compared_keys(c);
  } catch (const ConfigError&) {
    return false;
  }
}

std::string format_of(const ModelType& type) {
  return fmt::format("{} as transformers has it", type.title);
}

const ModelType* type_of(const GptConfig& c, std::string_view preferred = {}) {
  for (const ModelType& type : model_types()) {
    if (preferred == type.name || (preferred == format_of(type) && describes(type, c)))
      return &type;
  }
  const auto found = std::ranges::find_if(
      model_types(), [&](const ModelType& type) { return describes(type, c); });
  return found == model_types().end() ? nullptr : &*found;
}

// What stands in the way of types that we do not read.
struct MissingType {
  std::string_view beginning;  // of model_type
  const char* what;
};
constexpr const char* kExperts = "mixtures of experts";
constexpr const char* kHybrid = "layers with a recurrent state";
constexpr std::array kMissing = {
    MissingType{"gpt_oss", "mixtures of experts and attention sinks"},
    MissingType{"qwen3_5", "layers of linear attention and gated attention"},
    MissingType{"qwen3_next",
                "layers of linear attention, gated attention and mixtures of experts"},
    MissingType{"gemma4", "embeddings by layer and keys and values shared between layers"},
    MissingType{"gemma3n", "embeddings by layer and keys and values shared between layers"},
    MissingType{"llama4", "mixtures of experts and chunked attention"},
    MissingType{"deepseek", "latent attention and mixtures of experts"},
    MissingType{"kimi", "latent attention and mixtures of experts"},
    MissingType{"minicpm3", "latent attention"},
    MissingType{"mixtral", kExperts},
    MissingType{"qwen2_moe", kExperts},
    MissingType{"qwen3_moe", kExperts},
    MissingType{"olmoe", kExperts},
    MissingType{"phimoe", kExperts},
    MissingType{"granitemoe", kExperts},
    MissingType{"glm4_moe", kExperts},
    MissingType{"ernie4_5_moe", kExperts},
    MissingType{"jamba", kHybrid},
    MissingType{"mamba", kHybrid},
    MissingType{"bamba", kHybrid},
    MissingType{"zamba", kHybrid},
    MissingType{"falcon_h1", kHybrid},
    MissingType{"falcon_mamba", kHybrid},
    MissingType{"nemotron_h", kHybrid},
    MissingType{"recurrent_gemma", kHybrid},
    MissingType{"rwkv", kHybrid},
    MissingType{"lfm2", "convolutions"}};

}  // namespace

bool has_transformers_names(const GptConfig& config) {
  return type_of(config) != nullptr;
}

ForeignModel transformers_model(const GptConfig& c, std::string_view preferred) {
  const ModelType* const type = type_of(c, preferred);
  if (type == nullptr) {
    std::vector<const char*> titles;
    for (const ModelType& known : model_types()) titles.push_back(known.title);
    throw ConfigError(
        fmt::format("this model is not one that transformers has ({}): its choices (model.norm, "
                    "model.activation, model.positions, biases ...) are together in none, so other "
                    "programs have no names for it; --format onnx can hold it",
                    fmt::join(titles, ", ")));
  }
  const TensorNames names = type->names();
  ForeignModel model{
      .format = format_of(*type),
      .tensors = {},
      .prefix = names.prefix,
      .unused = names.unused,
      .other_beginnings = {{"model.language_model.", "model."},
                           {"language_model.model.", "model."},
                           {"language_model.lm_head.", "lm_head."}},
      .left_out_beginnings = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                              "model.multi_modal_projector."}};
  std::vector<ForeignTensor>& all = model.tensors;
  const Shape table = {c.vocabulary, c.width};
  const std::string embedding = names.prefix + names.embedding + ".weight";
  all.push_back(same_tensor(embedding, kEmbeddingName, table));
  if (!names.positions.empty()) {
    all.push_back(same_tensor(names.prefix + names.positions + ".weight", "positions.weight",
                              {c.context, c.width}));
  }
  for (std::int64_t layer = 0; layer < c.layers; ++layer) add_block(all, c, names, layer);
  add_same_layer(all, names.prefix + names.norm, "norm", {c.width},
                 c.norm == nn::NormKind::kLayer && c.biases.norm);
  const std::string head = names.head + ".weight";
  if (!names.older_head.empty()) model.older_endings = {{head, names.older_head + ".weight"}};
  if (c.tied) {
    model.copies.emplace_back(head, embedding);
    model.apart = {{"tied", "false"}};
  } else {
    all.push_back(same_tensor(head, "head.weight", table));
  }
  model.config = [c, type] { return written_config(*type, c).dump(2) + "\n"; };
  return model;
}

std::vector<std::string_view> transformers_types() {
  std::vector<std::string_view> names;
  for (const ModelType& type : model_types()) names.emplace_back(type.name);
  for (const auto& [outer, inner] : kOuterTypes) names.push_back(outer);
  return names;
}

namespace {

const ModelType& find_type(const std::string& name) {
  const auto found =
      std::ranges::find(model_types(), name, [](const ModelType& type) { return type.name; });
  if (found != model_types().end()) return *found;
  const std::string missing = missing_in_our_models(name);
  throw ConfigError(fmt::format("config.json: model_type {} of text_config {}is not one of {}",
                                shown(name),
                                missing.empty() ? "" : fmt::format("needs {}, and ", missing),
                                fmt::join(transformers_types(), ", ")));
}

// The config.json of the text model in one of texts and pictures. Whether its head is the embedding
// is said outside.
Json text_config_of(const Json& config, const char* otherwise) {
  const Json* const found = ForeignConfig(config).object("text_config");
  Json text = found == nullptr ? Json::object() : *found;
  text["model_type"] = ForeignConfig(text).text("model_type", otherwise);
  const Json* const tied = config.find("tie_word_embeddings");
  if (tied != nullptr) text["tie_word_embeddings"] = *tied;
  if (text.find("tie_word_embeddings") == nullptr) text["tie_word_embeddings"] = true;
  return text;
}

}  // namespace

ForeignKeys keys_of_transformers(const Json& config) {
  const std::string name = config.at("model_type").text();
  const auto* const outer =
      std::ranges::find(kOuterTypes, name, [](const auto& pair) { return pair.first; });
  const bool has_pictures = outer != kOuterTypes.end();
  // Other fields of the outer one are of pictures.
  const Json text = has_pictures ? text_config_of(config, outer->second) : config;
  const ModelType& type = find_type(text.at("model_type").text());
  ReadConfig read = read_config(type, text);
  OptionValues keys = keys_of(read.model);
  keys.erase("dropout");  // the run's to choose
  if (read.model.positions == nn::PositionKind::kLearned) keys.erase("rotary_theta");
  return {std::move(keys), std::move(read.rest), type.name};
}

std::string missing_in_our_models(std::string_view model_type) {
  const auto found = std::ranges::find_if(
      kMissing, [&](const MissingType& type) { return model_type.starts_with(type.beginning); });
  return found == kMissing.end() ? "" : found->what;
}

}  // namespace trireme::models
