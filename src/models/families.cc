#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/models/family.h"

#include "models/gpt/gpt_family.h"
#include "models/mobilenet_v2/mobilenet_v2_family.h"
#include "models/resnet/resnet_family.h"
#include "models/vit/vit_family.h"

namespace trireme::models {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> kFamilies = {&gpt_family(), &mobilenet_v2_family(),
                                                       &resnet_family(), &vit_family()};
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

}  // namespace trireme::models
