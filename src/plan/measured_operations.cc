#include "measured_operations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace trireme::plan {
namespace {

constexpr std::size_t kNearest = 5;  // the last one only says where weights end

// The nearest points, the nearest first.
struct Nearest {
  std::array<float, kNearest> squares{};
  std::array<std::size_t, kNearest> indices{};
  std::size_t count = 0;

  void consider(float square, std::size_t index) {
    if (count == kNearest && square >= squares.back()) return;
    std::size_t place = count < kNearest ? count++ : kNearest - 1;
    for (; place > 0 && squares[place - 1] > square; --place) {
      squares[place] = squares[place - 1];
      indices[place] = indices[place - 1];
    }
    squares[place] = square;
    indices[place] = index;
  }
};

float log_of(double x) {
  return static_cast<float>(std::log2(std::max(x, 1.0)));
}

}  // namespace

MeasuredRatios::Place MeasuredRatios::place_of(const std::array<std::int64_t, 4>& sizes,
                                               double flops, double bytes) {
  const auto size = [&](std::size_t i) { return log_of(static_cast<double>(sizes[i])); };
  if (flops > 0) return {size(0), size(1), size(2), size(3), log_of(bytes), log_of(flops)};
  // The memory bounds the others, and the length of a row matters less. A tensor of one row has no
  // rows.
  return {log_of(bytes), sizes[0] > 1 ? 0.25f * size(1) : 0.0f};
}

MeasuredRatios::MeasuredRatios(const std::vector<MeasuredOperation>& operations,
                               const std::vector<double>& modelled) {
  std::map<std::pair<std::string, DType>, std::vector<Point>> kinds;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const MeasuredOperation& one = operations[i];
    kinds[{one.operation, one.dtype}].push_back({place_of(one.sizes, one.flops, one.bytes),
                                                 one.seconds, std::log(one.seconds / modelled[i])});
  }
  for (auto& [kind, points] : kinds) {
    kinds_.push_back({kind.first, kind.second, std::move(points)});
  }
}

const MeasuredRatios::Kind* MeasuredRatios::find(std::string_view name, DType dtype) const {
  const auto key = [](const Kind& kind) {
    return std::pair<std::string_view, DType>(kind.name, kind.dtype);
  };
  const std::pair<std::string_view, DType> wanted(name, dtype);
  const auto found = std::ranges::lower_bound(kinds_, wanted, {}, key);
  return found != kinds_.end() && key(*found) == wanted ? &*found : nullptr;
}

std::optional<double> MeasuredRatios::seconds(const ProgramEntry& entry, std::string_view name,
                                              double modelled) const {
  const Kind* const kind = find(name, entry.dtype);
  if (kind == nullptr) return {};
  const Place place = place_of(entry.sizes, entry.flops, entry.bytes);
  Nearest nearest;
  for (std::size_t i = 0; i < kind->points.size(); ++i) {
    float square = 0;
    for (std::size_t j = 0; j < place.size(); ++j) {
      const float difference = place[j] - kind->points[i].place[j];
      square += difference * difference;
    }
    nearest.consider(square, i);
  }
  const Point& first = kind->points[nearest.indices[0]];
  if (nearest.squares[0] == 0) return first.seconds;
  const bool ends = nearest.count == kNearest;
  const float end = ends ? std::sqrt(nearest.squares.back()) : 0.0f;
  double weights = 0, sum = 0;
  for (std::size_t i = 0; i < nearest.count - (ends ? 1 : 0); ++i) {
    const float distance = std::sqrt(nearest.squares[i]);
    const double root = ends ? (end - distance) / (end * distance) : 1 / distance;
    weights += root * root;
    sum += root * root * kind->points[nearest.indices[i]].log_ratio;
  }
  return modelled * std::exp(weights > 0 ? sum / weights : first.log_ratio);
}

}  // namespace trireme::plan
