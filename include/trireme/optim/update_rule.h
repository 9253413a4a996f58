// How optimizers change weights: a rule for each value of optim.name, in a registry.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/ops/adafactor.h"

namespace trireme::optim {

// What rules of whole parameters (UpdateRule::needs_lengths, lines) are told of the one that a
// shard belongs to.
struct WholeParameter {
  std::int64_t elements = 0;  // of the model's parameter
  // (2) fp64: the sums of the squares of its master values and of the gradients that prepare()
  // left.
  Tensor squares;
  // Where a matrix has averages of its lines (LineWork), these hold them, fp32, the mean of the
  // rows' (1), and where the shard's elements lie in the matrix. The first of a box is the shard's
  // `at`.
  Tensor rows, columns, mean;
  struct Box {
    ops::MatrixBox box;
    std::int64_t at;
  };
  std::vector<Box> boxes;
};

// Neighbouring elements of flat memory that are updated alike. All tensors are (n).
struct FlatShard {
  Tensor master;    // fp32, or split: the low 16 bits of values (ops/update.h)
  Tensor gradient;  // fp32
  Tensor weights;   // compute type; the master tensor itself if that is fp32
  bool decay = true;
  const WholeParameter* whole = nullptr;  // for rules of whole parameters
};

// The factor of a step of whole matrices, whose singular values are about 1.
enum class MatrixScale {
  kOriginal,   // sqrt(max(1, rows / columns)): Jordan 2024
  kLikeAdamW,  // 0.2 sqrt(max(rows, columns)): Liu et al., "Muon is scalable for LLM training",
               // 2025; steps are as long as AdamW's usually are
};

// What the keys optim.* say to a rule, which reads those that it has.
struct RuleSettings {
  std::string name = "adamw";  // optim.name
  float rate = 1.0f;           // factor on the step's learning rate
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;   // of shards that decay
  bool coupled_decay = false;  // see trireme/ops/update.h
  float momentum = 0.0f;
  bool nesterov = false;
  MatrixScale scale = MatrixScale::kLikeAdamW;
  DType matrices = DType::kF32;  // in which whole matrices travel and are computed: fp32 or bf16
  float coefficient = 0.001f;    // LARS: of a step over the weights
  // The most by which LAMB multiplies a step, or the root mean square of Adafactor's steps.
  float largest = std::numeric_limits<float>::infinity();
  float share_decay = -0.8f;  // Adafactor: the share of a new square at update t is t to this power
  bool operator==(const RuleSettings&) const = default;

  // The decay of a shard, in one of the two ways.
  float decoupled(const FlatShard& shard) const {
    return shard.decay && !coupled_decay ? weight_decay : 0.0f;
  }
  float coupled(const FlatShard& shard) const {
    return shard.decay && coupled_decay ? weight_decay : 0.0f;
  }
};

// The states of a shard, by name ("exp_avg"). Checkpoints store them. Each is fp32 and has the
// shape of the shard.
using States = std::vector<std::pair<std::string, Tensor>>;

// What a rule updates in a step, one of many.
struct ShardUpdate {
  FlatShard shard;
  const States* states;
};

// What a rule computes from whole matrices before it updates shards. The frame (optimizer.h) calls
// begin() for each shard, brings the directions of each matrix together on one rank, calls whole()
// there, sends the matrix back, and hands update() the direction as the shard's gradient.
class MatrixWork {
 public:
  virtual ~MatrixWork() = default;
  virtual DType type() const = 0;  // of directions and matrices
  // Sets direction (n), which may be the shard's gradient.
  virtual void begin(ops::Context& ctx, const FlatShard& shard, const States& states,
                     const Tensor& direction) const = 0;
  // Changes the matrix (rows, columns), in place.
  virtual void whole(ops::Context& ctx, const Tensor& matrix) const = 0;
  // The floating-point operations of whole().
  virtual double cost(std::int64_t rows, std::int64_t columns) const = 0;
};

// Averages of a matrix's rows and columns, which all ranks of a stage hold whole. Parameters of
// more than two dimensions are matrices of the first one and of the others together.
class LineWork {
 public:
  virtual ~LineWork() = default;
  // sums (2, rows + columns): of the squared gradients in memory (ops::add_squares_of_lines).
  virtual void average(ops::Context& ctx, const Tensor& sums,
                       const WholeParameter& parameter) const = 0;
};
// The names of these averages in checkpoints.
inline constexpr std::string_view kRowAverages = "row_var", kColumnAverages = "col_var";

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The names of the states that it keeps of a shard of a parameter with these extents. They are
  // zero at first.
  virtual std::vector<std::string> states(const Shape& global) const = 0;
  // What the rule does with whole matrices; nullptr: it needs none.
  virtual const MatrixWork* matrices() const { return nullptr; }
  // The averages of a matrix's lines that it keeps; nullptr: none.
  virtual const LineWork* lines(const Shape& /*global*/) const { return nullptr; }
  // Whether update() needs WholeParameter::squares.
  virtual bool needs_lengths() const { return false; }
  // Called before lengths are taken; may change the gradients and states. Gradients of a step that
  // is skipped may be anything.
  virtual void prepare(ops::Context& /*ctx*/, const FlatShard& /*shard*/,
                       const States& /*states*/) const {}
  // Updates the shard and its states by one step, with the values of the context's StepState;
  // changes nothing if that says that the step is skipped.
  virtual void update(ops::Context& ctx, const FlatShard& shard, const States& states) const = 0;
  // Does the same with many shards, which a GPU may take at once.
  virtual void update_all(ops::Context& ctx, std::span<const ShardUpdate> updates) const;
  // Sets the weights that steps go on from, which update() leaves: the master values, but for rules
  // whose RuleKind::averages_weights is true.
  virtual void write_weights(ops::Context& ctx, const FlatShard& shard, const States& states) const;
};

// A line of the registry.
struct RuleKind {
  std::string_view name;  // optim.name
  // What keys have that the user leaves out: optim.lr and the others.
  double learning_rate = 1e-3;
  RuleSettings defaults = {};
  // The rule that is the same with the other way of decay: itself if it takes either, empty if
  // there is none.
  std::string_view with_other_decay = {};
  // What it reads of the keys optim.KEY that not every rule has: others do nothing with it.
  std::vector<std::string_view> keys = {};
  bool counts_updates = false;  // it corrects averages by StepState::updates, from their begin on
  // Its master values are averages, which evaluations and exports have; steps have other weights.
  bool averages_weights = false;
  bool takes_split = false;  // its steps take split master values (ops/update.h)
  bool of_matrices = false;  // parameters that are no inner matrices (nn/parameter.h) get AdamW
  std::unique_ptr<UpdateRule> (*make)(const RuleSettings&) = nullptr;

  bool has(std::string_view key) const;
};

std::span<const RuleKind> rule_kinds();
std::vector<std::string> rule_names();
// Throws InternalError if there is none of that name.
const RuleKind& rule_kind(std::string_view name);
std::unique_ptr<UpdateRule> make_rule(const RuleSettings& settings);
// Whether both keep the same states with the same meaning, so that one may go on with the other's.
bool keep_same_states(const RuleSettings& a, const RuleSettings& b);
bool keeps_states(const RuleSettings& settings);

}  // namespace trireme::optim
