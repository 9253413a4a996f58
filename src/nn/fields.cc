#include "trireme/nn/fields.h"

#include <algorithm>
#include <utility>

namespace trireme::nn {

void Fields::set(std::string_view name, Tensor tensor) {
  const auto found = std::ranges::find(fields_, name, &Field::name);
  if (found != fields_.end()) {
    found->tensor = std::move(tensor);
  } else {
    fields_.push_back({std::string(name), std::move(tensor)});
  }
}

Tensor Fields::find(std::string_view name) const {
  const auto found = std::ranges::find(fields_, name, &Field::name);
  return found == fields_.end() ? Tensor() : found->tensor;
}

}  // namespace trireme::nn
