#include "trireme/comm/axes.h"

#include <vector>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr std::array<const char*, kAxes.size()> kNames = {"replicate", "shard", "pipeline",
                                                          "tensor"};

}  // namespace

std::string Axes::to_string() const {
  std::vector<const char*> names;
  for (const Axis axis : kAxes) {
    if (contains(axis)) names.push_back(kNames[static_cast<std::size_t>(axis)]);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, " x "));
}

std::string dimension_names(std::string_view separator, Axes axes) {
  std::vector<const char*> names;
  for (const GridDimension& dimension : kGridDimensions) {
    if (axes.contains(dimension.axes)) names.push_back(dimension.name);
  }
  return fmt::format("{}", fmt::join(names, separator));
}

}  // namespace trireme
