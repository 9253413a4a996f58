// How far predictions are from what topo probe has measured, and what that means for others.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {

struct MeasuredRatio {
  Collective collective;
  Algorithm algorithm;
  std::size_t bytes;  // of the whole buffer
  int ranks;
  double ratio;      // measured over predicted time
  int partials = 0;  // of the probe's ranks (Predictor::partials)
  bool operator==(const MeasuredRatio&) const = default;
};

// Compares the times in the file with predictions by its rates for the ranks of the probe, which
// were on the file's hosts in their order, the same number on each. Returns nothing for other
// numbers of ranks, for algorithms that it does not know, and for those without a closed form.
std::vector<MeasuredRatio> ratios_of(const StoredRates& stored);

// Returns the factor for a prediction, from 1/8 to 8. Ratios count among as many ranks as they were
// measured with. Between two sizes the factor follows the logarithms of both; the largest size that
// was measured stands for all larger ones. An algorithm that was not measured, or not with messages
// that large, gets the median of those of its collective that were, so that it is neither preferred
// nor avoided. So does a tiered reduction among ranks whose blocks send more or fewer `partials`
// than those of the probe: it is another pattern. 1: nothing was measured.
double correction(const std::vector<MeasuredRatio>& ratios, Collective collective,
                  Algorithm algorithm, std::size_t bytes, int ranks, int partials);

}  // namespace trireme
