// GPT-2 and Llama as transformers has them: the names of their tensors, and their config.json.
#pragma once

#include <string>
#include <string_view>

#include "trireme/models/family.h"
#include "trireme/models/foreign.h"

#include "models/gpt/gpt.h"

namespace trireme::models {

// Whether the model is a GPT-2 (layer norms, GELU, learned positions, biases, as many key and value
// heads as heads) or a Llama (RMS norms, SwiGLU, rotary positions). GPT-2's matrices are transposed
// in files, and its query, key and value are one tensor.
bool has_transformers_names(const GptConfig& config);
// Throws ConfigError for a model that is neither; the message says by which keys.
ForeignModel transformers_model(const GptConfig& config);

// The keys of the model that a config.json of model_type "gpt2" or "llama" describes. All fields
// that change a forward are read, and those that nobody knows are listed. A file may hold another
// lm_head than the embedding that its config.json ties it to: then an import keeps it, as a model
// with model.tied false. Throws ConfigError, which names the field, for what our models do not
// have: rope scaling, sliding windows, other activations, a head_dim of its own, biases in some of
// Llama's layers alone.
ForeignKeys keys_of_gpt2(const Json& config);
ForeignKeys keys_of_llama(const Json& config);

}  // namespace trireme::models
