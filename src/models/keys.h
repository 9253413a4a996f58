// How families declare their keys model.*, and read the values of them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/options.h"
#include "trireme/tensor/dtype.h"

namespace trireme::models {

// Returns the value of "model.KEY", or nothing if it follows from elsewhere.
template <class T>
std::optional<T> model_key(const OptionValues& keys, const char* key) {
  return option_value<T>(keys, "model", key);
}

// The numbers of a family's keys where they are given, or those of a preset.
class NumbersOfKeys {
 public:
  explicit NumbersOfKeys(const OptionValues& keys) : keys_(keys) {}
  std::int64_t whole(const char* key, std::int64_t otherwise) const {
    return model_key<int>(keys_, key).value_or(static_cast<int>(otherwise));
  }
  double real(const char* key, double otherwise) const {
    return model_key<double>(keys_, key).value_or(otherwise);
  }

 private:
  const OptionValues& keys_;
};

// Adds keys "model.NAME" of a family to options; their values are in `keys`.
class KeyAdder {
 public:
  KeyAdder(Options& options, OptionValues& keys) : options_(options), keys_(keys) {}
  template <class T>
  void add(const char* name, const char* unit, const std::string& help, const Limit& limit,
           OnChange on_change = OnChange::kOtherRun) const {
    options_.add_value<T>(std::string("model.") + name, keys_, unit, help, limit, on_change);
  }

 private:
  Options& options_;
  OptionValues& keys_;
};

// The key model.logits of families with a loss over a vocabulary: the type of its logits, fp32 or
// bf16. Models are written without the former.
void add_logits_key(const KeyAdder& model);
DType type_of_logits_key(const OptionValues& keys);
void write_logits_key(DType logits, OptionValues& keys);

// The names in a family's table of presets, pairs of a name and what it stands for.
template <class Presets>
std::vector<std::string_view> names_of_presets(const Presets& presets) {
  std::vector<std::string_view> names;
  for (const auto& [name, config] : presets) names.push_back(name);
  return names;
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

// What a name in a family's table of presets stands for. Throws as refuse_preset.
template <class Presets>
const auto& preset_named(const Presets& presets, std::string_view name) {
  for (const auto& [known, config] : presets) {
    if (known == name) return config;
  }
  refuse_preset(name, names_of_presets(presets));
}

}  // namespace trireme::models
