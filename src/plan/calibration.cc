#include "trireme/plan/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/base/printable.h"

#include "plan/robust_fit.h"

namespace trireme::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds > 0.0;
}

std::vector<double> starts_of(const std::vector<CalibrationConstant>& constants) {
  std::vector<double> starts;
  for (const CalibrationConstant& constant : constants) starts.push_back(constant.start);
  return starts;
}

void check_constants(const std::vector<CalibrationConstant>& constants) {
  if (constants.empty()) throw ConfigError("a calibration without a constant to fit");
  for (const CalibrationConstant& one : constants) {
    if (is_time(one.low) && std::isfinite(one.high) && one.low <= one.start &&
        one.start <= one.high && one.low < one.high) {
      continue;
    }
    throw ConfigError(fmt::format(
        "the constant {}: it must begin, at {:g}, between two bounds above 0, here {:g} and {:g}",
        printable(one.name), one.start, one.low, one.high));
  }
}

void check_rows(const std::vector<CalibrationConstant>& constants,
                const std::vector<CalibrationRow>& rows) {
  const std::vector<double> starts = starts_of(constants);
  std::size_t fitted = 0;
  for (const CalibrationRow& row : rows) {
    if (!is_time(row.measured)) {
      throw ConfigError(fmt::format("{}, {}: measured {:g} s: a time must be finite and above 0",
                                    printable(row.table), printable(row.name), row.measured));
    }
    TRIREME_CHECK(row.predict, "a row without a prediction");
    const double predicted = row.predict(starts);
    if (!is_time(predicted)) {
      throw ConfigError(
          fmt::format("{}, {}: predicted {:g} s before the fit: a time must be "
                      "finite and above 0",
                      printable(row.table), printable(row.name), predicted));
    }
    fitted += row.fitted ? 1 : 0;
  }
  if (fitted < constants.size()) {
    throw ConfigError(
        fmt::format("{} rows cannot determine {} constants: measure more runs, or "
                    "fit fewer constants",
                    fitted, constants.size()));
  }
}

// Student's quantile of 95 %: nine of ten are within it to both sides. Abramowitz and Stegun,
// 26.7.5, for the normal quantile z; the first is exact.
double students_quantile(double freedom) {
  if (freedom < 1.5) return 6.314;
  constexpr double z = 1.6448536, z2 = z * z;
  return z + z * (z2 + 1) / (4 * freedom) +
         z * ((5 * z2 + 16) * z2 + 3) / (96 * freedom * freedom) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * std::pow(freedom, 3));
}

// What the slopes at a minimum say of the constants that are not at a bound.
class Uncertainty {
 public:
  explicit Uncertainty(const RobustFit& fit)
      : fit_(fit),
        plain_(symmetric_eigen(squares(false))),
        weighted_(symmetric_eigen(squares(true))) {}

  Determined of(std::size_t constant) const {
    if (fit_.at_bound[constant]) return Determined::kAtBound;
    constexpr double kSmallPart = 0.01;  // of a constant's unit vector
    double unknown = 0.0;
    for (std::size_t k = 0; k < plain_.values.size(); ++k) {
      if (!is_known(k)) unknown += plain_.vectors[k][constant] * plain_.vectors[k][constant];
    }
    if (unknown < kSmallPart) return Determined::kByRows;
    return unknown > 1 - kSmallPart ? Determined::kByNoRow : Determined::kOnlyJointly;
  }

  // The factor of FittedConstant.
  double factor(std::size_t constant) const {
    const auto rows = static_cast<double>(fit_.residuals.size());
    const auto known = static_cast<double>(known_directions());
    if (of(constant) != Determined::kByRows || rows <= known) return kInfinite;
    double inliers = 0.0, squares = 0.0;
    for (const double residual : fit_.residuals) {
      const double bounded = std::clamp(residual, -fit_.threshold, fit_.threshold);
      squares += bounded * bounded;
      inliers += std::abs(residual) <= fit_.threshold ? 1.0 : 0.0;
    }
    const double share = std::max(inliers / rows, 0.1);
    const double correction = 1 + known / rows * (1 - share) / share;
    const double variance = squares / (rows - known) / (share * share);
    double inverse = 0.0;
    for (std::size_t k = 0; k < plain_.values.size(); ++k) {
      const double part = plain_.vectors[k][constant];
      if (is_known(k)) inverse += part * part / plain_.values[k];
    }
    return std::exp(students_quantile(rows - known) * correction * std::sqrt(variance * inverse));
  }

