// The keys model.* of the family `gpt`.
#pragma once

#include "trireme/base/options.h"
#include "trireme/models/family.h"

#include "models/gpt/gpt.h"

namespace trireme::models {

void add_gpt_keys(Options& options, OptionValues& keys);
// Checks the keys against each other, as far as they have values.
void check_gpt_keys(const OptionValues& keys);

std::int64_t gpt_context(const OptionValues& keys);
// The preset, overridden by the keys and by what the data say. Throws ConfigError where they do not
// fit together.
GptConfig gpt_config(const OptionValues& keys, const DataFacts& data);

// The keys that describe the model without a preset. Those of choices that came after the first
// models are there only where they differ from these models', so that their runs go on.
OptionValues keys_of(const GptConfig& model);

// The same model with the values that do nothing at their defaults, and patterns of layers as short
// as they can be: two models are the same where the keys of these are.
GptConfig simplest(GptConfig model);

}  // namespace trireme::models
