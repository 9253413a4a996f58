// A group of ranks of the grid.
#pragma once

#include <utility>
#include <vector>

#include "trireme/comm/axes.h"

namespace trireme {

// The ranks that differ in these axes alone, or some of them. Groups of one span have no rank in
// common, and equally many ranks each.
struct Span {
  Span() = default;
  Span(Axes of, int neighbours = 0, std::vector<int> numbers = {})
      : axes(of), block(neighbours), only(std::move(numbers)) {}
  bool operator==(const Span&) const = default;

  Axes axes;              // none: one rank
  int block = 0;          // of these, a run of so many neighbours; 0: all
  std::vector<int> only;  // of these, those with such numbers along the axes; empty: all
};

}  // namespace trireme
