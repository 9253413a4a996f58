// BERT as transformers has it (BertForMaskedLM): the names of its tensors, and its config.json.
#pragma once

#include "trireme/base/json.h"
#include "trireme/models/foreign.h"

#include "models/bert/bert.h"

namespace trireme::models {

ForeignModel transformers_model(const BertConfig& config);

// The keys of the model that a config.json of model_type "bert" describes. Throws ConfigError,
// which names the field, for what our models do not have: other activations than gelu, relative
// positions, another number of segments than two, decoders, an untied head. A decoder in the file
// that differs from the embedding is refused too.
ForeignKeys keys_of_bert(const Json& config);

}  // namespace trireme::models
