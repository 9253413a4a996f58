// Vision transformers as transformers has them (ViTForImageClassification): the names of their
// tensors, and their config.json. The weight of the patches is (width, height, width of a patch,
// colours) here, and (width, colours, height, width of a patch) there. Files get numbers for the
// names of classes.
#pragma once

#include "trireme/base/json.h"
#include "trireme/models/foreign.h"

#include "models/vit/vit.h"

namespace trireme::models {

ForeignModel transformers_model(const VitConfig& config);

// The keys of the model that a config.json of model_type "vit" describes. Throws ConfigError, which
// names the field, for what our models do not have.
ForeignKeys keys_of_vit(const Json& config);

}  // namespace trireme::models
