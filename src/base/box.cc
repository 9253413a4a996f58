#include "trireme/base/box.h"

#include <algorithm>

namespace trireme {
namespace {

struct Decomposer {
  const Shape& extent;
  std::vector<Box> boxes{};

  // The number of elements in one step along a dimension.
  std::int64_t inner(int dimension) const {
    std::int64_t product = 1;
    for (int d = dimension + 1; d < extent.rank(); ++d) product *= extent[d];
    return product;
  }

  void add(const std::vector<std::int64_t>& prefix, std::int64_t begin, std::int64_t end) {
    Box box;
    for (const std::int64_t at : prefix) {
      box.start.push_back(at);
      box.count.push_back(1);
    }
    box.start.push_back(begin);
    box.count.push_back(end - begin);
    for (int d = static_cast<int>(box.start.size()); d < extent.rank(); ++d) {
      box.start.push_back(0);
      box.count.push_back(extent[d]);
    }
    boxes.push_back(std::move(box));
  }

  // Divides elements [begin, end) of the part of the tensor that `prefix` selects into a part of a
  // first row, whole rows, and a part of a last row.
  void divide(std::vector<std::int64_t> prefix, std::int64_t begin, std::int64_t end) {
    const int dimension = static_cast<int>(prefix.size());
    const std::int64_t row = inner(dimension);
    std::int64_t first = begin / row;
    const std::int64_t last = end / row;
    prefix.push_back(0);
    if (begin % row != 0) {
      prefix.back() = first;
      divide(prefix, begin - first * row, std::min(end, (first + 1) * row) - first * row);
      ++first;
    }
    if (first < last) {
      const std::vector<std::int64_t> before(prefix.begin(), prefix.end() - 1);
      add(before, first, last);
    }
    if (last >= first && last * row < end) {
      prefix.back() = last;
      divide(prefix, 0, end - last * row);
    }
  }
};

}  // namespace

std::int64_t Box::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : count) product *= extent;
  return product;
}

std::vector<Box> decompose(const Shape& extent, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return {};
  if (extent.rank() == 0) return {Box{}};
  Decomposer decomposer{extent};
  decomposer.divide({}, begin, end);
  return std::move(decomposer.boxes);
}

}  // namespace trireme
