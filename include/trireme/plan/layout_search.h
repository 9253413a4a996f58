// Which layout of a training is fastest on so many ranks: grid, shards, micro-batch, schedule,
// recomputation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/dry_run.h"
#include "trireme/plan/step_forecast.h"

namespace trireme::plan {

struct Layout {
  GridShape grid;  // its data dimension divided into copies and shards
  int shard_stage = 0;
  int micro = 1;  // samples of a micro-batch
  std::string schedule = "1f1b";
  int chunks = 1;                             // of a stage
  std::string recompute = "none";             // as recompute.mode
  std::optional<int> recomputed_blocks = {};  // as recompute.blocks
  bool sequence_parallel = false;
  // The blocks of each part of the model (StageOptions); empty: by their costs on no device in
  // particular.
  std::vector<int> cut = {};

  bool operator==(const Layout&) const = default;
};

// What may be chosen. What is given is not.
struct LayoutSpace {
  int samples = 1;      // of a step
  int blocks = 1;       // of the model
  int most_tensor = 1;  // tensor ranks share a node
  std::optional<int> data = {}, pipeline = {}, tensor = {};
  std::optional<int> shard_stage = {}, shard_group = {};
  std::vector<int> shard_stages = {0, 1, 2, 3};  // what the other keys allow, if none is given
  std::optional<int> micro = {};
  std::optional<std::string> schedule = {};
  std::optional<int> chunks = {};
  std::optional<std::string> recompute = {};
  std::optional<int> recomputed_blocks = {};  // empty: all; otherwise `recompute` is given too
  std::optional<bool> sequence_parallel = {};
  bool cuts = true;  // whether the stages may be cut by the costs of the device
};

struct PlannedLayout {
  Layout layout;
  double estimate = 0.0;         // seconds of a step, composed of costs of single blocks
  double estimated_bytes = 0.0;  // that a rank holds at most, composed in the same way
  // What full dry runs say.
  StepForecast step = {};
  std::vector<DryRunResult> memory = {};

  double bytes() const;  // of the rank that needs most
};

struct LayoutSearchOptions {
  const DeviceCosts* device = nullptr;
  // The costs of a network on a grid.
  std::function<std::unique_ptr<NetworkCosts>(const GridShape&)> network = {};
  // The dry run of a layout; nothing where the run cannot have it.
  std::function<std::optional<DryRunInput>(const Layout&)> input = {};
  double memory = 0.0;  // bytes of a rank
  int kept = 10;        // layouts that are dry-run whole
};

struct LayoutsFound {
  std::vector<PlannedLayout> best;  // the fastest first; empty: none fits
  std::int64_t tried = 0;           // layouts whose costs were composed
  std::int64_t too_large = 0;       // of them, those that do not fit
  // Where none fits, the one that needs least.
  std::optional<PlannedLayout> smallest = {};
};

// Searches the layouts of one model. It keeps what it has found out about blocks, so that several
// numbers of ranks cost little more than one.
class LayoutSearch {
 public:
  LayoutSearch(LayoutSpace space, LayoutSearchOptions options);
  ~LayoutSearch();

  // Returns the best layouts of so many ranks, of which dry runs say that they fit.
  LayoutsFound find(int ranks);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// All layouts of so many ranks in the space, whether or not the model can have them.
std::vector<Layout> layouts_of(const LayoutSpace& space, int ranks);

// Why the first is faster than the second, in one sentence.
std::string why_faster(const PlannedLayout& first, const PlannedLayout& second);

}  // namespace trireme::plan
