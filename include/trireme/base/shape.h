// The extents of a tensor: up to six dimensions, stored in the object.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace trireme {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  // Negative indices count from the end: shape[-1] is the last, contiguous dimension.
  std::int64_t operator[](int dimension) const {
    return extents_[static_cast<std::size_t>(dimension < 0 ? dimension + rank_ : dimension)];
  }
  std::int64_t elements() const;  // 1 for rank 0
  std::int64_t rows() const;      // product of all extents but the last
  std::span<const std::int64_t> extents() const {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  // The same shape with one extent changed.
  Shape with(int dimension, std::int64_t extent) const;
  std::string to_string() const;  // "(4, 64, 768)"

  bool operator==(const Shape&) const = default;

 private:
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> extents_{};
};

}  // namespace trireme
