#include "trireme/optim/learning_rate_table.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"

namespace trireme::optim {
namespace {

class RateTable {
 public:
  explicit RateTable(std::string origin) : origin_(shown(origin)) {}

  void add(const FileLine& line) {
    const LearningRatePoint point = point_of(line);
    if (!points_.empty() && point.step <= points_.back().step) {
      refuse(line, fmt::format("step {} does not follow step {} of line {}: steps must rise",
                               point.step, points_.back().step, last_line_));
    }
    points_.push_back(point);
    last_line_ = line.number;
  }

  // What does not reach the peak is probably a table of the rates themselves.
  std::vector<LearningRatePoint> take() {
    if (points_.empty()) {
      throw ConfigError(
          fmt::format("{}: no line has a step and a part of optim.lr, as in 100 0.5", origin_));
    }
    const double most = std::ranges::max(points_, {}, &LearningRatePoint::part).part;
    if (most == 0.0) {
      throw ConfigError(fmt::format(
          "{}: no part is above 0, so that nothing would train: the largest must be 1", origin_));
    }
    if (most != 1.0) {
      throw ConfigError(
          fmt::format("{}: the largest part is {}, but optim.lr is the peak, so the largest must "
                      "be 1: divide all by {}, and give the peak as optim.lr",
                      origin_, most, most));
    }
    return std::move(points_);
  }

 private:
  LearningRatePoint point_of(const FileLine& line) const {
    std::istringstream words(line.text);
    std::string step, part, more;
    if (!(words >> step >> part) || words >> more) {
      refuse(line, fmt::format("'{}' is not a step and a part of optim.lr, as in 100 0.5",
                               shown(line.text)));
    }
    LearningRatePoint point;
    const auto check = [&](const char* what, const std::string& word, const std::string& problem) {
      if (!problem.empty()) refuse(line, fmt::format("{} {}: {}", what, shown(word), problem));
    };
    check("step", step, read_value(step, point.step, between(0, limits::kSteps)));
    check("part", part, read_value(part, point.part, between(0, 1)));
    return point;
  }

  [[noreturn]] void refuse(const FileLine& line, const std::string& why) const {
    throw ConfigError(fmt::format("{}, line {}: {}", origin_, line.number, why));
  }

  std::string origin_;
  std::vector<LearningRatePoint> points_;
  int last_line_ = 0;
};

}  // namespace

std::vector<LearningRatePoint> read_learning_rates(std::string_view text,
                                                   const std::string& origin) {
  RateTable table(origin);
  for (const FileLine& line : lines_of_small_file(text)) table.add(line);
  return table.take();
}

std::string learning_rates_text(const std::vector<LearningRatePoint>& points) {
  std::string text;
  for (const LearningRatePoint& point : points) {
    text += fmt::format("{} {}\n", point.step, point.part);
  }
  return text;
}

}  // namespace trireme::optim
