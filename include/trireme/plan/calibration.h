// Fits the few constants of a prediction of seconds to measured rows, and tells how far the
// predictions may be trusted.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/json.h"

namespace trireme::plan {

// A constant above 0. It is fitted, and its uncertainty told, on a logarithmic scale.
struct CalibrationConstant {
  std::string name;
  double start = 1.0;
  double low = 0.0, high = 0.0;  // bounds
};

// A measured time and its prediction.
struct CalibrationRow {
  std::string name;
  std::string table;      // where it is from; rows of a table may err alike
  double measured = 0.0;  // seconds
  bool fitted = true;     // false: it is only compared
  std::function<double(const std::vector<double>& constants)> predict = {};  // seconds, above 0
};

// What is known of a constant after the fit.
enum class Determined {
  kByRows,       // its uncertainty is that of the rows
  kOnlyJointly,  // rows determine a product of powers of it and others: the rest is as at the start
  kByNoRow,      // no fitted row depends on it: it is as at the start
  kAtBound,      // the rows would have it beyond a bound
};

struct FittedConstant {
  std::string name;
  double value = 0.0, start = 0.0;
  // Nine of ten times the true value is within value / factor and value * factor. Infinite where
  // the rows do not determine it.
  double factor = std::numeric_limits<double>::infinity();
  Determined determined = Determined::kByRows;
};

struct RowError {
  std::string name, table;
  double measured = 0.0, predicted = 0.0;  // seconds
  bool fitted = true;
  double relative() const { return predicted / measured - 1.0; }
};

struct ErrorSummary {
  int rows = 0;
  double mean = 0.0;              // of |relative()|
  double worst = 0.0;             // |relative()|
  std::string worst_row;          // its name
  double rank_correlation = 0.0;  // Spearman's, of predicted and measured; 0 for less than two rows
};

// Relative half-widths h: nine of ten measured times are within predicted (1 - h) and
// predicted (1 + h), for rows like those here. Each is the conformal quantile of
// |measured / predicted - 1| of rows that a fit has not seen (Lei et al., "Distribution-free
// predictive inference for regression", JASA 113, 2018), together with the rows that are only
// compared. Infinite if there are less than nine such rows; nothing if a fit to the rest is not
// possible.
struct HeldOutIntervals {
  std::optional<double> rows;    // each row alone is left out
  std::optional<double> halves;  // rows by a hash of their names
  std::optional<double> tables;  // each table is left out
};

struct Calibration {
  std::vector<FittedConstant> constants;
  std::vector<RowError> rows;  // as they were given
  ErrorSummary fitted, compared;
  HeldOutIntervals intervals;
  std::vector<double> values() const;  // of the constants, in their order
};

// Minimizes the sum over fitted rows of Huber's function of log(predicted / measured), whose
// threshold follows the median of the errors, so that outliers do not pull. Where no row tells,
// a constant stays at its start.
//
// The uncertainty is Huber's covariance of an M-estimate ("Robust Statistics", 1981, section 7.6)
// with Student's quantile. Predictions may have kinks. There is a fit to all rows, one for each
// table and each half, and each computes every row's prediction some 15 (constants + 1) times: what
// does not depend on the constants is best computed before.
//
// Throws ConfigError in one line for fewer fitted rows than constants, for a measured time that is
// not finite and above 0, for a start outside of its bounds, and for a prediction at the start that
// is not finite and above 0.
Calibration calibrate(const std::vector<CalibrationConstant>& constants,
                      const std::vector<CalibrationRow>& rows);

// The half-width of held-out errors |measured / predicted - 1|, as in HeldOutIntervals.
double conformal_half_width(std::vector<double> errors);
// Spearman's rank correlation; equal values share their mean rank. 0 where one does not vary.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Lines for people, and what a file keeps of a calibration (src/plan/README.md).
std::vector<std::string> calibration_lines(const Calibration& calibration);
Json calibration_json(const Calibration& calibration);

}  // namespace trireme::plan
