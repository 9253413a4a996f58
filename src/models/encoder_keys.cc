#include "models/encoder_keys.h"

#include "trireme/base/limits.h"

namespace trireme::models {

void add_encoder_sizes(const KeyAdder& model) {
  model.add<int>("layers", "blocks", "transformer blocks", between(1, limits::kLayers));
  model.add<int>("width", "channels", "width of the residual stream", between(1, limits::kWidth));
  model.add<int>("heads", "heads", "attention heads", between(1, limits::kWidth));
  model.add<int>("hidden", "channels", "width inside the MLP; auto: 4 times model.width",
                 between(1, limits::kHidden));
}

void add_encoder_rest(const KeyAdder& model) {
  model.add<double>("norm_epsilon", "", "added to the variance that a norm divides by",
                    between(limits::kLeastReal, 1));
  model.add<double>("dropout", "probability", "share of activations zeroed in training",
                    at_least_and_below(0, 1));
}

}  // namespace trireme::models
