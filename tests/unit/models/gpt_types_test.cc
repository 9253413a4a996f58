// The choices of the family gpt: presets beside the tables of litgpt, keys, rotary scaling, and
// what config.json may not say. What the models compute is compared by decoders_torch_test.
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/base/text.h"

#include "models/gpt/gpt_keys.h"
#include "models/gpt/transformers_names.h"
#include "support/message_of.h"

namespace trireme::testing {
namespace {

using models::BlockLayout;
using models::GptConfig;
using models::RotaryScaling;

std::string digits_of(const GptConfig& c) {
  std::string digits;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) digits += c.has_window(layer) ? '1' : '0';
  return digits;
}

TEST(GptPresets, AreAsLitgptHasThem) {
  std::ifstream file(TRIREME_GPT_PRESETS);
  std::string line;
  int count = 0;
  for (; std::getline(file, line); ++count) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    std::map<std::string, std::string> theirs;
    while (words >> word) theirs[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    const GptConfig c = models::gpt_preset(name);
    const auto same = [&](const char* key, double ours) {
      const double value = std::stod(theirs.at(key));
      EXPECT_LE(std::abs(ours - value), 1e-7 * std::abs(value)) << name << ' ' << key;
    };
    same("layers", static_cast<double>(c.layers));
    same("width", static_cast<double>(c.width));
    same("heads", static_cast<double>(c.heads));
    same("kv_heads", static_cast<double>(c.kv_heads));
    same("head_size", static_cast<double>(c.head_channels()));
    same("hidden", static_cast<double>(c.hidden));
    same("vocabulary", static_cast<double>(c.vocabulary));
    same("context", static_cast<double>(c.context));
    same("theta", c.rotary_theta);
    same("share", c.rotary_share);
    same("epsilon", shortest(c.norm_epsilon));
    same("window", static_cast<double>(c.window));
    EXPECT_EQ(c.window > 0 ? digits_of(c) : "-", theirs["window_layers"]) << name;
    same("attention_cap", c.attention_cap);
    same("logit_cap", c.logit_cap);
    same("attention_scale", c.attention_scale > 0
                                ? c.attention_scale
                                : 1 / std::sqrt(static_cast<float>(c.head_channels())));
    same("window_theta", c.window_theta.value_or(0.0f));
    same("qkv_bias", c.biases.qkv);
    same("bias", c.biases.mlp);
    same("bias", c.biases.output);
    same("parallel", c.layout == BlockLayout::kParallel);
    same("query_key_norm", c.query_key_norm != nn::QueryKeyNorm::kNone);
    same("factor", c.rotary_scaling.factor);
    same("original", static_cast<double>(c.rotary_scaling.original_max_position_embeddings));
    same("embedding_scale", c.embedding_scale != 1.0f);
    same("rms", c.norm == nn::NormKind::kRms);
    // Each is a model of transformers, under its own sizes.
    EXPECT_TRUE(models::has_transformers_names(c)) << name;
  }
  EXPECT_EQ(count, 47);
}

// litgpt does not have their rotations.
TEST(GptPresets, ThatLitgptLacksAreAsTheirConfigJson) {
  std::ifstream file(TRIREME_PRESET_CONFIGS);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json configs = Json::parse(text);
  for (const char* name : {"gemma3-270m", "phi3.5-mini", "phi4-mini"}) {
    const GptConfig c = models::gpt_preset(name);
    OptionValues keys = models::keys_of(models::simplest(c));
    keys.erase("dropout");
    EXPECT_EQ(keys, models::keys_of_transformers(configs.at(name)).keys) << name;
    EXPECT_TRUE(models::has_transformers_names(c)) << name;
  }
}

// Transformers' Phi-3 takes the factor from both contexts alone.
TEST(ForeignTypes, AShorterContextLeavesAPhiItsFactor) {
  GptConfig c = models::gpt_preset("phi4-mini");
  const auto written = [&] { return Json::parse(models::transformers_model(c).config()); };
  const Json whole = written();
  c.context = 2048;
  EXPECT_EQ(written().dump(), whole.dump());
  EXPECT_EQ(whole.at("model_type").text(), "phi3");
  EXPECT_EQ(whole.at("rope_scaling").members().size(), 3u);
  c.context = 262144;  // beyond what the factor is for
  EXPECT_EQ(written().at("rope_scaling").at("factor").number(), 32.0);
}

TEST(GptKeys, OfEarlierModelsAreAsTheyWere) {
  for (const char* preset : {"gpt2-124m", "llama3-8b", "test-gpt", "test-llama"}) {
    const OptionValues keys = models::keys_of(models::gpt_preset(preset));
    EXPECT_EQ(keys.size(), 15u) << preset;
    EXPECT_EQ(models::keys_of(models::gpt_config(keys, {})), keys) << preset;
  }
}

TEST(GptKeys, DescribeEveryPreset) {
  for (const std::string_view preset : models::gpt_preset_names()) {
    const GptConfig model = models::simplest(models::gpt_preset(preset));
    const OptionValues keys = models::keys_of(model);
    EXPECT_EQ(models::keys_of(models::gpt_config(keys, {})), keys) << preset;
    EXPECT_EQ(models::keys_of(models::gpt_config({{"preset", std::string(preset)}}, {})), keys)
        << preset;
  }
}

std::string refusal(const OptionValues& keys) {
  return message_of<ConfigError>([&] { models::gpt_config(keys, {}); });
}

TEST(GptKeys, ThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal({{"rotary_share", "0.5"}}), "model.rotary_share needs model.positions rotary");
  EXPECT_EQ(refusal({{"window_layers", "10"}}), "model.window_layers needs model.window");
  EXPECT_EQ(refusal({{"norm", "rms"}, {"norm_bias", "true"}}),
            "model.norm_bias needs model.norm layer: RMS norms have no bias");
  EXPECT_EQ(refusal({{"positions", "rotary"}, {"rotary_scaling", "yarn factor=2 turns=3"}}),
            "model.rotary_scaling: rotary scaling: yarn has no field turns (or it is there twice); "
            "it has factor, beta_fast, beta_slow, mscale, mscale_all_dim, truncate, "
            "attention_factor, llama_4_scaling_beta, original_max_position_embeddings");
  EXPECT_NE(
      refusal({{"positions", "rotary"}, {"rotary_scaling", "ntk"}}).find("begins with none of"),
      std::string::npos);
  EXPECT_NE(refusal({{"window", "4"}, {"window_layers", "12"}}).find("model.window_layers"),
            std::string::npos);
}

