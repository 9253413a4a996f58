// The time that a collective takes on a network, predicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/segments.h"
#include "trireme/topology/network.h"
#include "trireme/topology/simulated_world.h"

namespace trireme {

class RoundShapes;
struct ClosedForm;
struct TierBlocks;

struct Prediction {
  double seconds = 0.0;
  bool simulated = false;  // or else by the closed form
  // The link that carries messages for the largest share of the time, and that share. Empty if
  // there are no links.
  std::string link = {};
  double share = 0.0;
};

// Predicts the times of collectives among the ranks of one communicator.
class Predictor {
 public:
  // The network must outlive the predictor. Algorithms know `blocks` and `worthwhile_bytes`
  // (CommunicatorPlan), as they do in production; nullptr: they know nothing of the ranks' places.
  Predictor(const TreeNetwork& network, const SimulatedCosts& costs,
            std::shared_ptr<const RankBlocks> blocks,
            std::size_t worthwhile_bytes = kWorthwhileBytes);
  ~Predictor();

  int ranks() const { return network_.ranks(); }
  // The partial results of a tiered reduction, in all: the whole subtrees of T(ranks) in each block
  // of each tier. The fewest if ranks are in the order of the fabric.
  int partials() const;

  // Each round takes its latency, the time of its messages at both ends, the bytes on its busiest
  // link, and its additions. Segments overlap until a link or a rank is always busy. Returns
  // nothing for an algorithm without a closed form.
  std::optional<Prediction> closed_form(Collective collective, Algorithm algorithm,
                                        std::size_t bytes);
  // Whether that is the coarse form of a tiered reduction or gather (TierBlocks::sizes).
  bool is_coarse(Collective collective, Algorithm algorithm) const;
  // Whether a tiered reduce-scatter is here an exchange of everyone with everyone, as pairwise is
  // with less ado: where ranks are placed so that no block adds anything up.
  bool is_exchange(Collective collective, Algorithm algorithm) const;
  // Runs the tasks of production in a simulated world. `bytes` is rounded up to whole elements of
  // fp32 for every rank.
  Prediction simulate(Collective collective, Algorithm algorithm, std::size_t bytes);
  // How often a rank waits for others before it can go on with a segment, as the closed form counts
  // it: once in an exchange at once. Without a closed form, it is as many as there are ranks.
  int turns(Collective collective, Algorithm algorithm) const;
  // The messages of all ranks in a segment, as the closed form counts them; ranks^2 without one.
  std::int64_t messages(Collective collective, Algorithm algorithm);

 private:
  std::optional<ClosedForm> form_of(Collective collective, Algorithm algorithm, double bytes) const;
  Prediction described(double seconds, const std::vector<double>& busy) const;

  const TreeNetwork& network_;
  SimulatedCosts costs_;
  std::shared_ptr<const RankBlocks> blocks_;
  std::size_t worthwhile_bytes_;
  std::shared_ptr<const TierBlocks> tiers_, sum_tiers_;  // the latter on the way up of a reduction
  std::unique_ptr<RoundShapes> shapes_;
};

}  // namespace trireme
