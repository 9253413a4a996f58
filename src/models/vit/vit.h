// Vision transformers (Dosovitskiy et al. 2021): patches of a picture as the positions of a
// transformer, with a class token before them whose last state is normed and classified. GELU is
// the one by the error function. Initial values are normal with deviation 0.02 for weights, class
// token and positions (Hugging Face cuts the tails off at two deviations), 0 for biases, 1 for
// weights of norms; norms, biases, class token and positions do not decay. Patch embedding and
// classifier are not split over tensor ranks, since they are 1 to 2 % of the work. With sequence
// parallelism the tensor ranks divide the positions of a micro-batch, 197 or 65 for each picture,
// so they divide batch.micro.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/models/family.h"

#include "models/transformer.h"

namespace trireme::models {

struct VitConfig {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t hidden = 3072;  // width inside the MLP
  std::int64_t patch = 16;     // side of a patch, pixels
  std::int64_t image = 224;    // side of the picture, pixels
  std::int64_t classes = 1000;
  double norm_epsilon = 1e-6;  // as timm has it; Hugging Face's default is 1e-12
  double dropout = 0.0;        // after the embedding and in each residual branch
  double label_smoothing = 0.0;

  // The positions of a sample: the class token and the patches.
  std::int64_t positions() const { return 1 + (image / patch) * (image / patch); }
};

// The preset of that name. Throws ConfigError for an unknown one; the message lists the known.
VitConfig vit_preset(std::string_view name);
std::vector<std::string_view> vit_preset_names();

// What all of its blocks have.
TransformerSizes transformer_sizes(const VitConfig& config);

// Throws ConfigError if the numbers do not fit together.
void check(const VitConfig& config);

// The blocks are the embedding, one block for each layer, and the head.
nn::ModelPlan vit_plan(const VitConfig& config);

// The same as the registry gives it.
Model vit_model(const VitConfig& config);

}  // namespace trireme::models
