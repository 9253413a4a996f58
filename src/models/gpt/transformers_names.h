// GPT-2 and Llama as transformers has them: the names of their tensors, and their config.json.
#pragma once

#include <string>
#include <string_view>

#include "trireme/models/family.h"
#include "trireme/models/foreign.h"

#include "models/gpt/gpt.h"

namespace trireme::models {

// Whether the model is a GPT-2 or a Llama.
bool has_transformers_names(const GptConfig& config);
// Throws ConfigError for a model that is neither; the message says by which keys.
ForeignModel transformers_model(const GptConfig& config);

// The keys of the model that a config.json of model_type "gpt2" or "llama" describes. Throws
// ConfigError, which names the field, for what our models do not have.
ForeignKeys keys_of_gpt2(const Json& config);
ForeignKeys keys_of_llama(const Json& config);

}  // namespace trireme::models
