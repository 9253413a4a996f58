#include "plan/robust_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr int kMostIterations = 40;
// Huber's threshold in standard deviations, which loses 5 % against least squares where errors are
// normal; and the smallest deviation that counts.
constexpr double kHuber = 1.345, kLeastDeviation = 1e-3;

// The robust standard deviation: from the median of those that the constants do not make zero.
double deviation_of(const std::vector<double>& residuals, std::size_t constants) {
  std::vector<double> sizes;
  for (const double residual : residuals) sizes.push_back(std::abs(residual));
  std::sort(sizes.begin(), sizes.end());
  const std::size_t first = std::min(constants, sizes.size() - 1);
  return std::max(kLeastDeviation, 1.4826 * sizes[first + (sizes.size() - first) / 2]);
}

double huber_loss(const std::vector<double>& residuals, double threshold) {
  double loss = 0.0;
  for (const double residual : residuals) {
    const double size = std::abs(residual);
    loss += size <= threshold ? size * size / 2 : threshold * (size - threshold / 2);
  }
  return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Minimizes by steps of Gauss and Newton with Levenberg's damping and, because predictions may have
// kinks, by trying each constant alone.
class Minimizer {
 public:
  Minimizer(const std::vector<CalibrationConstant>& constants, const FitRows& rows) : rows_(rows) {
    for (const CalibrationConstant& constant : constants) {
      low_.push_back(std::log(constant.low));
      high_.push_back(std::log(constant.high));
      fit_.logs.push_back(std::log(constant.start));
    }
    fit_.residuals = residuals_at(fit_.logs);
  }

  RobustFit minimize() {
    for (int round = 0; round < 3; ++round) {
      follow_slopes();
      if (!try_each()) break;
    }
    set_threshold();
    set_slopes();
    find_bounds();
    return fit_;
  }

 private:
  std::vector<double> residuals_at(const std::vector<double>& logs) const {
    std::vector<double> constants;
    for (const double log : logs) constants.push_back(std::exp(log));
    std::vector<double> residuals;
    for (const CalibrationRow* row : rows_) residuals.push_back(log_error(*row, constants));
    return residuals;
  }

  void set_threshold() { fit_.threshold = kHuber * deviation_of(fit_.residuals, fit_.logs.size()); }

  void set_slopes() {
    constexpr double kStep = 1e-4;
    fit_.slopes.assign(rows_.size(), std::vector<double>(fit_.logs.size(), 0.0));
    for (std::size_t j = 0; j < fit_.logs.size(); ++j) {
      std::vector<double> logs = fit_.logs;
      const double step = logs[j] + kStep <= high_[j] ? kStep : -kStep;
      logs[j] += step;
      const std::vector<double> moved = residuals_at(logs);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        const double slope = (moved[i] - fit_.residuals[i]) / step;
        fit_.slopes[i][j] = std::isfinite(slope) ? slope : 0.0;
      }
    }
  }

  // The derivative of the loss by each constant's logarithm.
  std::vector<double> gradient() const {
    std::vector<double> gradient(fit_.logs.size(), 0.0);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j < gradient.size(); ++j) {
        gradient[j] += fit_.weight(i) * fit_.slopes[i][j] * fit_.residuals[i];
      }
    }
    return gradient;
  }

  void find_bounds() {
    const std::vector<double> slope = gradient();
    fit_.at_bound.assign(fit_.logs.size(), false);
    for (std::size_t j = 0; j < slope.size(); ++j) {
      constexpr double kNear = 1e-9, kPull = 1e-9;
      fit_.at_bound[j] = (fit_.logs[j] >= high_[j] - kNear && slope[j] < -kPull) ||
                         (fit_.logs[j] <= low_[j] + kNear && slope[j] > kPull);
    }
  }

  // Squares of the slopes of constants that are free, with the rows' weights or without.
  SymmetricEigen normal_matrix(bool weighted) const {
    const std::size_t n = fit_.logs.size();
    SmallMatrix matrix(n, std::vector<double>(n, 0.0));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double weight = weighted ? fit_.weight(i) : 1.0;
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < n; ++k) {
          if (fit_.at_bound[j] || fit_.at_bound[k]) continue;
          matrix[j][k] += weight * fit_.slopes[i][j] * fit_.slopes[i][k];
        }
      }
    }
    return symmetric_eigen(std::move(matrix));
  }

  // Takes a trial if it is better. Returns by how much the loss fell; 0: it did not.
  double accept(const std::vector<double>& logs) {
    std::vector<double> residuals = residuals_at(logs);
    const double before = huber_loss(fit_.residuals, fit_.threshold);
    const double gain = before - huber_loss(residuals, fit_.threshold);
    if (!(gain > 1e-10 * (before + fit_.threshold * fit_.threshold))) return 0.0;
    fit_.logs = logs;
    fit_.residuals = std::move(residuals);
    return gain;
  }

  // The damped step, without what no row responds to.
  std::vector<double> damped_step(double damping) const {
    std::vector<double> slope = gradient();
    for (std::size_t j = 0; j < slope.size(); ++j) {
      if (fit_.at_bound[j]) slope[j] = 0.0;
    }
    std::vector<double> step(slope.size(), 0.0);
    const SymmetricEigen weighted = normal_matrix(true), plain = normal_matrix(false);
    for (std::size_t k = 0; k < step.size(); ++k) {
      if (weighted.values[k] <= 0.0) continue;
      const double size =
          -dot(weighted.vectors[k], slope) / (weighted.values[k] * (1 + damping) + 1e-12);
      for (std::size_t j = 0; j < step.size(); ++j) step[j] += size * weighted.vectors[k][j];
    }
    for (std::size_t k = 0; k < step.size(); ++k) {
      if (plain.values[k] >= kLeastSlope * kLeastSlope) continue;
      const double along = dot(plain.vectors[k], step);
      for (std::size_t j = 0; j < step.size(); ++j) step[j] -= along * plain.vectors[k][j];
    }
    return step;
  }

  std::vector<double> moved(const std::vector<double>& step) const {
    constexpr double kLongest = 1.0;  // a factor of e
    std::vector<double> logs = fit_.logs;
    double longest = kLongest;
    for (const double part : step) longest = std::max(longest, std::abs(part));
    for (std::size_t j = 0; j < logs.size(); ++j) {
      logs[j] = std::clamp(logs[j] + step[j] * kLongest / longest, low_[j], high_[j]);
    }
    return logs;
  }

  void follow_slopes() {
    double damping = 1e-3;
    for (int i = 0; i < kMostIterations; ++i) {
      set_threshold();
      set_slopes();
      find_bounds();
      double gain = 0.0;
      while (gain == 0.0 && damping < 1e6) {
        gain = accept(moved(damped_step(damping)));
        damping = gain > 0.0 ? std::max(1e-6, damping / 10) : damping * 10;
      }
      if (gain == 0.0) return;
    }
  }

  bool shows(std::size_t constant) const {
    double squares = 0.0;
    for (const std::vector<double>& row : fit_.slopes) squares += row[constant] * row[constant];
    return squares >= kLeastSlope * kLeastSlope;
  }

  bool try_each() {
    set_threshold();
    set_slopes();
    bool better = false;
    for (const double size : {0.1, 0.01}) {
      for (std::size_t j = 0; j < fit_.logs.size(); ++j) {
        if (!shows(j)) continue;
        for (const double step : {size, -size}) {
          std::vector<double> steps(fit_.logs.size(), 0.0);
          steps[j] = step;
          if (accept(moved(steps)) > 0.0) better = true;
        }
      }
    }
    return better;
  }

  const FitRows& rows_;
  std::vector<double> low_, high_;  // logarithms
  RobustFit fit_;
};

}  // namespace

