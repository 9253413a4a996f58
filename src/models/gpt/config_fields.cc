#include "models/gpt/config_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

namespace trireme::models {
namespace {

using Kind = RotaryScaling::Kind;

constexpr const char* kWindow = "sliding_attention";
constexpr const char* kFull = "full_attention";

Json written(float value) {
  return shortest(value);
}

[[noreturn]] void refuse(std::string_view field, const std::string& value, const std::string& why) {
  throw ConfigError(fmt::format("config.json: {} is {}: {}", field, shown(value), why));
}

struct Activation {
  const char* name;
  std::optional<nn::ActivationKind> plain, gated;  // in an MLP without a gate, and with one
};
// The first of a kind is the one that is written.
constexpr std::array<Activation, 7> kActivations = {
    {{"silu", {}, nn::ActivationKind::kSwiglu},
     {"swish", {}, nn::ActivationKind::kSwiglu},
     {"gelu_pytorch_tanh", nn::ActivationKind::kGelu, nn::ActivationKind::kGeglu},
     {"gelu_new", nn::ActivationKind::kGelu, nn::ActivationKind::kGeglu},
     {"gelu_fast", nn::ActivationKind::kGelu, nn::ActivationKind::kGeglu},
     {"gelu", nn::ActivationKind::kGeluErf, {}},
     {"gelu_python", nn::ActivationKind::kGeluErf, {}}}};

// One description of a rotation: its base, its scaling and the share of channels that turns, where
// it says so.
struct ReadRotary {
  std::optional<double> theta, share;
  RotaryScaling scaling;
};

std::vector<double> numbers_of(ForeignConfig& from, const char* field) {
  std::vector<double> numbers;
  const Json* value = from.value(field);
  if (value == nullptr) throw ConfigError(fmt::format("config.json: has no {}", field));
  try {
    for (const Json& number : value->items()) numbers.push_back(number.number());
  } catch (const JsonError& error) {
    refuse(field, value->dump(), error.what());
  }
  return numbers;
}

double positive(ForeignConfig& from, const char* field, std::optional<double> otherwise) {
  if (from.value(field) == nullptr && !otherwise) {
    throw ConfigError(fmt::format("config.json: has no {}, which its rotary scaling needs", field));
  }
  const double value = from.number(field, otherwise.value_or(0.0));
  if (!(value > 0.0 && value < limits::kReal)) {
    refuse(field, fmt::format("{}", value), "must be above 0");
  }
  return value;
}

void read_yarn(ForeignConfig& from, RotaryScaling& scaling, bool by_layer_type) {
  scaling.kind = Kind::kYarn;
  scaling.beta_fast = positive(from, "beta_fast", 32.0);
  scaling.beta_slow = positive(from, "beta_slow", 1.0);
  scaling.mscale = from.number("mscale", 0.0);
  scaling.mscale_all_dim = from.number("mscale_all_dim", 0.0);
  scaling.truncate = from.boolean("truncate", true);
  if (!scaling.truncate && by_layer_type) {
    refuse("truncate", "false", "versions of transformers disagree on it where layers differ");
  }
}

// Reads an object as rope_scaling or rope_parameters. `ratio` is the context over the original one.
ReadRotary read_rotary(const Json& json, std::int64_t original, std::int64_t context,
                       const RotaryFields& how, const std::string& whose) {
  ForeignConfig from(json);
  ReadRotary read;
  if (from.value("rope_theta") != nullptr) read.theta = positive(from, "rope_theta", {});
  if (from.value(how.share) != nullptr) read.share = positive(from, how.share, {});
  if (from.value("partial_rotary_factor") != nullptr) {
    read.share = positive(from, "partial_rotary_factor", {});
  }
  RotaryScaling& scaling = read.scaling;
  const std::int64_t own = from.integer("original_max_position_embeddings", 0);
  if (original == 0) original = own;
  std::string type = from.text("type", "default");
  type = from.text("rope_type", type);
  if (type == "su" || (type == "yarn" && how.yarn_is_long)) type = "longrope";
  const double ratio =
      original > 0 ? static_cast<double>(context) / static_cast<double>(original) : 1.0;
  const auto maybe_factor = [&] { return positive(from, "factor", ratio); };
  if (type == "linear") {
    scaling.kind = Kind::kLinear;
    scaling.factor = positive(from, "factor", {});
  } else if (type == "llama3") {
    scaling.kind = Kind::kLlama3;
    scaling.factor = positive(from, "factor", {});
    scaling.low_freq_factor = positive(from, "low_freq_factor", {});
    scaling.high_freq_factor = positive(from, "high_freq_factor", {});
  } else if (type == "yarn") {
    read_yarn(from, scaling, how.by_layer_type);
    scaling.factor = maybe_factor();
  } else if (type == "longrope") {
    scaling.kind = Kind::kLongRope;
    scaling.factor = maybe_factor();
    scaling.short_factor = numbers_of(from, "short_factor");
    scaling.long_factor = numbers_of(from, "long_factor");
  } else if (type != "default" && type != "dynamic") {
    // Dynamic scaling begins where a context ends, so our models need none.
    refuse("rope_type", type, whose + " have default, linear, llama3, yarn, longrope and dynamic");
  }
  if (scaling.kind == Kind::kYarn || scaling.kind == Kind::kLongRope) {
    if (from.value("attention_factor") != nullptr) {
      scaling.attention_factor = positive(from, "attention_factor", {});
    }
  }
  if (how.query_growth) {
    scaling.llama_4_scaling_beta = from.number("llama_4_scaling_beta", 0.0);
    from.ignore({"max_position_embeddings"});  // which its default repeats
  }
  const bool reads_original = (scaling.kind != Kind::kNone && scaling.kind != Kind::kLinear) ||
                              scaling.llama_4_scaling_beta != 0.0;
  if (reads_original) scaling.original_max_position_embeddings = original > 0 ? original : context;
  // Fields of other kinds do nothing there, either.
  from.ignore({"factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale",
               "mscale_all_dim", "truncate", "attention_factor", "short_factor", "long_factor"});
  for (const std::string& field : from.rest()) from.refuse(field, whose);
  return read;
}

Json list_of(const std::vector<double>& numbers) {
  Json list = Json::array();
  for (const double number : numbers) list.push_back(number);
  return list;
}

// The members of rope_scaling.
Json written_scaling(const RotaryScaling& s) {
  constexpr std::array<std::pair<Kind, const char*>, 5> kNames = {{{Kind::kNone, "default"},
                                                                   {Kind::kLinear, "linear"},
                                                                   {Kind::kLlama3, "llama3"},
                                                                   {Kind::kYarn, "yarn"},
                                                                   {Kind::kLongRope, "longrope"}}};
  const auto* const name =
      std::ranges::find(kNames, s.kind, [](const auto& known) { return known.first; });
  Json json = Json::object({{"rope_type", name->second}});
  if (s.kind != Kind::kNone) json["factor"] = s.factor;
  if (s.kind == Kind::kLlama3) {
    json["low_freq_factor"] = s.low_freq_factor;
    json["high_freq_factor"] = s.high_freq_factor;
  }
  if (s.kind == Kind::kYarn) {
    json["beta_fast"] = s.beta_fast;
    json["beta_slow"] = s.beta_slow;
    if (s.mscale != 0.0) json["mscale"] = s.mscale;
    if (s.mscale_all_dim != 0.0) json["mscale_all_dim"] = s.mscale_all_dim;
    if (!s.truncate) json["truncate"] = false;
  }
  if (s.kind == Kind::kLongRope) {
    json["short_factor"] = list_of(s.short_factor);
    json["long_factor"] = list_of(s.long_factor);
  }
  if (s.attention_factor) json["attention_factor"] = *s.attention_factor;
  if (s.llama_4_scaling_beta != 0.0) json["llama_4_scaling_beta"] = s.llama_4_scaling_beta;
  if (s.original_max_position_embeddings != 0) {
    json["original_max_position_embeddings"] = s.original_max_position_embeddings;
  }
  return json;
}

}  // namespace

std::int64_t reach_of(const GptConfig& c) {
  const RotaryScaling& s = c.rotary_scaling;
  if (s.kind != Kind::kLongRope) return c.context;
  const double all = s.factor * static_cast<double>(s.original_max_position_embeddings);
  const bool whole = all == std::floor(all) && all <= limits::kCount;
  return whole ? std::max(c.context, static_cast<std::int64_t>(all)) : c.context;
}

namespace {

void write_rotary(ConfigFields& fields, const GptConfig& c, const RotaryFields& how) {
  fields.write(how.theta, written(c.rotary_theta));
  if (how.share_otherwise != 1.0 || c.rotary_share != 1.0f) {
    fields.write(how.share, written(c.rotary_share));
  }
  const std::int64_t original = c.rotary_scaling.original_max_position_embeddings;
  // Version 4 reads it there alone for longrope.
  if (how.original_otherwise != 0 || c.rotary_scaling.kind == Kind::kLongRope) {
    fields.write("original_max_position_embeddings", original > 0 ? original : c.context);
  }
  // Version 4 of transformers reads rope_scaling, later ones both.
  const RotaryScaling& s = c.rotary_scaling;
  const std::int64_t reach = reach_of(c);
  const bool follows = original > 0 && !s.attention_factor &&
                       s.factor == static_cast<double>(reach) / static_cast<double>(original);
  if (how.yarn_is_long && s.kind == Kind::kLongRope && follows) {
    // Version 4 takes these three alone for Phi-3; the factor follows from the contexts.
    fields.write("max_position_embeddings", reach);
    fields.write("rope_scaling", Json::object({{"type", "longrope"},
                                               {"short_factor", list_of(s.short_factor)},
                                               {"long_factor", list_of(s.long_factor)}}));
  } else if (s != RotaryScaling()) {
    fields.write("rope_scaling", written_scaling(s));
  }
  const auto parameters = [&](const RotaryScaling& scaling, float theta) {
    Json json = written_scaling(scaling);
    json["rope_theta"] = written(theta);
    if (c.rotary_share != 1.0f) json["partial_rotary_factor"] = written(c.rotary_share);
    return json;
  };
  const Json full = parameters(c.rotary_scaling, c.rotary_theta);
  if (!how.by_layer_type) {
    fields.write("rope_parameters", full);
    return;
  }
  const float window_theta = c.window_theta.value_or(c.rotary_theta);
  if (how.window_theta != nullptr) fields.write(how.window_theta, written(window_theta));
  const RotaryScaling scaling = c.window_scaling.value_or(c.rotary_scaling);
  fields.write("rope_parameters",
               Json::object({{kFull, full}, {kWindow, parameters(scaling, window_theta)}}));
}

// Version 4 of transformers reads the field itself, later ones what rope_parameters repeat of it.
void check_agrees(ForeignConfig& from, std::string_view field, std::string_view in,
                  const std::optional<double>& again) {
  if (!again || from.value(field) == nullptr) return;
  const double outside = from.number(field, *again);
  if (outside == *again) return;
  refuse(
      field, fmt::format("{}", outside),
      fmt::format("{} says {}, and versions of transformers disagree on which counts", in, *again));
}

// Reads rope_parameters with an entry for each kind of layers.
void read_by_layer_type(ForeignConfig& from, const Json& json, std::int64_t original, GptConfig& c,
                        const RotaryFields& how, const std::string& whose) {
  ForeignConfig entries(json);
  if (const Json* full = entries.object(kFull)) {
    const ReadRotary read = read_rotary(*full, original, c.context, how, whose);
    if (read.theta) c.rotary_theta = static_cast<float>(*read.theta);
    if (from.value("rope_scaling") == nullptr) c.rotary_scaling = read.scaling;
    c.rotary_share = static_cast<float>(read.share.value_or(1.0));
  }
  if (const Json* window = entries.object(kWindow)) {
    const ReadRotary read = read_rotary(*window, original, c.context, how, whose);
    if (read.theta) c.window_theta = static_cast<float>(*read.theta);
    c.window_scaling = read.scaling;
    if (read.share.value_or(1.0) != 1.0) c.rotary_share = static_cast<float>(*read.share);
  }
  for (const std::string& field : entries.rest()) entries.refuse(field, whose);
}

}  // namespace

void ConfigFields::write(std::string_view field, Json value) {
  if (to_ != nullptr) (*to_)[field] = std::move(value);
}

void ConfigFields::integer(std::string_view field, std::int64_t& value, std::int64_t otherwise) {
  write(field, value);
  if (reading()) value = from_->integer(field, otherwise);
}

void ConfigFields::number(std::string_view field, float& value, double otherwise) {
  write(field, written(value));
  if (reading()) value = static_cast<float>(from_->number(field, otherwise));
}

void ConfigFields::boolean(std::string_view field, bool& value, bool otherwise) {
  write(field, value);
  if (reading()) value = from_->boolean(field, otherwise);
}

void ConfigFields::integer_or_null(std::string_view field, std::int64_t& value,
                                   std::int64_t otherwise) {
  write(field, value == 0 ? Json() : Json(value));
  if (!reading()) return;
  value = from_->is_null(field) ? 0 : from_->integer(field, otherwise);
  if (value < 0) refuse(field, fmt::format("{}", value), "expected 1 or more, or null");
}

void ConfigFields::number_or_null(std::string_view field, float& value, double otherwise) {
  write(field, value == 0.0f ? Json() : written(value));
  if (!reading()) return;
  value = from_->is_null(field) ? 0.0f : static_cast<float>(from_->number(field, otherwise));
}

void ConfigFields::fixed(std::string_view field, const Json& value) {
  write(field, value);
  if (reading()) from_->require(field, value, whose_);
}

void ConfigFields::activation(std::string_view field, nn::ActivationKind& kind,
                              const char* otherwise, bool gated) {
  const auto of = [&](const Activation& known) { return gated ? known.gated : known.plain; };
  if (!reading()) {
    const auto* const known = std::ranges::find(kActivations, std::optional(kind), of);
    write(field, known == kActivations.end() ? "" : known->name);
    return;
  }
  const std::string name = from_->text(field, otherwise);
  const auto* const known =
      std::ranges::find(kActivations, name, [](const Activation& one) { return one.name; });
  if (known == kActivations.end() || !of(*known)) {
    refuse(field, name,
           fmt::format("{} have {} and gelu_pytorch_tanh alone", whose_, gated ? "silu" : "gelu"));
  }
  kind = *of(*known);
}

void add_sizes(ConfigFields& fields, GptConfig& c, const ClassDefaults& defaults,
               std::string_view epsilon) {
  fields.integer("vocab_size", c.vocabulary, defaults.vocabulary);
  fields.integer("max_position_embeddings", c.context, defaults.context);
  fields.integer("hidden_size", c.width, defaults.width);
  fields.integer("intermediate_size", c.hidden, defaults.hidden);
  fields.integer("num_hidden_layers", c.layers, defaults.layers);
  fields.integer("num_attention_heads", c.heads, defaults.heads);
  // Sizes of heads follow from it, before the model is checked.
  if (fields.reading() && c.heads < 1) {
    refuse("num_attention_heads", fmt::format("{}", c.heads), "expected 1 or more");
  }
  if (defaults.kv_heads >= 0) {
    fields.integer_or_null("num_key_value_heads", c.kv_heads, defaults.kv_heads);
    if (c.kv_heads == 0) c.kv_heads = c.heads;
  } else {
    c.kv_heads = c.heads;
  }
  fields.number(epsilon, c.norm_epsilon, defaults.epsilon);
  fields.boolean("tie_word_embeddings", c.tied, defaults.tied);
}

void add_head_size(ConfigFields& fields, GptConfig& c, std::int64_t otherwise) {
  if (fields.reading()) {
    fields.integer_or_null("head_dim", c.head_size, otherwise);
  } else {
    fields.write("head_dim", c.head_channels());
  }
}

void add_rotary(ConfigFields& fields, GptConfig& c, double theta, const RotaryFields& how) {
  c.positions = nn::PositionKind::kRotary;
  if (!fields.reading()) {
    write_rotary(fields, c, how);
    return;
  }
  ForeignConfig& from = fields.from();
  c.rotary_theta =
      static_cast<float>(from.value(how.theta) == nullptr ? theta : positive(from, how.theta, {}));
  const double share =
      from.value(how.share) == nullptr ? how.share_otherwise : positive(from, how.share, {});
  c.rotary_share = static_cast<float>(share);
  std::int64_t original = from.integer("original_max_position_embeddings", how.original_otherwise);
  if (how.by_layer_type) {
    const double local =
        from.number(how.window_theta == nullptr ? how.theta : how.window_theta,
                    how.window_theta == nullptr ? c.rotary_theta : how.window_theta_otherwise);
    c.window_theta = static_cast<float>(local);
    c.window_scaling = RotaryScaling();
  }
  const Json* scaling = from.object("rope_scaling");
  const Json* parameters = from.object("rope_parameters");
  for (const Json* json : {parameters, scaling}) {
    if (json == nullptr) continue;
    if (json == parameters && how.by_layer_type) {
      read_by_layer_type(from, *json, original, c, how, fields.whose());
      continue;
    }
    const ReadRotary read = read_rotary(*json, original, c.context, how, fields.whose());
    const char* const name = json == scaling ? "rope_scaling" : "rope_parameters";
    check_agrees(from, how.theta, name, read.theta);
    check_agrees(from, how.share, name, read.share);
    if (read.theta) c.rotary_theta = static_cast<float>(*read.theta);
    if (read.share) c.rotary_share = static_cast<float>(*read.share);
    c.rotary_scaling = read.scaling;
  }
  if (!how.partial && c.rotary_share != 1.0f) {
    refuse("partial_rotary_factor", fmt::format("{}", c.rotary_share),
           fields.whose() + " have 1 alone");
  }
}

std::int64_t window_pattern(ConfigFields& fields, std::int64_t otherwise) {
  if (!fields.reading()) return otherwise;
  const std::int64_t pattern = fields.from().integer("sliding_window_pattern", otherwise);
  if (pattern < 1)
    refuse("sliding_window_pattern", fmt::format("{}", pattern), "must be 1 or more");
  return pattern;
}

std::string layer_digits(std::int64_t layers, const std::function<bool(std::int64_t)>& rule) {
  std::string digits;
  for (std::int64_t layer = 0; layer < std::min<std::int64_t>(layers, limits::kLayers); ++layer) {
    digits += rule(layer) ? '1' : '0';
  }
  return digits.empty() ? "1" : digits;
}

void add_layer_types(ConfigFields& fields, GptConfig& c,
                     const std::function<bool(std::int64_t)>& rule) {
  constexpr const char* kField = "layer_types";
  if (!fields.reading()) {
    Json types = Json::array();
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string& digits = c.window_layers;
      const bool has_window =
          c.window > 0 && digits[static_cast<std::size_t>(layer) % digits.size()] == '1';
      types.push_back(has_window ? kWindow : kFull);
    }
    fields.write(kField, std::move(types));
    return;
  }
  c.window_layers = layer_digits(c.layers, rule);
  const Json* types = fields.from().value(kField);
  if (types == nullptr) return;
  c.window_layers.clear();
  for (const Json& type : types->is_array() ? types->items() : Json::Array()) {
    const std::string name = type.is_text() ? type.text() : type.dump();
    if (name != kWindow && name != kFull) {
      refuse(kField, name, fmt::format("{} have {} and {} alone", fields.whose(), kFull, kWindow));
    }
    c.window_layers += name == kWindow ? '1' : '0';
  }
  if (std::ssize(c.window_layers) != c.layers) {
    refuse(kField, types->dump(),
           fmt::format("it must name the type of each of {} layers", c.layers));
  }
}

}  // namespace trireme::models
