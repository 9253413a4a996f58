// The fields of a config.json of transformers and the choices of a GptConfig, listed once for both
// ways: a model type's list reads a file, or writes one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"

#include "models/foreign_config.h"
#include "models/gpt/gpt.h"

namespace trireme::models {

// What a type's configuration class has where a file lacks a field.
struct ClassDefaults {
  std::int64_t vocabulary, width, hidden, layers, heads;
  std::int64_t kv_heads;  // 0: as many as heads
  std::int64_t context;
  double epsilon = 1e-6;
  bool tied = false;
  double theta = 10000.0;
};

// Each function is for one field: in reading it sets `value` to what the file has, or to
// `otherwise`; in writing it adds the field. Errors are ConfigErrors that name the field.
class ConfigFields {
 public:
  ConfigFields(ForeignConfig& from, std::string whose) : from_(&from), whose_(std::move(whose)) {}
  explicit ConfigFields(Json& to) : to_(&to) {}

  bool reading() const { return from_ != nullptr; }
  const std::string& whose() const { return whose_; }  // "our Llama models"
  ForeignConfig& from() const { return *from_; }       // in reading

  void integer(std::string_view field, std::int64_t& value, std::int64_t otherwise);
  void number(std::string_view field, float& value, double otherwise);
  void boolean(std::string_view field, bool& value, bool otherwise);
  // null is 0, and not the same as missing.
  void integer_or_null(std::string_view field, std::int64_t& value, std::int64_t otherwise);
  void number_or_null(std::string_view field, float& value, double otherwise);
  // A field of which our models have one value. A missing one is that, unless its class has
  // another: then it must be there.
  void fixed(std::string_view field, const Json& value);
  // The activation of an MLP by transformers' names.
  void activation(std::string_view field, nn::ActivationKind& kind, const char* otherwise,
                  bool gated);
  // In writing alone.
  void write(std::string_view field, Json value);

 private:
  ForeignConfig* from_ = nullptr;
  Json* to_ = nullptr;
  std::string whose_;
};

// The sizes that all types but GPT-2 have under the same names, the epsilon of the norms under that
// name, and tie_word_embeddings.
void add_sizes(ConfigFields& fields, GptConfig& c, const ClassDefaults& defaults,
               std::string_view epsilon = "rms_norm_eps");
// `head_dim`; otherwise 0: width / heads.
void add_head_size(ConfigFields& fields, GptConfig& c, std::int64_t otherwise);

// Where a type's fields of rotary positions differ from Llama's.
struct RotaryFields {
  const char* theta = "rope_theta";
  bool partial = false;  // whether a share of the channels may turn
  const char* share = "partial_rotary_factor";
  double share_otherwise = 1.0;
  bool query_growth = false;  // it has llama_4_scaling_beta
  bool yarn_is_long = false;  // what it calls yarn is longrope (the first Phi-3)
  // What original_max_position_embeddings is where a file lacks it; 0: it may be missing.
  std::int64_t original_otherwise = 0;
  // Layers with a window have an entry of their own in rope_parameters, and scaling is that of the
  // others. Their theta has that name in older files; nullptr: it is the same one.
  bool by_layer_type = false;
  const char* window_theta = nullptr;
  double window_theta_otherwise = 0.0;
};
// The positions that LongRoPE's factor is for, where the model has a part of them as its context;
// otherwise its context. What the model computes does not depend on it.
std::int64_t reach_of(const GptConfig& c);
// The base, scaling and share of rotary positions in both spellings: rope_scaling with rope_theta,
// and rope_parameters.
void add_rotary(ConfigFields& fields, GptConfig& c, double theta, const RotaryFields& how = {});

// `layer_types`, or where it is missing the rule, which says whether a layer has the window.
void add_layer_types(ConfigFields& fields, GptConfig& c,
                     const std::function<bool(std::int64_t layer)>& rule);
// sliding_window_pattern: of so many layers, the last has no window. It is not written.
std::int64_t window_pattern(ConfigFields& fields, std::int64_t otherwise);
// The digits of such a rule.
std::string layer_digits(std::int64_t layers, const std::function<bool(std::int64_t)>& rule);

}  // namespace trireme::models
