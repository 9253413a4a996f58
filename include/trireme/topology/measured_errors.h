// How far predictions are from what topo probe has measured, and what that means for others.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {

struct MeasuredError {
  Collective collective;
  Algorithm algorithm;
  std::size_t bytes;  // of the whole buffer
  int ranks;
  double seconds;    // measured less predicted
  int partials = 0;  // of the probe's ranks (Predictor::partials)
  bool operator==(const MeasuredError&) const = default;
};

// Compares the times in the file with predictions by its rates for the ranks of the probe, which
// were on the file's hosts in their order, the same number on each. Returns nothing for other
// numbers of ranks, for algorithms that it does not know, and for those without a closed form.
std::vector<MeasuredError> errors_of(const StoredRates& stored);

// Returns a predicted time, in seconds, with the error that was measured added to it, from 1/8 to 8
// times the prediction. What predictions do not know costs time (processors that ranks share) or
// saves it (bursts that links let pass), and about the same time wherever the ranks are, so errors
// are added and not multiplied. They count among as many ranks as they were measured with. Between
// two sizes the error follows the bytes; beyond the largest size that was measured it grows with
// them, and below the smallest one it stays. An algorithm that was not measured, or not with
// messages that large or that small, gets the median of those of its collective that were, so that
// it is neither preferred nor avoided. So does a tiered reduction among ranks whose blocks send
// more or fewer `partials` than those of the probe: it is another pattern.
double corrected(double predicted, const std::vector<MeasuredError>& errors, Collective collective,
                 Algorithm algorithm, std::size_t bytes, int ranks, int partials);

}  // namespace trireme
