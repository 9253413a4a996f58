#include "models/foreign_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme::models {
namespace {

// The keys of every model of transformers: who made it, how it is used, what an output holds.
// Shares of dropout act in training alone, and model.dropout is the run's to choose.
constexpr std::array<std::string_view, 38> kOfEveryModel = {"architectures",
                                                            "classifier_dropout",
                                                            "embedding_dropout",
                                                            "hidden_dropout",
                                                            "residual_dropout",
                                                            "attention_dropout",
                                                            "attn_pdrop",
                                                            "bos_token_id",
                                                            "chunk_size_feed_forward",
                                                            "dtype",
                                                            "embd_pdrop",
                                                            "eos_token_id",
                                                            "finetuning_task",
                                                            "gradient_checkpointing",
                                                            "hidden_dropout_prob",
                                                            "attention_probs_dropout_prob",
                                                            "id2label",
                                                            "initializer_range",
                                                            "is_decoder",
                                                            "is_encoder_decoder",
                                                            "keys_to_ignore_at_inference",
                                                            "label2id",
                                                            "model_type",
                                                            "n_ctx",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "pad_token_id",
                                                            "pretraining_tp",
                                                            "problem_type",
                                                            "resid_pdrop",
                                                            "return_dict",
                                                            "sep_token_id",
                                                            "summary_type",
                                                            "task_specific_params",
                                                            "torch_dtype",
                                                            "transformers_version",
                                                            "use_cache",
                                                            "reorder_and_upcast_attn"};

bool is_of_every_model(std::string_view field) {
  return field.starts_with("_") || field.starts_with("summary_") ||
         std::ranges::find(kOfEveryModel, field) != kOfEveryModel.end();
}

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    return std::abs(a.number() - b.number()) <= 1e-6 * std::abs(b.number());
  }
  return a.dump() == b.dump();
}

}  // namespace

const Json* ForeignConfig::find(std::string_view field) {
  asked_.emplace(field);
  const Json* value = json_.find(field);
  return value == nullptr || value->dump() == "null" ? nullptr : value;
}

template <class Read>
auto ForeignConfig::read(std::string_view field, const Json& value, const Read& read_value) const {
  try {
    return read_value(value);
  } catch (const JsonError& error) {
    throw ConfigError(
        fmt::format("config.json: {} is {}: {}", field, shown(value.dump()), error.what()));
  }
}

std::int64_t ForeignConfig::integer(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr) throw ConfigError(fmt::format("config.json: has no {}", field));
  return read(field, *value, [](const Json& json) { return std::int64_t{json.small_integer()}; });
}

std::int64_t ForeignConfig::integer(std::string_view field, std::int64_t otherwise) {
  return find(field) == nullptr ? otherwise : integer(field);
}

double ForeignConfig::number(std::string_view field, double otherwise) {
  const Json* value = find(field);
  if (value == nullptr) return otherwise;
  return read(field, *value, [](const Json& json) { return json.number(); });
}

bool ForeignConfig::boolean(std::string_view field, bool otherwise) {
  const Json* value = find(field);
  if (value == nullptr) return otherwise;
  return read(field, *value, [](const Json& json) { return json.boolean(); });
}

std::string ForeignConfig::text(std::string_view field, const std::string& otherwise) {
  const Json* value = find(field);
  if (value == nullptr) return otherwise;
  return read(field, *value, [](const Json& json) { return json.text(); });
}

const Json* ForeignConfig::object(std::string_view field) {
  const Json* value = find(field);
  if (value != nullptr) read(field, *value, [](const Json& json) { return json.members().size(); });
  return value;
}

bool ForeignConfig::is_null(std::string_view field) {
  asked_.emplace(field);
  const Json* value = json_.find(field);
  return value != nullptr && value->dump() == "null";
}

void ForeignConfig::require(std::string_view field, const Json& wanted, std::string_view whose) {
  const Json* value = find(field);
  if (value == nullptr || equal(*value, wanted)) return;
  throw ConfigError(fmt::format("config.json: {} is {}: {} have {} alone", field,
                                shown(value->dump()), whose, wanted.dump()));
}

void ForeignConfig::refuse(std::string_view field, std::string_view whose) {
  const Json* value = find(field);
  if (value == nullptr) return;
  throw ConfigError(fmt::format("config.json: {} is {}: {} have no such thing", field,
                                shown(value->dump()), whose));
}

void ForeignConfig::ignore(std::initializer_list<std::string_view> fields) {
  for (const std::string_view field : fields) asked_.emplace(field);
}

std::vector<std::string> ForeignConfig::rest() const {
  std::vector<std::string> left;
  for (const Json::Member& member : json_.members()) {
    const bool says_nothing = member.value.dump() == "null" || is_of_every_model(member.key);
    if (!asked_.contains(member.key) && !says_nothing) left.push_back(member.key);
  }
  return left;
}

}  // namespace trireme::models
