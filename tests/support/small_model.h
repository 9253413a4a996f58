// Models small enough to train on every grid in a test.
#pragma once

#include "models/gpt/gpt.h"

namespace trireme::testing {

// Four layers, tied, of the GPT family.
inline models::GptConfig small_gpt() {
  return {.layers = 4,
          .width = 64,
          .heads = 4,
          .kv_heads = 4,
          .hidden = 256,
          .vocabulary = 300,
          .context = 64};
}

// The same of the Llama family, untied. Its keys and values have two heads, so four tensor ranks
// have copies.
inline models::GptConfig small_llama() {
  models::GptConfig model = small_gpt();
  model.kv_heads = 2;
  model.norm = nn::NormKind::kRms;
  model.activation = nn::ActivationKind::kSwiglu;
  model.positions = nn::PositionKind::kRotary;
  model.tied = false;
  model.biases = nn::Biases::all(false);
  return model;
}

}  // namespace trireme::testing
