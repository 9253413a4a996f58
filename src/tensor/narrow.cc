#include "trireme/tensor/narrow.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Calls `body` with the elements as their type.
template <class Body>
auto with_elements(const Tensor& narrow, std::size_t count, const Body& body) {
  TRIREME_CHECK(narrow.elements() == static_cast<std::int64_t>(count),
                "as many values as the tensor has elements");
  switch (narrow.dtype()) {
    case DType::kF32:
      return body(narrow.span<float>());
    case DType::kBF16:
      return body(narrow.span<BFloat16>());
    case DType::kF16:
      return body(narrow.span<Half>());
    default:
      throw InternalError("no conversion from fp32");
  }
}

}  // namespace

void widen(const Tensor& narrow, std::span<float> values) {
  with_elements(narrow, values.size(), [&](auto elements) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(elements[i]);
  });
}

bool round_to(std::span<const float> values, const Tensor& narrow) {
  return with_elements(narrow, values.size(), [&](auto elements) {
    using Element = typename decltype(elements)::value_type;
    bool changed = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      elements[i] = static_cast<Element>(values[i]);
      const auto now = static_cast<float>(elements[i]);
      changed = changed || (now != values[i] && !std::isnan(values[i]));
    }
    return changed;
  });
}

}  // namespace trireme
