#include <array>
#include <utility>

#include "models/gpt/gpt.h"
#include "models/keys.h"

namespace trireme::models {
namespace {

GptConfig gpt2(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  return {.layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .hidden = 4 * width,
          .vocabulary = 50257,
          .context = 1024};
}

struct LlamaSizes {
  std::int64_t layers, width, heads, kv_heads, hidden, vocabulary, context;
  bool tied;
  float theta;
};
GptConfig llama(const LlamaSizes& sizes) {
  return {.layers = sizes.layers,
          .width = sizes.width,
          .heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .hidden = sizes.hidden,
          .vocabulary = sizes.vocabulary,
          .context = sizes.context,
          .norm = nn::NormKind::kRms,
          .activation = nn::ActivationKind::kSwiglu,
          .positions = nn::PositionKind::kRotary,
          .tied = sizes.tied,
          .bias = false,
          .rotary_theta = sizes.theta};
}

// GPT-2: Radford et al. 2019, table 2, with the published counts of heads. llama-160m: the sizes of
// JackFram/llama-160m. Llama 3: Grattafiori et al. 2024, table 3; 3.2-1b from its model card. The
// test- presets are small enough for every grid of 8 ranks.
const std::array<std::pair<std::string_view, GptConfig>, 9>& presets() {
  static const std::array<std::pair<std::string_view, GptConfig>, 9> kPresets = {{
      {"gpt2-124m", gpt2(12, 768, 12)},
      {"gpt2-350m", gpt2(24, 1024, 16)},
      {"gpt2-774m", gpt2(36, 1280, 20)},
      {"gpt2-1.5b", gpt2(48, 1600, 25)},
      {"llama-160m", llama({12, 768, 12, 12, 3072, 32000, 2048, false, 10000.0f})},
      {"llama3.2-1b", llama({16, 2048, 32, 8, 8192, 128256, 8192, true, 500000.0f})},
      {"llama3-8b", llama({32, 4096, 32, 8, 14336, 128256, 8192, false, 500000.0f})},
      {"test-gpt",
       {.layers = 7,
        .width = 32,
        .heads = 8,
        .kv_heads = 8,
        .hidden = 128,
        .vocabulary = 67,
        .context = 16}},
      {"test-llama", llama({7, 32, 8, 2, 88, 67, 16, false, 10000.0f})},
  }};
  return kPresets;
}

}  // namespace

GptConfig gpt_preset(std::string_view name) {
  return preset_named(presets(), name);
}

std::vector<std::string_view> gpt_preset_names() {
  return names_of_presets(presets());
}

}  // namespace trireme::models
