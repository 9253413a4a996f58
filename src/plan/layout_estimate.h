// The costs of a layout, composed of those of single blocks. They rank layouts; what is told of a
// layout comes from dry runs of it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/plan/layout_search.h"

namespace trireme::plan {

struct LayoutCost {
  double seconds = 0.0;
  double bytes = 0.0;
  bool known = false;  // false: the run cannot have that layout
};

class LayoutEstimate {
 public:
  explicit LayoutEstimate(const LayoutSearchOptions& options) : options_(options) {}

  LayoutCost cost(const Layout& layout, int samples);
  // Returns the cut of the model for stages of this device; empty where blocks were not costed one
  // by one, or a stage has several parts.
  std::vector<int> cut(const Layout& layout);

 private:
  // What one block, or what one end of the model besides, costs in a micro-batch on a tensor rank.
  struct Cost {
    double forward = 0.0, backward = 0.0;  // seconds, waits for tensor ranks included
    double rest = 0.0;                     // seconds of a step beside its micro-batches
    double parameters = 0.0, gradients = 0.0, optimizer = 0.0, activations = 0.0, workspace = 0.0;
    double sent = 0.0;  // bytes of a micro-batch to the next stage
  };
  struct Blocks {
    bool known = false;
    bool split = false;                     // StageOptions::split_masters
    int before = 0, middle = 0, after = 0;  // blocks of the model
    Cost block, first, last;
    double transient = 0.0;  // activations that do not stay
  };
  // What decides the costs of blocks.
  // Tensor ranks, micro, recomputation, sequence parallelism, whether weight gradients wait.
  using Key = std::tuple<int, int, std::string, bool, bool>;

  // The costs of blocks on stages that recompute as many as the layout says: the means of those
  // that are recomputed and those that keep all. The first stage has some before the middle ones.
  Blocks blocks_of(const Layout& layout, bool on_first_stage);
  // The same where all are recomputed, whatever their number.
  const Blocks& measured(const Layout& layout);
  Blocks measure(const Layout& layout);
  std::optional<DryRunInput> measured_input(const Layout& layout, Blocks& made) const;
  Cost cost_of(const DryRunResult& stage, NetworkCosts& network, double launch) const;
  static Cost beyond(const Cost& more, const Cost& fewer);
  static Cost between(const Cost& kept, const Cost& recomputed, double share);
  NetworkCosts& network_of(const GridShape& grid);
  double step_seconds(const Layout& layout, const Blocks& blocks, int micro_batches);
  double rank_bytes(const Layout& layout, const Blocks& blocks, int micro_batches) const;
  double exposed_by_data(const Layout& layout, const Blocks& blocks, int micro_batches,
                         double backward);

  const LayoutSearchOptions& options_;
  std::map<Key, Blocks> blocks_;
  std::map<std::string, std::unique_ptr<NetworkCosts>> networks_;
};

}  // namespace trireme::plan
