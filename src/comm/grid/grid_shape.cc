#include "trireme/comm/grid_shape.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Lists the requested dimensions: "tensor=3", "pipeline=2 and tensor=2".
std::string fixed_dimensions(const GridRequest& request) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    const std::optional<int>& extent = request.extents[i];
    if (extent) parts.push_back(fmt::format("{}={}", kGridDimensions[i].name, *extent));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

// Names the multiples of `unit` just below and above `size`: "3 or 6". "4" if none is below.
std::string sizes_around(std::int64_t unit, std::int64_t size) {
  const std::int64_t below = size / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

std::string there_are(int ranks) {
  return ranks == 1 ? "there is 1" : fmt::format("there are {}", ranks);
}

[[noreturn]] void refuse_complete(const GridRequest& request, int world_size) {
  GridRequest model = request;
  model[kDataAxes].reset();
  const int unit = model.shape().ranks(), ranks = request.shape().ranks();
  const std::string instead =
      world_size % unit == 0 ? fmt::format("set grid.data={}", world_size / unit)
                             : fmt::format("with {} left as they are {} ranks would fit",
                                           fixed_dimensions(model), sizes_around(unit, world_size));
  throw ConfigError(fmt::format("grid {} needs {} ranks, and {}: take {}, or {}",
                                request.shape().extents_text(" x "), ranks, there_are(world_size),
                                ranks, instead));
}

}  // namespace

void GridShape::set_extent(Axes axes, int extent) {
  for (const Axis axis : kAxes) {
    if (axes.contains(axis)) (*this)[axis] = std::exchange(extent, 1);
  }
}

int GridShape::stride(Axis axis) const {
  int stride = 1;
  for (auto inner = kAxes.rbegin(); *inner != axis; ++inner) stride *= (*this)[*inner];
  return stride;
}

int GridShape::index(int place, Axes axes) const {
  int index = 0;
  for (const Axis axis : kAxes) {
    if (axes.contains(axis)) index = index * (*this)[axis] + place / stride(axis) % (*this)[axis];
  }
  return index;
}

std::vector<int> GridShape::group(int place, Axes axes) const {
  for (const Axis axis : kAxes) {
    if (axes.contains(axis)) place -= index(place, axis) * stride(axis);
  }
  std::vector<int> places = {place};
  for (const Axis axis : kAxes) {
    if (!axes.contains(axis)) continue;
    std::vector<int> spread;
    for (const int first : places) {
      for (int i = 0; i < (*this)[axis]; ++i) spread.push_back(first + i * stride(axis));
    }
    places = std::move(spread);
  }
  return places;
}

int GridShape::extent(const Span& span) const {
  if (!span.only.empty()) return static_cast<int>(span.only.size());
  return span.block > 0 ? span.block : extent(span.axes);
}

int GridShape::index(int place, const Span& span) const {
  const int index = this->index(place, span.axes);
  if (span.block > 0) return index % span.block;
  if (span.only.empty()) return index;
  const auto found = std::ranges::find(span.only, index);
  return found == span.only.end() ? -1 : static_cast<int>(found - span.only.begin());
}

std::vector<int> GridShape::group(int place, const Span& span) const {
  const int here = index(place, span);
  TRIREME_CHECK(here >= 0 && (span.block == 0 || extent(span.axes) % span.block == 0) &&
                    (span.block == 0 || span.only.empty()),
                fmt::format("place {} of grid {} is in no such group along {}", place, to_string(),
                            span.axes.to_string()));
  const std::vector<int> all = group(place, span.axes);
  const auto number = [&](int i) {
    if (!span.only.empty()) return span.only[static_cast<std::size_t>(i)];
    return span.block > 0 ? index(place, span.axes) - here + i : i;
  };
  std::vector<int> places;
  for (int i = 0; i < extent(span); ++i) {
    places.push_back(all.at(static_cast<std::size_t>(number(i))));
  }
  return places;
}

std::vector<std::vector<int>> GridShape::groups(Axes axes) const {
  std::vector<std::vector<int>> groups;
  for (int place = 0; place < ranks(); ++place) {
    if (index(place, axes) == 0) groups.push_back(group(place, axes));
  }
  return groups;
}

std::string GridShape::to_string() const {
  return fmt::format("{} ({})", extents_text(" x "), dimension_names(" x "));
}

std::string GridShape::extents_text(std::string_view separator, Axes axes) const {
  std::vector<int> extents;
  for (const GridDimension& dimension : kGridDimensions) {
    if (axes.contains(dimension.axes)) extents.push_back(extent(dimension.axes));
  }
  return fmt::format("{}", fmt::join(extents, separator));
}

std::optional<GridShape> read_extents(std::string_view text, Axes axes) {
  GridShape shape;
  const char *at = text.data(), *end = at + text.size();
  std::int64_t ranks = 1;
  for (const GridDimension& dimension : kGridDimensions) {
    if (!axes.contains(dimension.axes)) continue;
    if (at != text.data() && (at == end || *at++ != 'x')) return {};
    int extent = 0;
    const auto read = std::from_chars(at, end, extent);
    ranks *= extent;
    if (read.ec != std::errc() || extent < 1 || ranks > kMostGridRanks) return {};
    shape.set_extent(dimension.axes, extent);
    at = read.ptr;
  }
  return at == end ? std::optional(shape) : std::nullopt;
}

void GridRequest::ask_for(const GridShape& shape, Axes axes) {
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    const Axes dimension = kGridDimensions[i].axes;
    if (axes.contains(dimension)) extents[i] = shape.extent(dimension);
  }
}

const GridDimension* GridRequest::takes_rest() const {
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    if (!extents[i]) return &kGridDimensions[i];
  }
  return nullptr;
}

GridShape GridRequest::shape() const {
  GridShape shape;
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    shape.set_extent(kGridDimensions[i].axes, extents[i].value_or(1));
  }
  return shape;
}

GridShape resolve_grid(const GridRequest& request, int world_size) {
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    const std::optional<int>& extent = request.extents[i];
    if (extent && *extent < 1) {
      throw ConfigError(
          fmt::format("grid.{} is {}: it must be at least 1", kGridDimensions[i].name, *extent));
    }
  }
  const int fixed = request.shape().ranks();
  const GridDimension* rest = request.takes_rest();
  if (rest == nullptr) {
    if (fixed != world_size) refuse_complete(request, world_size);
  } else if (world_size % fixed != 0) {
    throw ConfigError(fmt::format(
        "a grid with {} needs a multiple of {} ranks, and {}: {} would fit",
        fixed_dimensions(request), fixed, there_are(world_size), sizes_around(fixed, world_size)));
  }
  GridShape shape = request.shape();
  if (rest != nullptr) shape.set_extent(rest->axes, world_size / fixed);
  return shape;
}

}  // namespace trireme
