#include "models/gpt/rotary_scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

namespace trireme::models {
namespace {

using Kind = RotaryScaling::Kind;

constexpr std::array<std::pair<Kind, std::string_view>, 5> kKinds = {
    {{Kind::kNone, "none"},
     {Kind::kLinear, "linear"},
     {Kind::kLlama3, "llama3"},
     {Kind::kYarn, "yarn"},
     {Kind::kLongRope, "longrope"}}};

template <class T>
T value_of(std::string_view field, std::string_view text, const Limit& limit) {
  T value{};
  const std::string problem = read_value(text, value, limit);
  if (!problem.empty()) {
    throw ConfigError(fmt::format("rotary scaling: {} {}: {}", field, shown(text), problem));
  }
  return value;
}

// The fields of the text, one after the other, in the order in which they are written. Text reads
// or writes one: a missing one keeps its value.
template <class Fields>
void each_field(Fields& fields, RotaryScaling& s) {
  const auto is_one_of = [&](auto... kinds) { return ((s.kind == kinds) || ...); };
  if (!is_one_of(Kind::kNone)) fields.number("factor", s.factor, 1.0, above(0));
  if (is_one_of(Kind::kLlama3)) {
    fields.number("low_freq_factor", s.low_freq_factor, 1.0, above(0));
    fields.number("high_freq_factor", s.high_freq_factor, 4.0, above(0));
  }
  if (is_one_of(Kind::kYarn)) {
    fields.number("beta_fast", s.beta_fast, 32.0, above(0));
    fields.number("beta_slow", s.beta_slow, 1.0, above(0));
    fields.number("mscale", s.mscale, 0.0, at_least(0));
    fields.number("mscale_all_dim", s.mscale_all_dim, 0.0, at_least(0));
    fields.boolean("truncate", s.truncate);
  }
  if (is_one_of(Kind::kYarn, Kind::kLongRope)) {
    fields.maybe("attention_factor", s.attention_factor, above(0));
  }
  if (is_one_of(Kind::kLongRope)) {
    fields.list("short_factor", s.short_factor, above(0));
    fields.list("long_factor", s.long_factor, above(0));
  }
  fields.number("llama_4_scaling_beta", s.llama_4_scaling_beta, 0.0, at_least(0));
  fields.whole("original_max_position_embeddings", s.original_max_position_embeddings, at_least(1));
}

class ReadFields {
 public:
  explicit ReadFields(std::vector<std::pair<std::string, std::string>> given)
      : given_(std::move(given)) {}

  void number(std::string_view name, double& value, double, const Limit& limit) {
    if (const auto text = take(name)) value = value_of<double>(name, *text, limit);
  }
  void maybe(std::string_view name, std::optional<double>& value, const Limit& limit) {
    if (const auto text = take(name)) value = value_of<double>(name, *text, limit);
  }
  void whole(std::string_view name, std::int64_t& value, const Limit& limit) {
    if (const auto text = take(name)) value = value_of<std::int64_t>(name, *text, limit);
  }
  void boolean(std::string_view name, bool& value) {
    if (const auto text = take(name)) value = value_of<bool>(name, *text, {});
  }
  void list(std::string_view name, std::vector<double>& values, const Limit& limit) {
    const auto text = take(name);
    if (!text) return;
    values.clear();
    for (const std::string& word : split_list(*text)) {
      values.push_back(value_of<double>(name, word, limit));
    }
  }
  // Refuses what nothing took.
  void finish(std::string_view kind) const {
    if (given_.empty()) return;
    throw ConfigError(
        fmt::format("rotary scaling: {} has no field {} (or it is there twice); it has {}", kind,
                    shown(given_.front().first), fmt::join(known_, ", ")));
  }

 private:
  std::optional<std::string> take(std::string_view name) {
    known_.emplace_back(name);
    const auto found =
        std::ranges::find(given_, name, [](const auto& field) { return field.first; });
    if (found == given_.end()) return {};
    std::string text = std::move(found->second);
    given_.erase(found);
    return text;
  }

  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> known_;
};

class WriteFields {
 public:
  void number(std::string_view name, double value, double otherwise, const Limit&) {
    if (value != otherwise) add(name, write_value(value));
  }
  void maybe(std::string_view name, const std::optional<double>& value, const Limit&) {
    if (value) add(name, write_value(*value));
  }
  void whole(std::string_view name, std::int64_t value, const Limit&) {
    if (value != 0) add(name, write_value(value));
  }
  void boolean(std::string_view name, bool value) {
    if (!value) add(name, write_value(value));
  }
  void list(std::string_view name, const std::vector<double>& values, const Limit&) {
    std::vector<std::string> words;
    for (const double value : values) words.push_back(write_value(value));
    add(name, fmt::format("{}", fmt::join(words, ",")));
  }
  std::string text;

