#include "trireme/base/shape.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  TRIREME_CHECK(extents.size() <= kMaxRank,
                fmt::format("a shape has at most {} dimensions, not {}", kMaxRank, extents.size()));
  std::copy(extents.begin(), extents.end(), extents_.begin());
  for (const std::int64_t extent : extents) {
    TRIREME_CHECK(extent >= 0, fmt::format("negative extent {} in a shape", extent));
  }
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents()) product *= extent;
  return product;
}

std::int64_t Shape::rows() const {
  std::int64_t product = 1;
  for (int i = 0; i + 1 < rank_; ++i) product *= (*this)[i];
  return product;
}

Shape Shape::with(int dimension, std::int64_t extent) const {
  Shape result = *this;
  result.extents_[static_cast<std::size_t>(dimension < 0 ? dimension + rank_ : dimension)] = extent;
  return result;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + ")";
}

}  // namespace trireme
