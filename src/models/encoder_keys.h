// The keys that the families of encoders share: bert and vit.
#pragma once

#include "models/keys.h"

namespace trireme::models {

// Add layers, width, heads and hidden; norm_epsilon and dropout.
void add_encoder_sizes(const KeyAdder& model);
void add_encoder_rest(const KeyAdder& model);

// Sets those members of a preset that keys give. Where the width is another one, hidden follows it.
template <class EncoderConfig>
void read_encoder_keys(const OptionValues& keys, EncoderConfig& config) {
  const NumbersOfKeys given(keys);
  const auto width = config.width;
  config.layers = given.whole("layers", config.layers);
  config.width = given.whole("width", width);
  config.heads = given.whole("heads", config.heads);
  config.hidden = given.whole("hidden", config.width == width ? config.hidden : 4 * config.width);
  config.norm_epsilon = given.real("norm_epsilon", config.norm_epsilon);
  config.dropout = given.real("dropout", config.dropout);
}

// Returns these keys of a model.
template <class EncoderConfig>
OptionValues encoder_keys(const EncoderConfig& config) {
  return {{"layers", write_value(config.layers)},
          {"width", write_value(config.width)},
          {"heads", write_value(config.heads)},
          {"hidden", write_value(config.hidden)},
          {"norm_epsilon", write_value(config.norm_epsilon)},
          {"dropout", write_value(config.dropout)}};
}

}  // namespace trireme::models
