#include <cmath>
#include <utility>
#include <vector>

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

struct Sizes {
  std::int64_t layers, width, heads, kv_heads, hidden, vocabulary, context;
  bool tied = false;
  float theta = 10000.0f;
  float epsilon = 1e-5f;
  std::int64_t head_size = 0;
};
GptConfig llama(const Sizes& sizes) {
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
          .biases = nn::Biases::all(false),
          .rotary_theta = sizes.theta,
          .norm_epsilon = sizes.epsilon,
          .head_size = sizes.head_size};
}

// From Llama 3.1 on, for contexts of 131,072 after a training at 8,192.
GptConfig llama3_1(const Sizes& sizes, double factor) {
  GptConfig config = llama(sizes);
  config.rotary_scaling = {.kind = RotaryScaling::Kind::kLlama3,
                           .factor = factor,
                           .original_max_position_embeddings = 8192};
  return config;
}

GptConfig qwen2(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                std::int64_t hidden, std::int64_t vocabulary, std::int64_t context, bool tied,
                float epsilon) {
  GptConfig config = llama(
      {layers, width, heads, kv_heads, hidden, vocabulary, context, tied, 1000000.0f, epsilon});
  config.biases.qkv = true;
  return config;
}

GptConfig qwen3(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t hidden,
                bool tied) {
  GptConfig config =
      llama({layers, width, heads, 8, hidden, 151936, 40960, tied, 1000000.0f, 1e-6f, 128});
  config.query_key_norm = nn::QueryKeyNorm::kHead;
  return config;
}

// score: what scores are divided by the root of.
GptConfig gemma(const Sizes& sizes, double score, std::int64_t window, const char* layers) {
  GptConfig config = llama(sizes);
  config.activation = nn::ActivationKind::kGeglu;
  config.norm_plus_one = true;
  config.layout = BlockLayout::kBoth;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(score));
  config.window = window;
  config.window_layers = layers;
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(sizes.width)));
  return config;
}
GptConfig gemma2(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t hidden, std::int64_t head_size, double score) {
  GptConfig config = gemma(
      {layers, width, heads, kv_heads, hidden, 256000, 8192, true, 10000.0f, 1e-6f, head_size},
      score, 4096, "10");
  config.attention_cap = 50.0f;
  config.logit_cap = 30.0f;
  return config;
}
GptConfig gemma3(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t hidden, std::int64_t window, double score = 256,
                 std::int64_t head_size = 256) {
  GptConfig config = gemma(
      {layers, width, heads, kv_heads, hidden, 262144, 131072, true, 1000000.0f, 1e-6f, head_size},
      score, window, "111110");
  config.query_key_norm = nn::QueryKeyNorm::kHead;
  config.window_theta = 10000.0f;
  if (window == 512) {  // the smallest ones, of shorter contexts
    return config;
  }
  config.rotary_scaling = {.kind = RotaryScaling::Kind::kLinear, .factor = 8.0};
  config.window_scaling = RotaryScaling();
  return config;
}

GptConfig with_context(GptConfig config, std::int64_t context) {
  config.context = context;
  return config;
}

GptConfig with_window(GptConfig config, std::int64_t window) {
  config.window = window;
  return config;
}

