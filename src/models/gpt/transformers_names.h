// Decoders as transformers has them: the names of their tensors, and their config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/models/family.h"
#include "trireme/models/foreign.h"

#include "models/gpt/gpt.h"

namespace trireme::models {

// Whether a type of transformers' is this model, all its choices included.
bool has_transformers_names(const GptConfig& config);
// The model as the first such type has it, or the one that is preferred: Model::foreign_as. Throws
// ConfigError if there is none.
ForeignModel transformers_model(const GptConfig& config, std::string_view preferred = {});

// The values of model_type that keys_of_transformers reads.
std::vector<std::string_view> transformers_types();
// The keys of the model that a config.json of such a type describes; of a model of texts and
// pictures, those of the text model in it. Fields that nobody knows are listed. Throws ConfigError,
// which names the field, for what our models do not have.
ForeignKeys keys_of_transformers(const Json& config);
// What our models lack of a decoder of another model_type; empty: nobody knows.
std::string missing_in_our_models(std::string_view model_type);

}  // namespace trireme::models
