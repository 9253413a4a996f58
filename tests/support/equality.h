// Compares training on a grid with training on one rank, parameter by parameter.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/trainer_step.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"

namespace trireme::testing {

// A copy of the part of a named tensor that is on this rank.
struct LocalPart {
  nn::Placement placement;
  std::vector<float> values;  // local extents, row-major
};
using LocalParts = std::map<std::string, LocalPart>;

// A model of another family than gpt, and its data.
struct OtherModel {
  nn::ModelPlan plan;
  // Returns micro-batch `number` of the data, the same on every rank.
  std::function<nn::MicroBatch(ops::Context&, int number, bool training)> make_batch;
};

struct EqualityCase {
  models::GptConfig model;
  BatchShape batch;
  std::string choices = "";              // what tells `model` apart, in messages
  std::optional<OtherModel> other = {};  // in the place of model and batch
  int micro_batches = 5;                 // per step
  GridShape grid;
  bool whole_weights = true, whole_gradients = true;  // of sharded groups
  int prefetch = 1;
  std::string schedule = "1f1b";
  std::optional<int> chunks{};
  bool sequence_parallel = false;
  DType compute = DType::kF32;
  bool split_masters = false;  // of bf16
  bool block_scaled = false;   // products of blocks in e4m3; with bf16
  parallel::RunOptions runs{};
  parallel::BatchRuns batch_runs{};
  bool separates_uses = true;  // of a tied matrix, where there are batch_runs
  int steps = 10;              // of SGD, and of `rule`
  std::string rule = "adamw";  // optim.name, with its defaults; or "muon by heads"
  NamePatterns frozen = {};    // parameters that do not train; they have no gradients

  std::string to_string() const;
  parallel::WorkSplit work() const {
    return parallel::WorkSplit::even(micro_batches, grid.extent(kDataAxes), batch_runs);
  }
};

struct Observed {
  LocalParts gradients;                              // of the first step's mean loss
  LocalParts weights;                                // after EqualityCase::steps SGD steps
  std::map<std::string, std::vector<float>> states;  // of this rank's stage, after those steps
  std::vector<double> losses;                        // of as many steps of EqualityCase::rule
  LocalParts updated;                                // weights after those
  double evaluation = 0.0;                           // loss sum after those steps
  // After them the largest magnitude in the padding of weights, gradients and the optimizer's
  // state.
  double padding = 0.0;
};

struct Tolerances {
  double gradient, weight, loss;  // relative
  double zero;                    // absolute, of gradients that are zero but for rounding
};
// How much a grid that computes in this type may deviate from one rank that does, or so in e4m3.
Tolerances tolerances_in(DType compute, bool block_scaled = false);

// The optimizer of EqualityCase::rule. "muon by heads" mixes rules: Muon updates the table of
// tokens too, and Lion one feed-forward matrix of each block.
optim::OptimizerConfig optimizer_of_rule(const std::string& rule);

// Collective over the grid. The master weights of this rank's stage.
LocalParts weights_of(ops::Context& ctx, const parallel::Stage& stage);
// The same of the gradients, or of what was written there.
LocalParts gradients_of(ops::Context& ctx, const parallel::Stage& stage);

// Collective over `grid`. Trains on the grid according to the case.
Observed observe(ops::Context& ctx, const ProcessGrid& grid, const EqualityCase& test);

// What goes wrong, on one rank or, with shards, on all.
struct Tampering {
  // Its contribution to this parameter's gradient is multiplied by the factor.
  std::string parameter = {};
  float factor = 1.0f;
  // Once its contribution to this parameter's gradient is complete, it draws with another key.
  std::string other_key_after = {};
  // When the backward of the block with this group begins, its weights are another group's, of the
  // same extent; or they are released.
  std::string gathers_another = {}, releases_early = {};
  // When all contributions to this group's gradients are there, it is reduced once more.
  std::string reduces_twice = {};
};

// All functions are collective over the grid. Computes only the first step's gradients, any number
// of times.
class GradientObserver {
 public:
  GradientObserver(ops::Context& ctx, const ProcessGrid& grid, const EqualityCase& test);

  // Returns what Observed::gradients would be. What goes wrong with a parameter here does so when
  // this rank's own contribution to its gradient is complete, before anything is reduced.
  LocalParts gradients(const Tampering& here = {});
  // Largest magnitude of this rank's own contribution to each parameter's gradient, unmodified, on
  // the scale of gradients().
  const std::map<std::string, double>& contributions() const { return contributions_; }

 private:
  void tamper_with_weights(const nn::FlatGroup& group, const Tampering& here);
  void tamper_with_reduction(const nn::FlatGroup& group, const Tampering& here);

  ops::Context& ctx_;
  const ProcessGrid& grid_;
  EqualityCase test_;
  double scale_;  // from a gradient of the sum of losses to one of their mean
  parallel::Stage stage_;
  parallel::GradientReducer reducer_;
  parallel::PipelineExecutor executor_;
  std::map<std::string, double> contributions_;
};

struct Deviation {
  std::string name;
  double relative = 0.0;  // max |x - reference| / max |reference|, over all ranks
  double absolute = 0.0;
  bool covered = true;  // whether the ranks hold every element, each equally often
};
// Collective over `world`. `reference` holds whole tensors, padded at most behind their last row.
// The result is the same on every rank.
std::vector<Deviation> compare(const LocalParts& reference, const LocalParts& here,
                               Communicator& world);

// Whether a parameter's gradient is zero in exact arithmetic. A constant added to all scores of a
// query changes nothing, so the key bias has no gradient if positions do not enter the attention
// (learned positions, unlike rotary ones), and keys are not normalized.
bool zero_in_exact_arithmetic(const std::string& name, const models::GptConfig& model);

}  // namespace trireme::testing
