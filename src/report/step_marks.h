// The marks of a plot over steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/report/step_metrics.h"
#include "trireme/report/svg_plot.h"

namespace trireme {

// Returns at most `most` marks, each with the mean of a value over successive steps. `title`
// precedes the text of each mark.
template <class Value>
std::vector<PlotMark> marks_of(const std::vector<StepMetrics>& steps, const std::string& unit,
                               const Value& value, std::size_t most = 400,
                               const std::string& title = "") {
  std::vector<PlotMark> marks;
  const std::size_t width = (steps.size() + most - 1) / most;
  for (std::size_t begin = 0; begin < steps.size(); begin += width) {
    const std::size_t end = std::min(steps.size(), begin + width);
    double sum = 0.0;
    int count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double y = value(steps[i]);
      if (!std::isfinite(y)) continue;
      sum += y;
      ++count;
    }
    if (count == 0) continue;
    const auto first = steps[begin].step, last = steps[end - 1].step;
    const double y = sum / count;
    const std::string where =
        first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
    marks.push_back({static_cast<double>(last), y,
                     fmt::format("{}{}: {}{}", title, where, plain_number(y), unit)});
  }
  return marks;
}

}  // namespace trireme
