#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/models/family.h"

#include "models/bert/bert_family.h"
#include "models/gpt/gpt_family.h"
#include "models/gpt/transformers_names.h"
#include "models/mobilenet_v2/mobilenet_v2_family.h"
#include "models/resnet/resnet_family.h"
#include "models/vit/vit_family.h"

namespace trireme::models {

const std::vector<const Family*>& families() {
  // The first is also that of runs from before there were families.
  static const std::vector<const Family*> kFamilies = {
      &gpt_family(), &bert_family(), &mobilenet_v2_family(), &resnet_family(), &vit_family()};
  return kFamilies;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->name());
  return names;
}

const Family& find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (family->name() == name) return *family;
  }
  throw ConfigError(fmt::format("model.family {}: is not one of {}", shown(name),
                                fmt::join(family_names(), ", ")));
}

Model resolve(const ModelRequest& request, const DataFacts& data) {
  return find_family(request.family).resolve(request.keys, data);
}

Shape sample_shape(const ModelRequest& request) {
  return find_family(request.family).sample_shape(request.keys);
}

std::string summary(const ModelRequest& request) {
  return find_family(request.family).summary(request.keys);
}

bool joins_replicas(const ModelRequest& request) {
  return find_family(request.family).joins_replicas(request.keys);
}

bool has_batch_norms(const ModelRequest& request) {
  return find_family(request.family).has_batch_norms();
}

ForeignKeys Family::keys_of_foreign(const Json& /*config*/) const {
  throw InternalError(fmt::format("{} reads no config.json", name()));
}

ForeignRequest read_foreign_config(const Json& config) {
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_text()) {
    throw ConfigError("config.json: has no model_type, so what model it describes is not known");
  }
  for (const Json* part : {&config, config.find("text_config")}) {
    const Json* const quantized = part == nullptr ? nullptr : part->find("quantization_config");
    if (quantized == nullptr || quantized->dump() == "null") continue;
    throw ConfigError(
        "config.json: quantization_config: its weights are quantized, and our models take fp32, "
        "bf16 and fp16: import those that it was made from");
  }
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    for (const std::string_view name : family->foreign_types()) {
      known.push_back(name);
      if (name != type->text()) continue;
      ForeignKeys read = family->keys_of_foreign(config);
      return {{std::string(family->name()), std::move(read.keys)},
              std::move(read.type),
              std::move(read.not_read)};
    }
  }
  const std::string missing = missing_in_our_models(type->text());
  throw ConfigError(fmt::format(
      "config.json: model_type {} {}is not one of {}", shown(type->text()),
      missing.empty() ? "" : fmt::format("needs {}, and ", missing), fmt::join(known, ", ")));
}

}  // namespace trireme::models