// From Phi-3.5 on, for contexts of 131,072 after a training at 4,096. The window of their
// config.json is wider than that.
GptConfig long_phi(GptConfig config, std::vector<double> short_factor,
                   std::vector<double> long_factor) {
  config.rotary_scaling = {.kind = RotaryScaling::Kind::kLongRope,
                           .factor = 32.0,
                           .original_max_position_embeddings = 4096,
                           .short_factor = std::move(short_factor),
                           .long_factor = std::move(long_factor)};
  return with_window(std::move(config), 262144);
}
GptConfig phi3_5_mini() {
  return long_phi(llama({32, 3072, 32, 32, 8192, 32064, 131072}),
                  {1.0,
                   1.0199999809265137,
                   1.0299999713897705,
                   1.0299999713897705,
                   1.0499999523162842,
                   1.0499999523162842,
                   1.0499999523162842,
                   1.0499999523162842,
                   1.0499999523162842,
                   1.0699999332427979,
                   1.0999999046325684,
                   1.1099998950958252,
                   1.1599998474121094,
                   1.1599998474121094,
                   1.1699998378753662,
                   1.2899998426437378,
                   1.339999794960022,
                   1.679999828338623,
                   1.7899998426437378,
                   1.8199998140335083,
                   1.8499997854232788,
                   1.8799997568130493,
                   1.9099997282028198,
                   1.9399996995925903,
                   1.9899996519088745,
                   2.0199997425079346,
                   2.0199997425079346,
                   2.0199997425079346,
                   2.0199997425079346,
                   2.0199997425079346,
                   2.0199997425079346,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0299997329711914,
                   2.0799996852874756,
                   2.0899996757507324,
                   2.189999580383301,
                   2.2199995517730713,
                   2.5899994373321533,
                   2.729999542236328,
                   2.749999523162842,
                   2.8399994373321533},
                  {1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601,
                   1.5899999141693115, 1.600000023841858,  1.6200000047683716, 2.620000123977661,
                   3.2300000190734863, 3.2300000190734863, 4.789999961853027,  7.400000095367432,
                   7.700000286102295,  9.09000015258789,   12.199999809265137, 17.670000076293945,
                   24.46000099182129,  28.57000160217285,  30.420001983642578, 30.840002059936523,
                   32.590003967285156, 32.93000411987305,  42.320003509521484, 44.96000289916992,
                   50.340003967285156, 50.45000457763672,  57.55000305175781,  57.93000411987305,
                   58.21000289916992,  60.1400032043457,   62.61000442504883,  62.62000274658203,
                   62.71000289916992,  63.1400032043457,   63.1400032043457,   63.77000427246094,
                   63.93000411987305,  63.96000289916992,  63.970001220703125, 64.02999877929688,
                   64.06999969482422,  64.08000183105469,  64.12000274658203,  64.41000366210938,
                   64.4800033569336,   64.51000213623047,  64.52999877929688,  64.83999633789062});
}
GptConfig phi4_mini() {
  GptConfig config = long_phi(
      llama({32, 3072, 24, 8, 8192, 200064, 131072, true}), std::vector<double>(48, 1.0),
      {1.0,         1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,  1.956131817,
       2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023,
       4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372,
       10.4687158,  11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807,
       22.90118105, 25.61086418, 28.64115884, 32.03,       32.1,        32.13,       32.23,
       32.6,        32.61,       32.64,       32.66,       32.7,        32.71,       32.93,
       32.97,       33.28,       33.49,       33.5,        44.16,       47.77});
  config.rotary_share = 0.75f;
  return config;
}

GptConfig olmo2(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t hidden) {
  GptConfig config =
      llama({layers, width, heads, heads, hidden, 100352, 4096, false, 500000.0f, 1e-6f});
  config.layout = BlockLayout::kAfter;
  config.query_key_norm = nn::QueryKeyNorm::kWidth;
  return config;
}

GptConfig pythia(std::int64_t layers, std::int64_t width, std::int64_t heads,
                 std::int64_t vocabulary = 50304, std::int64_t context = 2048) {
  GptConfig config = gpt2(layers, width, heads);
  config.vocabulary = vocabulary;
  config.context = context;
  config.activation = nn::ActivationKind::kGeluErf;
  config.positions = nn::PositionKind::kRotary;
  config.tied = false;
  config.layout = BlockLayout::kParallel;
  config.rotary_share = 0.25f;
  return config;
}

using Presets = std::vector<std::pair<std::string_view, GptConfig>>;

