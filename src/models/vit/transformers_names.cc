#include "models/vit/transformers_names.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/foreign_config.h"

namespace trireme::models {
namespace {

// Their names of the classes, which are as many as there are classes; ours have none.
Json numbered_classes(std::int64_t classes, bool by_name) {
  // Read as a text: adding a member to an object takes a look at all that it has.
  std::string members;
  for (std::int64_t i = 0; i < classes; ++i) {
    members += i == 0 ? "" : ",";
    members +=
        by_name ? fmt::format(R"("LABEL_{0}":{0})", i) : fmt::format(R"("{0}":"LABEL_{0}")", i);
  }
  return Json::parse_unique("{" + members + "}");
}

std::string config_of(const VitConfig& c) {
  return Json::object({{"architectures", Json::array({"ViTForImageClassification"})},
                       {"model_type", "vit"},
                       {"hidden_size", c.width},
                       {"num_hidden_layers", c.layers},
                       {"num_attention_heads", c.heads},
                       {"intermediate_size", c.hidden},
                       {"hidden_act", "gelu"},
                       {"layer_norm_eps", c.norm_epsilon},
                       {"image_size", c.image},
                       {"patch_size", c.patch},
                       {"num_channels", nn::kColours},
                       {"qkv_bias", true},
                       {"hidden_dropout_prob", 0.0},
                       {"attention_probs_dropout_prob", 0.0},
                       {"id2label", numbered_classes(c.classes, false)},
                       {"label2id", numbered_classes(c.classes, true)}})
             .dump(2) +
         "\n";
}

}  // namespace

ForeignModel transformers_model(const VitConfig& c) {
  ForeignModel model{.format = "ViT as transformers has it",
                     .tensors = {},
                     .prefix = "vit.",
                     .left_out = {"pooler.dense.weight", "pooler.dense.bias"},
                     .config = [c] { return config_of(c); }};
  std::vector<ForeignTensor>& all = model.tensors;
  const auto add = [&](const std::string& name, const std::string& ours, const Shape& weight) {
    add_same_layer(all, name, ours, weight);
  };
  const Shape vector = {c.width}, square = {c.width, c.width};
  const std::string patches = "vit.embeddings.patch_embeddings.projection";
  all.push_back(reshaped_tensor("vit.embeddings.cls_token", "embedding.class_token", vector,
                                {1, 1, c.width}));
  all.push_back(reshaped_tensor("vit.embeddings.position_embeddings", "positions.weight",
                                {c.positions(), c.width}, {1, c.positions(), c.width}));
  all.push_back(convolution_tensor(patches + ".weight", "embedding.patches.weight",
                                   {c.width, c.patch, c.patch, nn::kColours}));
  all.push_back(same_tensor(patches + ".bias", "embedding.patches.bias", vector));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string name = fmt::format("vit.encoder.layer.{}", layer);
    const std::string ours = fmt::format("blocks.{}", layer);
    add(name + ".layernorm_before", ours + ".norm1", vector);
    for (const char* part : {"query", "key", "value"}) {
      add(fmt::format("{}.attention.attention.{}", name, part),
          fmt::format("{}.attention.{}", ours, part), square);
    }
    add(name + ".attention.output.dense", ours + ".attention.output", square);
    add(name + ".layernorm_after", ours + ".norm2", vector);
    add(name + ".intermediate.dense", ours + ".mlp.up", {c.hidden, c.width});
    add(name + ".output.dense", ours + ".mlp.down", {c.width, c.hidden});
  }
  add("vit.layernorm", "norm", vector);
  add("classifier", "head.classifier", {c.classes, c.width});
  return model;
}

ForeignKeys keys_of_vit(const Json& json) {
  constexpr std::string_view kWhose = "our vision transformers";
  ForeignConfig config(json);
  const std::int64_t width = config.integer("hidden_size", 768);
  config.require("hidden_act", "gelu", kWhose);
  config.require("num_channels", nn::kColours, kWhose);
  config.require("qkv_bias", true, kWhose);
  // What decides nothing but in training, or in models for other tasks.
  config.ignore({"encoder_stride", "pooler_output_size", "pooler_act"});
  // Without names there are two classes.
  const Json* labels = config.object("id2label");
  const std::int64_t classes =
      labels == nullptr ? 2 : static_cast<std::int64_t>(labels->members().size());
  OptionValues keys = {{"layers", write_value(config.integer("num_hidden_layers", 12))},
                       {"width", write_value(width)},
                       {"heads", write_value(config.integer("num_attention_heads", 12))},
                       {"hidden", write_value(config.integer("intermediate_size", 3072))},
                       {"patch", write_value(config.integer("patch_size", 16))},
                       {"image", write_value(config.integer("image_size", 224))},
                       {"classes", write_value(std::max<std::int64_t>(classes, 1))},
                       {"norm_epsilon", write_value(config.number("layer_norm_eps", 1e-12))}};
  return {std::move(keys), config.rest()};
}

}  // namespace trireme::models
