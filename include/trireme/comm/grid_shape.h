// How many ranks the grid has along each axis, and which place in it is where.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/span.h"

namespace trireme {

// An extent for each axis, at least 1. Places are numbered with the last axis of kAxes running
// fastest: tensor ranks are neighbours, then pipeline stages, then the ranks that share a copy.
class GridShape {
 public:
  constexpr GridShape() : extents_{filled_with_ones()} {}
  // Nothing is sharded: the data dimension consists of whole copies.
  constexpr GridShape(int data, int pipeline, int tensor) : GridShape() {
    (*this)[Axis::kReplicate] = data;
    (*this)[Axis::kPipeline] = pipeline;
    (*this)[Axis::kTensor] = tensor;
  }

  constexpr int& operator[](Axis axis) { return extents_[static_cast<std::size_t>(axis)]; }
  constexpr int operator[](Axis axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  bool operator==(const GridShape&) const = default;

  // Ranks in each group of these axes. If they are more than an int holds, the largest int.
  constexpr int extent(Axes axes) const {
    std::int64_t ranks = 1;
    for (const Axis axis : kAxes) {
      if (!axes.contains(axis)) continue;
      ranks = std::min<std::int64_t>(ranks * (*this)[axis], std::numeric_limits<int>::max());
    }
    return static_cast<int>(ranks);
  }
  constexpr int ranks() const { return extent(kAllAxes); }
  // Makes the axes have this extent together: the outermost of them takes it, the others get 1.
  void set_extent(Axes axes, int extent);
  // The difference between the places of neighbours along the axis.
  int stride(Axis axis) const;

  // Where a place is along the axes: its number in its group, from 0.
  int index(int place, Axes axes) const;
  // The places that differ from `place` in these axes alone, it among them, in rising order.
  std::vector<int> group(int place, Axes axes) const;
  // The same of a span. A place whose number is none of Span::only is in no group: its index is -1,
  // and it must not ask for one.
  int extent(const Span& span) const;
  int index(int place, const Span& span) const;
  std::vector<int> group(int place, const Span& span) const;
  // The groups of all places, each once, in the order of their first places.
  std::vector<std::vector<int>> groups(Axes axes) const;

  std::string to_string() const;  // "2 x 1 x 2 (data x pipeline x tensor)"
  // The extents of the dimensions that have these axes: "1x2" for kModelAxes and "x".
  std::string extents_text(std::string_view separator, Axes axes = kAllAxes) const;

 private:
  static constexpr std::array<int, kAxes.size()> filled_with_ones() {
    std::array<int, kAxes.size()> ones{};
    for (int& one : ones) one = 1;
    return ones;
  }

  std::array<int, kAxes.size()> extents_;
};

inline constexpr int kMostGridRanks = 1 << 20;
// Reads what extents_text("x", axes) writes; the other axes get 1. Returns nothing for another
// text, or for a grid of more than kMostGridRanks.
std::optional<GridShape> read_extents(std::string_view text, Axes axes = kAllAxes);

// The grid that grid.* asks for. A dimension that is left out follows from the number of ranks. If
// several are left out, data takes all ranks that remain and the others are 1.
struct GridRequest {
  std::array<std::optional<int>, kGridDimensions.size()> extents{};  // by kGridDimensions

  // The extent that is asked for in the dimension with these axes.
  std::optional<int>& operator[](Axes axes) { return extents[dimension_with(axes)]; }
  const std::optional<int>& operator[](Axes axes) const { return extents[dimension_with(axes)]; }
  bool operator==(const GridRequest&) const = default;

  // Asks for the extents of the shape in the dimensions that have these axes.
  void ask_for(const GridShape& shape, Axes axes = kAllAxes);
  // The dimension that takes the ranks that remain. nullptr: none is left out.
  const GridDimension* takes_rest() const;
  GridShape shape() const;  // with 1 for what is left out
};

// Throws ConfigError whose message names a grid that would fit.
GridShape resolve_grid(const GridRequest& request, int world_size);

}  // namespace trireme