  // The share of a row in its own fitted value.
  double leverage(std::size_t row) const {
    double sum = 0.0;
    const std::vector<double> slopes = free_slopes(row);
    for (std::size_t k = 0; k < weighted_.values.size(); ++k) {
      if (weighted_.values[k] < kLeastSlope * kLeastSlope) continue;
      const double along =
          std::inner_product(slopes.begin(), slopes.end(), weighted_.vectors[k].begin(), 0.0);
      sum += along * along / weighted_.values[k];
    }
    return sum * fit_.weight(row);
  }

 private:
  std::vector<double> free_slopes(std::size_t row) const {
    std::vector<double> slopes = fit_.slopes[row];
    for (std::size_t j = 0; j < slopes.size(); ++j) {
      if (fit_.at_bound[j]) slopes[j] = 0.0;
    }
    return slopes;
  }

  SmallMatrix squares(bool weighted) const {
    const std::size_t n = fit_.logs.size();
    SmallMatrix matrix(n, std::vector<double>(n, 0.0));
    for (std::size_t i = 0; i < fit_.residuals.size(); ++i) {
      const std::vector<double> slopes = free_slopes(i);
      const double weight = weighted ? fit_.weight(i) : 1.0;
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < n; ++k) matrix[j][k] += weight * slopes[j] * slopes[k];
      }
    }
    return matrix;
  }

  bool is_known(std::size_t direction) const {
    return plain_.values[direction] >= kLeastSlope * kLeastSlope;
  }
  std::size_t known_directions() const {
    std::size_t known = 0;
    for (std::size_t k = 0; k < plain_.values.size(); ++k) known += is_known(k) ? 1 : 0;
    return known;
  }

  const RobustFit& fit_;
  SymmetricEigen plain_, weighted_;  // of the slopes' squares
};

// |measured / predicted - 1|
double held_out_error(double log_error) {
  return std::isfinite(log_error) ? std::abs(std::expm1(-log_error)) : kInfinite;
}

// Fits to some rows and compares with others, in several ways.
class HoldingOut {
 public:
  HoldingOut(const std::vector<CalibrationConstant>& constants,
             const std::vector<CalibrationRow>& rows, const RobustFit& all)
      : constants_(constants), all_(all) {
    for (const CalibrationRow& row : rows) {
      if (row.fitted) {
        fitted_.push_back(&row);
      } else {
        compared_.push_back(held_out_error(log_error(row, all.constants())));
      }
    }
  }

  HeldOutIntervals intervals() const { return {each_row(), halves(), tables()}; }

 private:
  // Adds the errors of rows that `leaves` says. Returns whether the rest allow a fit.
  template <class Leaves>
  bool leave_out(std::vector<double>& errors, const Leaves& leaves) const {
    FitRows kept, left;
    for (const CalibrationRow* row : fitted_) (leaves(*row) ? left : kept).push_back(row);
    if (kept.size() < constants_.size() || left.empty()) return false;
    const std::vector<double> values = robust_fit(constants_, kept).constants();
    for (const CalibrationRow* row : left)
      errors.push_back(held_out_error(log_error(*row, values)));
    return true;
  }

  // One row changes a fit little: what it would be without the row follows from the row's leverage
  // (Cook and Weisberg, "Residuals and Influence in Regression", 1982, section 2.2).
  std::optional<double> each_row() const {
    constexpr double kMostLeverage = 0.9;
    std::vector<double> errors = compared_;
    const Uncertainty uncertainty(all_);
    for (std::size_t i = 0; i < fitted_.size(); ++i) {
      const double leverage = uncertainty.leverage(i);
      if (leverage < kMostLeverage) {
        errors.push_back(held_out_error(all_.residuals[i] / (1 - leverage)));
      } else if (!leave_out(errors,
                            [&](const CalibrationRow& row) { return &row == fitted_[i]; })) {
        return std::nullopt;
      }
    }
    return conformal_half_width(std::move(errors));
  }

