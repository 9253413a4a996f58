#include "models/vit/vit.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/nn/patches.h"

#include "models/keys.h"
#include "models/plan_costs.h"

namespace trireme::models {
namespace {

constexpr float kVitDeviation = 0.02f;  // of all initial weights, as Hugging Face's model has it

class VitEmbedding : public nn::Block {
 public:
  VitEmbedding(const VitConfig& config, nn::BuildContext& build)
      : dropout_(static_cast<float>(config.dropout)),
        positions_of_sample_(config.positions()),
        parallel_(tensor_parallel(build)),
        patches_({parameters_, parallel_, "embedding"},
                 {config.patch, config.width, kVitDeviation}),
        positions_({parameters_, parallel_, "positions"}, config.positions(), config.width,
                   kVitDeviation, false) {}

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& given, nn::Values) const override {
    const nn::MicroBatch batch = with_length(given, positions_of_sample_);
    const DType compute = parameters_.parameters().front()->weight().dtype();
    nn::Value x = patches_.forward(tape, batch, compute);  // (B T, C)
    x = positions_.forward(tape, batch, x);
    return {nn::dropout(tape, parallel_, batch, x, dropout_, 0)};
  }

 private:
  float dropout_;
  std::int64_t positions_of_sample_;
  nn::TensorParallel parallel_;
  nn::PatchEmbedding patches_;
  nn::LearnedPositions positions_;
};

// Every tensor rank computes the whole head: it is one row of each sample.
class VitHead : public nn::Block {
 public:
  VitHead(const VitConfig& config, nn::BuildContext& build)
      : VitHead(config, tensor_parallel(build),
                {parameters_, {&build.grid.comm(Axis::kTensor), false}, ""}) {}

  // Without targets it returns the logits (batch, classes), fp32.
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    const nn::Value token =
        nn::first_rows(tape, parallel_, with_length(batch, positions_of_sample_), in[0]);
    const nn::Value logits = classifier_.forward(tape, norm_.forward(tape, token));
    return nn::classify(tape, batch, logits, label_smoothing_);
  }
  bool is_loss() const override { return true; }

 private:
  VitHead(const VitConfig& config, const nn::TensorParallel& parallel,
          const nn::LayerContext& context)
      : label_smoothing_(static_cast<float>(config.label_smoothing)),
        positions_of_sample_(config.positions()),
        parallel_(parallel),
        norm_(context.child("norm"), nn::NormKind::kLayer, config.width, true,
              static_cast<float>(config.norm_epsilon)),
        classifier_(
            context.child("head"),
            {{"classifier", config.classes, 1, 0, nn::outside_holders(context.parallel), false}},
            config.width, true, kVitDeviation) {}

  float label_smoothing_;
  std::int64_t positions_of_sample_;
  nn::TensorParallel parallel_;
  nn::Norm norm_;
  nn::ColumnParallelLinear classifier_;
};

VitConfig vit(std::int64_t width, std::int64_t heads) {
  return {.width = width, .heads = heads, .hidden = 4 * width};
}

// Base: Dosovitskiy et al. 2021, table 1. Tiny and small: Touvron et al. 2021 (DeiT), table 1.
// -cifar: patches of 4 x 4, so that a picture of 32 x 32 has 64.
const std::array<std::pair<std::string_view, VitConfig>, 4>& vit_presets() {
  static const auto kPresets = [] {
    VitConfig cifar = vit(192, 3);
    cifar.patch = 4;
    cifar.image = 32;
    cifar.classes = 10;
    return std::array<std::pair<std::string_view, VitConfig>, 4>{{{"vit-tiny", vit(192, 3)},
                                                                  {"vit-small", vit(384, 6)},
                                                                  {"vit-base", vit(768, 12)},
                                                                  {"vit-tiny-cifar", cifar}}};
  }();
  return kPresets;
}

std::string description_of(const VitConfig& config) {
  return fmt::format("vision transformer, {}, {} x {} pixels in patches of {} x {}, {} classes{}{}",
                     sizes_text(transformer_sizes(config), config.layers), config.image,
                     config.image, config.patch, config.patch, config.classes,
                     config.dropout > 0 ? fmt::format(", dropout {}", config.dropout) : "",
                     config.label_smoothing > 0
                         ? fmt::format(", label smoothing {}", config.label_smoothing)
                         : "");
}

}  // namespace

VitConfig vit_preset(std::string_view name) {
  return preset_named(vit_presets(), name);
}

std::vector<std::string_view> vit_preset_names() {
  return names_of_presets(vit_presets());
}

TransformerSizes transformer_sizes(const VitConfig& config) {
  return {.length = config.positions(),
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.heads,
          .hidden = config.hidden,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .activation = nn::ActivationKind::kGeluErf,
          .causal = false,
          .fixed_length = true,
          .dropout = static_cast<float>(config.dropout),
          .deviation = kVitDeviation,
          .output_deviation = kVitDeviation};
}

void check(const VitConfig& config) {
  check_divides("model.patch", static_cast<int>(config.patch), "model.image",
                static_cast<int>(config.image));
  check(transformer_sizes(config));
}

nn::ModelPlan vit_plan(const VitConfig& config) {
  check(config);
  const TransformerSizes sizes = transformer_sizes(config);
  nn::ModelPlan plan;
  plan.rows = config.positions();
  plan.description = description_of(config);
  const auto embedding = [config](nn::BuildContext& build) {
    return std::make_unique<VitEmbedding>(config, build);
  };
  const auto head = [config](nn::BuildContext& build) {
    return std::make_unique<VitHead>(config, build);
  };
  plan.blocks.push_back({.name = "embedding",
                         .build = embedding,
                         .boundary = stream_of(config.width, config.positions())});
  add_layers(plan, sizes, config.layers);
  plan.blocks.push_back({.name = "head", .loss = true, .build = head});
  count_costs(plan, {{nn::kPixels, {1, config.image, config.image, nn::kColours}, DType::kF32},
                     {nn::kTargets, {1}, DType::kI32}});
  return plan;
}

}  // namespace trireme::models
