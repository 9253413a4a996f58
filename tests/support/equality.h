// Compares training on a grid with training on one rank, parameter by parameter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/models/gpt.h"
#include "trireme/parallel/trainer_step.h"

#include "support/batches.h"

namespace trireme::testing {

// The part of a named tensor that lies on this rank, copied.
struct LocalPart {
  nn::Placement placement;
  std::vector<float> values;  // local extents, row-major
};
using LocalParts = std::map<std::string, LocalPart>;

struct EqualityCase {
  models::GptConfig model;
  BatchShape batch;
  int micro_batches = 5;  // of a step
  GridShape grid;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  DType compute = DType::kF32;

  std::string to_string() const;
};

struct Observed {
  LocalParts gradients;        // of the first step's mean loss
  LocalParts weights;          // after ten SGD steps
  std::vector<double> losses;  // of ten AdamW steps
  double evaluation = 0.0;     // loss sum after those
};

// Trains as the case says on `grid`. Collective over it.
Observed observe(ops::Context& ctx, const ProcessGrid& grid, const EqualityCase& test);

// One rank's contribution to one parameter's gradient, made wrong.
struct Tampering {
  std::string parameter;
  float factor = 1.0f;
};

// The first step's gradients alone, as often as wanted. Collective over the grid throughout.
class GradientObserver {
 public:
  GradientObserver(ops::Context& ctx, const ProcessGrid& grid, const EqualityCase& test);

  // As Observed::gradients. What this rank alone has added to the named parameter's gradient is
  // multiplied by the factor after its last contribution and before anything is reduced.
  LocalParts gradients(const Tampering& here = {});
  // Largest magnitude of what this rank alone has added to each parameter's gradient, untampered,
  // in the measure of gradients().
  const std::map<std::string, double>& contributions() const { return contributions_; }

 private:
  ops::Context& ctx_;
  const ProcessGrid& grid_;
  EqualityCase test_;
  double scale_;  // of a gradient of the sum of losses to that of their mean
  parallel::Stage stage_;
  parallel::GradientReducer reducer_;
  parallel::PipelineExecutor executor_;
  std::map<std::string, double> contributions_;
};

struct Deviation {
  std::string name;
  double relative = 0.0;  // max |x - reference| / max |reference|, over all ranks
  double absolute = 0.0;
  bool covered = true;  // whether the ranks hold every element, copies equally often
};
// `reference` holds whole tensors. The result is the same on every rank. Collective over `world`.
std::vector<Deviation> compare(const LocalParts& reference, const LocalParts& here,
                               Communicator& world);

// Gradients that are zero in exact arithmetic: a constant added to all of a query's scores changes
// nothing, so with positions outside the attention the key bias has none.
bool zero_in_exact_arithmetic(const std::string& name, const models::GptConfig& model);

}  // namespace trireme::testing
