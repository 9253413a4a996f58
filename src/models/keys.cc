#include "models/keys.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/models/family.h"

namespace trireme::models {

std::int64_t number_of_data(const OptionValues& keys, const char* key, std::optional<int> of_data,
                            const char* what, std::int64_t otherwise) {
  const auto given = model_key<int>(keys, key);
  if (of_data && given && *given != *of_data) {
    throw ConfigError(
        fmt::format("model.{} is {}, but the data has {} {}: leave it out, and it follows the data",
                    key, *given, *of_data, what));
  }
  if (of_data) return *of_data;
  return given ? *given : otherwise;
}

void check_divides(const char* part_name, std::optional<int> part, const char* whole_name,
                   std::optional<int> whole) {
  if (!part || !whole || *whole % *part == 0) return;
  std::set<int> divisors;
  for (int i = 1; i <= *whole / i; ++i) {
    if (*whole % i == 0) divisors.insert({i, *whole / i});
  }
  throw ConfigError(fmt::format("{} ({}) does not divide {} ({}): one of {} would", part_name,
                                *part, whole_name, *whole, fmt::join(divisors, ", ")));
}

void add_logits_key(const KeyAdder& model) {
  model.add<std::string>("logits", "",
                         "type of the loss's logits; auto: fp32; bf16: their gradient is written "
                         "in their place; needs run.precision bf16 or fp8",
                         one_of({"fp32", "bf16"}), OnChange::kResults);
}

DType type_of_logits_key(const OptionValues& keys) {
  return model_key<std::string>(keys, "logits") == "bf16" ? DType::kBF16 : DType::kF32;
}

void write_logits_key(DType logits, OptionValues& keys) {
  if (logits != DType::kF32) keys.emplace("logits", name_of(logits));
}

std::string summary_of(const OptionValues& keys,
                       std::initializer_list<std::pair<const char*, const char*>> numbers) {
  std::string text = model_key<std::string>(keys, "preset").value_or("");
  for (const auto& [key, words] : numbers) {
    const auto number = model_key<int>(keys, key);
    if (number) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", *number, words);
  }
  return text;
}

void refuse_preset(std::string_view name, const std::vector<std::string_view>& known) {
  for (const Family* family : families()) {
    if (std::ranges::count(family->presets(), name) == 0) continue;
    throw ConfigError(fmt::format("model.preset {} is of another family: add --model.family {}",
                                  name, family->name()));
  }
  throw ConfigError(fmt::format("model.preset '{}' is unknown; there are {}", shown(name),
                                fmt::join(known, ", ")));
}

}  // namespace trireme::models
