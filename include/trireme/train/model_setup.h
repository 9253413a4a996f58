// The model that a configuration asks for.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/config/config.h"
#include "trireme/models/gpt.h"

namespace trireme {

// Returns the model that model.* asks for: the preset, overridden by explicit keys, and built-in
// values for the rest. With data, the vocabulary is the data's, and a preset's own vocabulary
// counts only without data. Throws ConfigError for an explicit model.vocabulary that differs from
// the data's.
models::GptConfig resolve_model(const Config::Model& model, std::optional<int> data_vocabulary);

// Returns only the context. It fixes the length of a sample, before the data and its vocabulary are
// known.
std::int64_t resolve_context(const Config::Model& model);

// Returns model.* with every value written out, so that a checkpoint needs no preset.
Config::Model written_out(const models::GptConfig& model);

}  // namespace trireme