 private:
  void add(std::string_view name, const std::string& value) {
    text += fmt::format(" {}={}", name, value);
  }
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(' ', at)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Frequencies far below those of the positions that were trained on are divided by the factor,
// those far above stay, and between the two there is a smooth way.
void scale_as_llama3(const RotaryScaling& s, double context, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < context / s.high_freq_factor) continue;
    if (wavelength > context / s.low_freq_factor) {
      frequency /= s.factor;
      continue;
    }
    const double smooth =
        (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    frequency = (1 - smooth) * frequency / s.factor + smooth * frequency;
  }
}

// The number of the pair, of `channels` / 2, that turns so many times in the context.
double pair_of_turns(double turns, double theta, double channels, double context) {
  return channels * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void scale_as_yarn(const RotaryScaling& s, double theta, double channels, double context,
                   std::vector<double>& frequencies) {
  double low = pair_of_turns(s.beta_fast, theta, channels, context);
  double high = pair_of_turns(s.beta_slow, theta, channels, context);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, channels - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_amplitude(const RotaryScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  const auto scale = [&](double of) {
    return s.factor <= 1 ? 1.0 : 0.1 * of * std::log(s.factor) + 1.0;
  };
  if (s.mscale != 0.0 && s.mscale_all_dim != 0.0) return scale(s.mscale) / scale(s.mscale_all_dim);
  return scale(1.0);
}

double long_amplitude(const RotaryScaling& s, double context) {
  if (s.attention_factor) return *s.attention_factor;
  return s.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(s.factor) / std::log(context));
}

void divide(std::vector<double>& frequencies, const std::vector<double>& factors,
            std::string_view name) {
  if (factors.size() != frequencies.size()) {
    throw ConfigError(
        fmt::format("rotary scaling: {} has {} numbers, but {} pairs of channels turn", name,
                    factors.size(), frequencies.size()));
  }
  for (std::size_t i = 0; i < factors.size(); ++i) frequencies[i] /= factors[i];
}

}  // namespace

RotaryScaling read_rotary_scaling(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  RotaryScaling scaling;
  const auto* const kind =
      std::ranges::find(kKinds, words.empty() ? std::string_view() : words.front(),
                        [](const auto& known) { return known.second; });
  if (kind == kKinds.end()) {
    throw ConfigError(
        fmt::format("rotary scaling: '{}' begins with none of none, linear, llama3, yarn, longrope",
                    shown(text)));
  }
  scaling.kind = kind->first;
  std::vector<std::pair<std::string, std::string>> given;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string::npos) {
      throw ConfigError(fmt::format("rotary scaling: {} is not FIELD=VALUE", shown(words[i])));
    }
    given.emplace_back(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  ReadFields fields(std::move(given));
  each_field(fields, scaling);
  fields.finish(kind->second);
  if (scaling.kind == Kind::kLlama3 && scaling.low_freq_factor >= scaling.high_freq_factor) {
    throw ConfigError("rotary scaling: low_freq_factor must be below high_freq_factor");
  }
  return scaling;
}

std::string text_of(const RotaryScaling& scaling) {
  WriteFields fields;
  RotaryScaling copy = scaling;
  each_field(fields, copy);
  const auto* const kind =
      std::ranges::find(kKinds, scaling.kind, [](const auto& known) { return known.first; });
  return std::string(kind->second) + fields.text;
}

nn::Rotations scaled_rotations(const RotaryScaling& scaling, double theta, std::int64_t channels,
                               std::int64_t context, bool adjacent) {
  const std::int64_t original = scaling.original_max_position_embeddings > 0
                                    ? scaling.original_max_position_embeddings
                                    : context;
  const auto positions = static_cast<double>(original);
  nn::Rotations rotations;
  ops::Rotation& near = rotations.near;
  near = ops::plain_rotation(theta, channels);
  near.adjacent = adjacent;
  if (scaling.llama_4_scaling_beta != 0.0) {
    near.query_growth = static_cast<float>(scaling.llama_4_scaling_beta);
    near.query_period = original;
  }
  switch (scaling.kind) {
    case Kind::kNone:
      break;
    case Kind::kLinear:
      for (double& frequency : near.frequencies) frequency /= scaling.factor;
      break;
    case Kind::kLlama3:
      scale_as_llama3(scaling, positions, near.frequencies);
      break;
    case Kind::kYarn:
      scale_as_yarn(scaling, theta, static_cast<double>(channels), positions, near.frequencies);
      near.amplitude = static_cast<float>(yarn_amplitude(scaling));
      break;
    case Kind::kLongRope:
      near.amplitude = static_cast<float>(long_amplitude(scaling, positions));
      rotations.far = near;
      rotations.far_from = original;
      divide(near.frequencies, scaling.short_factor, "short_factor");
      divide(rotations.far.frequencies, scaling.long_factor, "long_factor");
      break;
  }
  return rotations;
}

}  // namespace trireme::models
