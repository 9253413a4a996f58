// How families read the values of their keys model.*.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/options.h"

namespace trireme::models {

// Returns the value of "model.KEY", or nothing if it follows from elsewhere.
template <class T>
std::optional<T> model_key(const OptionValues& keys, const char* key) {
  return option_value<T>(keys, "model", key);
}

// Returns what the data say, the key, or the preset, in this order. Throws ConfigError where the
// key contradicts the data: "model.KEY is 7, but the data has 10 WHAT: ...".
std::int64_t number_of_data(const OptionValues& keys, const char* key, std::optional<int> of_data,
                            const char* what, std::int64_t otherwise);

// Throws ConfigError unless `part` divides `whole`, if both are given. The message lists the
// numbers that do.
void check_divides(const char* part_name, std::optional<int> part, const char* whole_name,
                   std::optional<int> whole);

// A model in a few words: its preset, and those numbers that keys give, each with its words, in
// this order: "gpt2-124m, 6 layers". A pair is a key and its words.
std::string summary_of(const OptionValues& keys,
                       std::initializer_list<std::pair<const char*, const char*>> numbers);

// Throws ConfigError for a name that is none of `known`, the presets of a family. The message says
// which family has it, or lists `known`.
[[noreturn]] void refuse_preset(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace trireme::models