SymmetricEigen symmetric_eigen(SmallMatrix a) {
  const std::size_t n = a.size();
  SymmetricEigen eigen{std::vector<double>(n), SmallMatrix(n, std::vector<double>(n, 0.0))};
  for (std::size_t i = 0; i < n; ++i) eigen.vectors[i][i] = 1.0;
  constexpr int kSweeps = 30;  // each converges quadratically
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0.0) continue;
        const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
        const double c = 1 / std::hypot(t, 1.0), s = t * c;
        const auto rotate = [&](double& x, double& y) {
          const double before = x;
          x = c * before - s * y;
          y = s * before + c * y;
        };
        for (std::size_t k = 0; k < n; ++k) rotate(a[k][p], a[k][q]);
        for (std::size_t k = 0; k < n; ++k) rotate(a[p][k], a[q][k]);
        for (std::size_t k = 0; k < n; ++k) rotate(eigen.vectors[p][k], eigen.vectors[q][k]);
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) eigen.values[i] = a[i][i];
  return eigen;
}

std::vector<double> RobustFit::constants() const {
  std::vector<double> constants;
  for (const double log : logs) constants.push_back(std::exp(log));
  return constants;
}

double RobustFit::weight(std::size_t row) const {
  const double size = std::abs(residuals[row]);
  return size <= threshold ? 1.0 : threshold / size;
}

double log_error(const CalibrationRow& row, const std::vector<double>& constants) {
  const double predicted = row.predict(constants);
  return predicted > 0.0 ? std::log(predicted / row.measured)
                         : std::numeric_limits<double>::quiet_NaN();
}

RobustFit robust_fit(const std::vector<CalibrationConstant>& constants, const FitRows& rows) {
  return Minimizer(constants, rows).minimize();
}

}  // namespace trireme::plan
