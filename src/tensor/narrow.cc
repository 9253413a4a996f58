#include "trireme/tensor/narrow.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/tensor/split_float.h"

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

void split_to(std::span<const float> values, const Tensor& high, std::span<std::uint16_t> low) {
  const auto rounded = high.span<BFloat16>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const SplitFloat one(values[i]);
    rounded[i].bits = one.high;
    low[i] = one.low;
  }
}

void join_from(const Tensor& high, std::span<const std::uint16_t> low, std::span<float> values) {
  const auto rounded = high.span<BFloat16>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(SplitFloat(rounded[i].bits, low[i]));
  }
}

}  // namespace trireme
