// A robust fit of constants to rows on logarithmic scales.
#pragma once

#include <vector>

#include "trireme/plan/calibration.h"

namespace trireme::plan {

// A small matrix, row by row.
using SmallMatrix = std::vector<std::vector<double>>;

// Eigenvalues and, in the rows of `vectors`, the unit eigenvectors of a symmetric matrix.
struct SymmetricEigen {
  std::vector<double> values;
  SmallMatrix vectors;
};
// Jacobi's method by rotations (Golub and Van Loan, "Matrix Computations", section 8.5).
SymmetricEigen symmetric_eigen(SmallMatrix matrix);

using FitRows = std::vector<const CalibrationRow*>;

// The state at a minimum. Logarithms are natural.
struct RobustFit {
  std::vector<double> logs;       // of the constants
  std::vector<double> residuals;  // log(predicted / measured) of each row
  SmallMatrix slopes;             // of each row's log(predicted) by each constant's logarithm
  double threshold = 0.0;         // where Huber's function becomes linear
  std::vector<bool> at_bound;     // constants that the rows would have beyond a bound

  std::vector<double> constants() const;
  double weight(std::size_t row) const;  // of least squares: 1, or less for an outlier
};

// The least effect on the logarithms of predictions, all rows together, by which a constant or a
// combination of constants counts as determined.
constexpr double kLeastSlope = 1e-3;

// log(predicted / measured); not finite where the prediction is not finite and above 0.
double log_error(const CalibrationRow& row, const std::vector<double>& constants);

// Fits from the constants' starts. A constant or a combination of them to which no row responds
// stays as it is.
RobustFit robust_fit(const std::vector<CalibrationConstant>& constants, const FitRows& rows);

}  // namespace trireme::plan
