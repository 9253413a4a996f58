// Measured times of operations, and what they say of operations that were not measured.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/device_description.h"

namespace trireme::plan {

// What a measured operation takes, relative to what the model says of it. Of others of the same
// name and type these ratios are interpolated: between the nearest ones by the logarithms of what
// they work on (Franke and Little's weights, which are 0 at the distance of the next one, so that
// the result has no jumps).
class MeasuredRatios {
 public:
  // `modelled` are the model's seconds for each of the operations.
  MeasuredRatios(const std::vector<MeasuredOperation>& operations,
                 const std::vector<double>& modelled);

  // Returns the seconds of an operation that the model says takes `modelled`; nothing where none of
  // its name and type was measured.
  std::optional<double> seconds(const ProgramEntry& entry, std::string_view name,
                                double modelled) const;

 private:
  // A place among operations: logarithms to base 2 of sizes, bytes and FLOPs.
  using Place = std::array<float, 6>;
  struct Point {
    Place place;
    double seconds, log_ratio;
  };
  struct Kind {
    std::string name;
    DType dtype;
    std::vector<Point> points;
  };

  static Place place_of(const std::array<std::int64_t, 4>& sizes, double flops, double bytes);
  const Kind* find(std::string_view name, DType dtype) const;

  std::vector<Kind> kinds_;  // in the order of their names and types
};

}  // namespace trireme::plan
