// The optimizer of a stage: update rules on all of its shards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/flat_group.h"
#include "trireme/optim/rule_choice.h"

namespace trireme::optim {

// The name of the average of the weights among a parameter's states.
inline constexpr std::string_view kWeightAverage = "average";

class WholeMatrices;
class WholeParameters;

class Optimizer {
 public:
  // Collective over the stage's ranks (all axes but the pipeline). `groups` are all groups of the
  // stage, with their memory. The states are zero. Throws ConfigError if the configuration does not
  // fit the parameters.
  Optimizer(const OptimizerConfig& config, ops::Context& ctx, const ProcessGrid& grid,
            const std::vector<nn::FlatGroup*>& groups);
  ~Optimizer();

  // Collective over the stage's ranks where a rule works on whole matrices or parameters. Updates
  // every shard by one step, with the values of the context's StepState. Gradients are undefined
  // afterwards.
  void step(ops::Context& ctx);
  // Makes the same communication alone, before the first step.
  void connect(ops::Context& ctx);

  // Lets averages of the weights, where there are any, begin with the master values: those of
  // parameters for which `of` holds.
  void begin_averages(ops::Context& ctx,
                      const std::function<bool(const std::string& parameter)>& of) const;
  // Writes the weights of the shards, of which whole ones are then to be gathered: those that steps
  // go on from, or with `averaged` (OptimizerConfig::weights_apart) those of evaluations.
  void write_weights(ops::Context& ctx, bool averaged) const;

  // What one rule updates: neighbouring parts of a group's shard.
  struct Piece {
    const UpdateRule* rule;
    const nn::Parameter* first;  // the only one of a rule that works on whole parameters
    FlatRange elements;          // of the shard's memory; the last piece has its padding too
    FlatShard shard;
    States states;  // of the rule, then the average of the weights if there is one
  };
  // The pieces of a group, in the order of the memory. A group that is frozen has none.
  std::span<const Piece> pieces(std::size_t group) const { return pieces_.at(group); }
  // The states of elements of a group's shard that belong to one parameter. An average of the
  // weights is among them.
  States states(std::size_t group, const nn::FlatGroup::Part& part) const;

  // A state of a parameter that every rank of the stage holds whole (LineWork).
  struct WholeState {
    const nn::Parameter* parameter;
    std::string_view name;
    Tensor values;  // fp32
  };
  std::vector<WholeState> whole_states() const;

 private:
  const UpdateRule& rule_of(const RuleSettings& settings);
  void make_pieces(const OptimizerConfig& config, ops::Context& ctx, const nn::FlatGroup& group,
                   std::vector<Piece>& pieces);
  void average_weights(ops::Context& ctx) const;
  struct Directions {
    std::vector<std::pair<const Piece*, Tensor>> of_pieces;  // in the order of pieces_
    std::map<const nn::Parameter*, Tensor> by_parameter;     // this rank's part
  };
  // Returns the directions of the pieces whose rules work on whole matrices: in the gradients'
  // memory, or in memory for a step.
  Directions make_directions(ops::Context& ctx) const;
  void update_shards(ops::Context& ctx, const Directions& directions) const;

  std::optional<ops::WeightAverage> average_;
  std::vector<std::pair<RuleSettings, std::unique_ptr<UpdateRule>>> rules_;
  std::vector<nn::FlatGroup*> groups_;
  std::vector<std::vector<Piece>> pieces_;   // by group
  std::unique_ptr<WholeMatrices> matrices_;  // null: there are none
  std::unique_ptr<WholeParameters> whole_;   // null: no rule works on whole parameters
};

}  // namespace trireme::optim
