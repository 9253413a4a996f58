// The optimizer of a stage: update rules on all of its shards.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/flat_group.h"
#include "trireme/optim/rule_choice.h"

namespace trireme::optim {

class WholeMatrices;

class Optimizer {
 public:
  // Collective over the stage's ranks (all axes but the pipeline). `groups` are all groups of the
  // stage, with their memory. The states are zero. Throws ConfigError if the configuration does not
  // fit the parameters.
  Optimizer(const OptimizerConfig& config, ops::Context& ctx, const ProcessGrid& grid,
            const std::vector<nn::FlatGroup*>& groups);
  ~Optimizer();

  // Collective over the stage's ranks where a rule works on whole matrices. Updates every shard by
  // one step, with the values of the context's StepState. Gradients are undefined afterwards.
  void step(ops::Context& ctx);
  // Makes the same communication alone, before the first step.
  void connect(ops::Context& ctx);

  // What one rule updates: neighbouring parts of a group's shard.
  struct Piece {
    const UpdateRule* rule;
    FlatRange elements;  // of the shard's memory; the last piece has its padding too
    FlatShard shard;
    States states;
  };
  // In the order of the memory. A group that is frozen has none.
  std::span<const Piece> pieces(std::size_t group) const { return pieces_.at(group); }
  // The states of elements of a group's shard that belong to one parameter.
  States states(std::size_t group, const nn::FlatGroup::Part& part) const;

 private:
  const UpdateRule& rule_of(const RuleSettings& settings);
  struct Directions {
    std::vector<std::pair<const Piece*, Tensor>> of_pieces;  // in the order of pieces_
    std::map<const nn::Parameter*, Tensor> by_parameter;     // this rank's part
  };
  // For the pieces whose rules work on whole matrices: the gradients' memory, or memory for a step.
  Directions make_directions(ops::Context& ctx) const;

  std::vector<std::pair<RuleSettings, std::unique_ptr<UpdateRule>>> rules_;
  std::vector<nn::FlatGroup*> groups_;
  std::vector<std::vector<Piece>> pieces_;   // by group
  std::unique_ptr<WholeMatrices> matrices_;  // null: there are none
};

}  // namespace trireme::optim