  std::optional<double> halves() const {
    std::vector<double> errors = compared_;
    const auto half = [](const CalibrationRow& row) { return philox_key(0, row.name) % 2; };
    for (const std::uint64_t left : {0u, 1u}) {
      const auto leaves = [&](const CalibrationRow& row) { return half(row) == left; };
      if (!leave_out(errors, leaves)) return std::nullopt;
    }
    return conformal_half_width(std::move(errors));
  }

  std::optional<double> tables() const {
    std::vector<double> errors = compared_;
    std::set<std::string> names;
    for (const CalibrationRow* row : fitted_) names.insert(row->table);
    for (const std::string& name : names) {
      const auto leaves = [&](const CalibrationRow& row) { return row.table == name; };
      if (!leave_out(errors, leaves)) return std::nullopt;
    }
    return conformal_half_width(std::move(errors));
  }

  const std::vector<CalibrationConstant>& constants_;
  const RobustFit& all_;
  FitRows fitted_;
  std::vector<double> compared_;  // errors of rows that are not fitted
};

// Ranks from 0; equal values share the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
  }
  return ranks;
}

ErrorSummary summary_of(const std::vector<RowError>& rows, bool fitted) {
  ErrorSummary summary;
  std::vector<double> predicted, measured;
  for (const RowError& row : rows) {
    if (row.fitted != fitted) continue;
    ++summary.rows;
    const double error = std::abs(row.relative());
    summary.mean += error;
    if (error >= summary.worst) {
      summary.worst = error;
      summary.worst_row = row.name;
    }
    predicted.push_back(row.predicted);
    measured.push_back(row.measured);
  }
  if (summary.rows > 0) summary.mean /= summary.rows;
  summary.rank_correlation = rank_correlation(predicted, measured);
  return summary;
}

}  // namespace

std::vector<double> Calibration::values() const {
  std::vector<double> values;
  for (const FittedConstant& constant : constants) values.push_back(constant.value);
  return values;
}

double conformal_half_width(std::vector<double> errors) {
  constexpr double kShare = 0.9;
  const auto count = static_cast<double>(errors.size());
  const double rank = std::ceil(kShare * (count + 1) - 1e-9);
  if (rank > count) return kInfinite;
  const auto at = errors.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(errors.begin(), at, errors.end());
  return *at;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  TRIREME_CHECK(a.size() == b.size(), "ranks of lists of unequal length");
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double xx = 0.0, yy = 0.0, xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
    xy += (x[i] - middle) * (y[i] - middle);
  }
  return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
}

Calibration calibrate(const std::vector<CalibrationConstant>& constants,
                      const std::vector<CalibrationRow>& rows) {
  check_constants(constants);
  check_rows(constants, rows);
  FitRows fitted;
  for (const CalibrationRow& row : rows) {
    if (row.fitted) fitted.push_back(&row);
  }
  const RobustFit fit = robust_fit(constants, fitted);
  const Uncertainty uncertainty(fit);
  const std::vector<double> values = fit.constants();
  Calibration calibration;
  for (std::size_t j = 0; j < constants.size(); ++j) {
    calibration.constants.push_back({.name = constants[j].name,
                                     .value = values[j],
                                     .start = constants[j].start,
                                     .factor = uncertainty.factor(j),
                                     .determined = uncertainty.of(j)});
  }
  for (const CalibrationRow& row : rows) {
    calibration.rows.push_back({.name = row.name,
                                .table = row.table,
                                .measured = row.measured,
                                .predicted = row.predict(values),
                                .fitted = row.fitted});
  }
  calibration.fitted = summary_of(calibration.rows, true);
  calibration.compared = summary_of(calibration.rows, false);
  calibration.intervals = HoldingOut(constants, rows, fit).intervals();
  return calibration;
}

}  // namespace trireme::plan