TEST(RotaryScalings, AreWrittenAsTheyAreRead) {
  for (const char* text :
       {"none", "linear factor=4",
        "llama3 factor=8 low_freq_factor=2 original_max_position_embeddings=8192",
        "yarn factor=4 beta_fast=16 mscale=0.5 mscale_all_dim=0.7 truncate=false "
        "attention_factor=1.25 llama_4_scaling_beta=0.1 original_max_position_embeddings=64",
        "longrope factor=32 short_factor=1,1.5 long_factor=2,64.25 "
        "original_max_position_embeddings=4096"}) {
    EXPECT_EQ(models::text_of(models::read_rotary_scaling(text)), text);
  }
}

TEST(RotaryScalings, OfLongContextsChangeWithTheLength) {
  const RotaryScaling scaling = models::read_rotary_scaling(
      "longrope factor=4 short_factor=1,2 long_factor=3,4 "
      "original_max_position_embeddings=16");
  const nn::Rotations rotations = models::scaled_rotations(scaling, 100.0, 4, 64, false);
  EXPECT_EQ(rotations.far_from, 16);
  EXPECT_EQ(rotations.of(16).frequencies, (std::vector{1.0, 0.05}));
  EXPECT_EQ(rotations.of(17).frequencies, (std::vector{1.0 / 3, 0.025}));
  EXPECT_FLOAT_EQ(rotations.near.amplitude, std::sqrt(1.5f));
}

std::string refusal_of_json(const std::string& text) {
  return message_of<ConfigError>([&] { models::read_foreign_config(Json::parse(text)); });
}

TEST(ForeignTypes, SayWhatIsMissing) {
  EXPECT_NE(refusal_of_json(R"({"model_type": "gpt_oss"})")
                .find("model_type gpt_oss needs mixtures of experts and attention sinks, and is "
                      "not one of"),
            std::string::npos);
  EXPECT_NE(
      refusal_of_json(R"({"model_type": "qwen3_5"})").find("needs layers of linear attention"),
      std::string::npos);
  EXPECT_NE(refusal_of_json(R"({"model_type": "llama", "quantization_config": {"bits": 4}})")
                .find("config.json: quantization_config: its weights are quantized"),
            std::string::npos);
  EXPECT_NE(refusal_of_json(R"({"model_type": "llama", "rope_scaling": {"type": "spiral"}})")
                .find("config.json: rope_type is spiral"),
            std::string::npos);
  EXPECT_NE(refusal_of_json(R"({"model_type": "cohere", "use_qk_norm": true})")
                .find("config.json: use_qk_norm is true"),
            std::string::npos);
}

TEST(ForeignTypes, HaveTheDefaultsOfTheirClasses) {
  const OptionValues keys =
      models::keys_of_transformers(Json::parse(R"({"model_type": "gemma3_text"})")).keys;
  EXPECT_EQ(keys.at("window_layers"), "111110");
  EXPECT_EQ(keys.at("window"), "4096");
  EXPECT_EQ(keys.at("window_theta"), "10000");
  EXPECT_EQ(keys.at("rotary_theta"), "1000000");
  EXPECT_EQ(keys.at("head_size"), "256");
  EXPECT_EQ(keys.at("activation"), "geglu");
  // The text model inside one of texts and pictures.
  const OptionValues inner =
      models::keys_of_transformers(Json::parse(R"({"model_type": "gemma3", "text_config": {}})"))
          .keys;
  EXPECT_EQ(inner, keys);
}

}  // namespace
}  // namespace trireme::testing
