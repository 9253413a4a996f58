// The axes of the grid of ranks, and sets of axes, which name groups of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// The axes, in the order of kAxes: ranks that differ in the last axis alone are neighbours.
enum class Axis {
  kReplicate,  // data parallelism among whole copies of the model's state
  kShard,      // data parallelism among the ranks that share one copy
  kPipeline,   // pipeline stages
  kTensor,     // tensor parallelism
};

// All axes, the outermost first.
inline constexpr std::array kAxes = {Axis::kReplicate, Axis::kShard, Axis::kPipeline,
                                     Axis::kTensor};

// A set of axes. An Axis converts to the set of that axis alone. The set stands for the group of
// ranks that differ in these axes and agree in all others.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(Axis axis) : bits_(1u << static_cast<unsigned>(axis)) {}

  // Whether all axes of the other set are in this one.
  constexpr bool contains(Axes others) const { return (bits_ & others.bits_) == others.bits_; }
  constexpr Axes with(Axes others) const { return Axes(bits_ | others.bits_); }
  constexpr Axes without(Axes others) const { return Axes(bits_ & ~others.bits_); }
  constexpr bool operator==(const Axes&) const = default;

  std::string to_string() const;  // "replicate x tensor", "none"

 private:
  constexpr explicit Axes(unsigned bits) : bits_(bits) {}

  unsigned bits_ = 0;
};
constexpr Axes operator|(Axes a, Axes b) {
  return a.with(b);
}
constexpr Axes operator|(Axis a, Axes b) {
  return b.with(a);
}

inline constexpr Axes kAllAxes = [] {
  Axes all;
  for (const Axis axis : kAxes) all = all | axis;
  return all;
}();
// Ranks of the data dimension have the same part of the model and other data. The ranks that share
// a copy are neighbours in it, so a copy is an aligned run of the data dimension.
inline constexpr Axes kDataAxes = Axis::kReplicate | Axis::kShard;
// One replica: all ranks that work on the same data.
inline constexpr Axes kModelAxes = kAllAxes.without(kDataAxes);

// What users call the dimensions of the grid (grid.data, ...), the outermost first. Code that lists
// the dimensions goes through this table, so that only this layer and `config` know how many there
// are.
struct GridDimension {
  const char* name;
  Axes axes;
};
inline constexpr std::array kGridDimensions = {GridDimension{"data", kDataAxes},
                                               GridDimension{"pipeline", Axis::kPipeline},
                                               GridDimension{"tensor", Axis::kTensor}};

// The names of the dimensions that have these axes: "pipeline x tensor" for kModelAxes and " x ".
std::string dimension_names(std::string_view separator, Axes axes = kAllAxes);

// The place in kGridDimensions of the dimension that has these axes and no other.
constexpr std::size_t dimension_with(Axes axes) {
  std::size_t i = 0;
  while (!(kGridDimensions[i].axes == axes)) ++i;
  return i;
}

// A number for each of kGridDimensions.
using DimensionNumbers = std::array<int, kGridDimensions.size()>;

// The place in kGridDimensions of the dimension that has the axis.
constexpr std::size_t dimension_of(Axis axis) {
  std::size_t i = 0;
  while (!kGridDimensions[i].axes.contains(axis)) ++i;
  return i;
}

}  // namespace trireme