// GPT-2: Radford et al. 2019, table 2, with the published counts of heads. llama-160m: the sizes of
// JackFram/llama-160m. Llama 3: Grattafiori et al. 2024, table 3, and model cards; llama3.2-1b is
// for the context of its training. The others are what the config.json of each is, with the rows of
// its vocabulary's table. The test- presets are small enough for every grid of 8 ranks.
const Presets& presets() {
  static const Presets kPresets = {
      {"gpt2-124m", gpt2(12, 768, 12)},
      {"gpt2-350m", gpt2(24, 1024, 16)},
      {"gpt2-774m", gpt2(36, 1280, 20)},
      {"gpt2-1.5b", gpt2(48, 1600, 25)},
      {"llama-160m", llama({12, 768, 12, 12, 3072, 32000, 2048})},
      {"llama3.2-1b", llama({16, 2048, 32, 8, 8192, 128256, 8192, true, 500000.0f})},
      {"llama3.2-3b", llama3_1({28, 3072, 24, 8, 8192, 128256, 131072, true, 500000.0f}, 32.0)},
      {"llama3-8b", llama({32, 4096, 32, 8, 14336, 128256, 8192, false, 500000.0f})},
      {"llama3-70b", llama({80, 8192, 64, 8, 28672, 128256, 8192, false, 500000.0f})},
      {"llama3.1-8b", llama3_1({32, 4096, 32, 8, 14336, 128256, 131072, false, 500000.0f}, 8.0)},
      {"llama3.1-70b", llama3_1({80, 8192, 64, 8, 28672, 128256, 131072, false, 500000.0f}, 8.0)},
      {"llama3.1-405b",
       llama3_1({126, 16384, 128, 8, 53248, 128256, 131072, false, 500000.0f}, 8.0)},
      {"llama3.3-70b", llama3_1({80, 8192, 64, 8, 28672, 128256, 131072, false, 500000.0f}, 8.0)},
      {"qwen2.5-0.5b", qwen2(24, 896, 14, 2, 4864, 151936, 32768, true, 1e-6f)},
      {"qwen2.5-1.5b", qwen2(28, 1536, 12, 2, 8960, 151936, 131072, true, 1e-6f)},
      {"qwen2.5-3b", qwen2(36, 2048, 16, 2, 11008, 151936, 32768, true, 1e-6f)},
      {"qwen2.5-7b", qwen2(28, 3584, 28, 4, 18944, 152064, 131072, false, 1e-6f)},
      {"qwen2.5-14b", qwen2(48, 5120, 40, 8, 13824, 152064, 131072, false, 1e-5f)},
      {"qwen2.5-32b", qwen2(64, 5120, 40, 8, 27648, 152064, 131072, false, 1e-5f)},
      {"qwen2.5-72b", qwen2(80, 8192, 64, 8, 29568, 152064, 131072, false, 1e-5f)},
      {"qwen3-0.6b", qwen3(28, 1024, 16, 3072, true)},
      {"qwen3-1.7b", qwen3(28, 2048, 16, 6144, true)},
      {"qwen3-4b", qwen3(36, 2560, 32, 9728, true)},
      {"qwen3-8b", qwen3(36, 4096, 32, 12288, false)},
      {"qwen3-14b", qwen3(40, 5120, 40, 17408, false)},
      {"qwen3-32b", qwen3(64, 5120, 64, 25600, false)},
      {"gemma2-2b", gemma2(26, 2304, 8, 4, 9216, 256, 256)},
      {"gemma2-9b", gemma2(42, 3584, 16, 8, 14336, 256, 256)},
      {"gemma2-27b", gemma2(46, 4608, 32, 16, 36864, 128, 144)},
      {"gemma3-270m", with_context(gemma3(18, 640, 4, 1, 2048, 512), 32768)},
      {"gemma3-1b", gemma3(26, 1152, 4, 1, 6912, 512)},
      {"gemma3-4b", gemma3(34, 2560, 8, 4, 10240, 1024)},
      {"gemma3-12b", gemma3(48, 3840, 16, 8, 15360, 1024)},
      {"gemma3-27b", gemma3(62, 5376, 32, 16, 21504, 1024, 168, 128)},
      {"mistral-7b-v0.1", with_window(llama({32, 4096, 32, 8, 14336, 32000, 4096}), 4096)},
      {"mistral-7b-v0.3", llama({32, 4096, 32, 8, 14336, 32768, 32768, false, 1000000.0f})},
      {"mistral-large", llama({88, 12288, 96, 8, 28672, 32768, 32768, false, 1000000.0f})},
      {"phi3-mini-4k", with_window(llama({32, 3072, 32, 32, 8192, 32064, 4096}), 2047)},
      {"phi3.5-mini", phi3_5_mini()},
      {"phi4-mini", phi4_mini()},
      {"phi4", llama({40, 5120, 40, 10, 17920, 100352, 16384, false, 250000.0f})},
      {"smollm2-135m", llama({30, 576, 9, 3, 1536, 49152, 8192, true, 100000.0f})},
      {"smollm2-360m", llama({32, 960, 15, 5, 2560, 49152, 8192, true, 100000.0f})},
      {"smollm2-1.7b", llama({24, 2048, 32, 32, 8192, 49152, 8192, true, 130000.0f})},
      {"olmo2-7b", olmo2(32, 4096, 32, 11008)},
      {"olmo2-13b", olmo2(40, 5120, 40, 13824)},
      {"pythia-14m", pythia(6, 128, 4, 50304, 512)},
      {"pythia-31m", pythia(6, 256, 8, 50304, 1024)},
      {"pythia-70m", pythia(6, 512, 8)},
      {"pythia-160m", pythia(12, 768, 12)},
      {"pythia-410m", pythia(24, 1024, 16)},
      {"pythia-1b", pythia(16, 2048, 8)},
      {"pythia-1.4b", pythia(24, 2048, 16)},
      {"pythia-2.8b", pythia(32, 2560, 32)},
      {"pythia-6.9b", pythia(32, 4096, 32, 50432)},
      {"pythia-12b", pythia(36, 5120, 40, 50688)},
      {"test-gpt",
       {.layers = 7,
        .width = 32,
        .heads = 8,
        .kv_heads = 8,
        .hidden = 128,
        .vocabulary = 67,
        .context = 16}},
      {"test-llama", llama({7, 32, 8, 2, 88, 67, 16})},
  };
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
