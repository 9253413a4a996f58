// What one rank holds of a model: for each chunk some neighbouring blocks, each split over the
// tensor dimension.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/nn/block_run.h"
#include "trireme/nn/trained.h"
#include "trireme/parallel/pipeline_layout.h"
#include "trireme/parallel/sharded_weights.h"
#include "trireme/parallel/state_calls.h"

namespace trireme::parallel {

struct StageOptions {
  bool sequence_parallel = false;
  DType compute = DType::kF32;
  bool block_scaled = false;           // nn::BuildContext::block_scaled; needs bf16
  bool trains = true;                  // false for evaluation and generation: no gradients
  nn::TrainedParameters trained = {};  // of a stage that trains
  // The seed of the initial values. Empty: weights are zero until they are read from a checkpoint
  // or drawn by draw_initial_values.
  std::optional<std::uint64_t> seed = 1;
  // Whether the gradients of a shared parameter's uses are reduced apart and then added up also
  // where blocks of one stage share it. Where different stages hold it they always are.
  bool separates_uses = false;
  // How the model's parts lie on the stages.
  int chunks = 1;
  PipelineLayout::Order order = PipelineLayout::Order::kLoop;
  std::vector<int> cut = {};  // the blocks of each part (parts_of_model); empty: by their cost
  // Whether each rank along Axis::kShard holds whole weights all the time. Otherwise it gathers
  // them for each run of blocks, `prefetch` runs ahead. It matters where the axis has several
  // ranks.
  bool whole_weights = true;
  int prefetch = 1;
  // Whether each rank along Axis::kShard holds whole gradients all the time. Otherwise it holds
  // those of a group from the first contribution in a run of micro-batches to the end of the
  // group's reduction. It matters where the axis has several ranks.
  bool whole_gradients = true;
  bool weights_apart = false;  // see nn::ParameterUse::apart
  bool split_masters = false;  // see nn::ParameterUse::split
};

class Stage {
 public:
  // Collective over the grid. Builds this rank's blocks with their initial values, which depend on
  // the seed alone. Throws ConfigError if the model does not fit the grid.
  Stage(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
        const StageOptions& options);

  const PipelineLayout& layout() const { return layout_; }
  // Part p of the model has blocks [bounds[p], bounds[p + 1]) of the plan.
  const std::vector<int>& bounds() const { return bounds_; }
  // The first block of the plan that has a parameter that trains: blocks before it have no
  // backward.
  int first_trained() const { return options_.trained.first_block(); }
  // The first part of the model that has a backward.
  int first_trained_part() const;
  // The number of a chunk's first block in the plan.
  int first_block(int chunk) const;
  // Whether each micro-batch makes calls that are collective over the data dimension: those of
  // blocks of some stage (BlockPlan::collective), or gathers of weights.
  bool collective() const { return collective_ || weights_.gathers_for_uses(); }
  // Whether what replicas compute at the same time belongs together on some stage
  // (BlockPlan::together).
  bool together() const { return together_; }
  // The data dimension, for the calls of such blocks of this stage; null if it has none.
  Communicator* together_comm() const;
  // The communicator of a span of this stage's residences.
  Communicator& comm(const Span& span) const;
  // The communicators that this stage and its blocks use besides those of the grid, in an order in
  // which no two ranks that share several of them disagree.
  std::vector<Communicator*> communicators() const;
  // Whether some ranks of the data dimension share one copy of the model's state. Then gradients
  // are wanted for this rank's shard alone.
  bool sharded() const { return grid_.extent(Axis::kShard) > 1; }
  // Whether this stage holds the model's last part.
  bool last() const { return layout_.last_stage() == grid_.index(Axis::kPipeline); }
  // Whether this rank tells of its replica what all ranks of the last stage know: losses, counts,
  // outputs. One rank of each replica does.
  bool speaks_for_replica() const {
    return last() && grid_.index(kModelAxes.without(Axis::kPipeline)) == 0;
  }

  // `rounded` as FlatGroup::draw_initial_values has it.
  void draw_initial_values(ops::Context& ctx, std::uint64_t seed,
                           std::set<std::string>* rounded = nullptr);
  // The number of random numbers that this rank has drawn for initial values so far.
  std::int64_t drawn() const { return drawn_; }

  // The blocks of a chunk, in the order of the model.
  nn::BlockSpan blocks(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }

  // Converts the master values of all shards to weights. Call it after writing to them.
  void refresh_weights(ops::Context& ctx);
  // What the blocks' weights are gathered by. (Gathering changes no value.)
  ShardedWeights& weights() const { return weights_; }
  // The groups whose weights blocks [begin, end) of a chunk use.
  ShardedWeights::Use used_by(int chunk, std::size_t begin, std::size_t end) const;

  // The tensors that pass from part `part` of the model to the next one for a micro-batch of
  // batch x length positions. All of them have a type.
  std::vector<nn::BoundaryTensor> boundary(int part, std::int64_t batch, std::int64_t length) const;
  // The tensors that this stage's blocks take and return, each shape and type once.
  // With sequence parallelism their rows are divided over the tensor ranks; here they are whole.
  std::vector<nn::BoundaryTensor> whole_boundaries(std::int64_t batch, std::int64_t length) const;

  const ProcessGrid& grid() const { return grid_; }
  const StageOptions& options() const { return options_; }
  // The stream of the context that the stage was built with. All use of the parameters is in its
  // order.
  const Stream& stream() const { return stream_; }
  // The groups of all blocks of this stage, in block order.
  const std::vector<nn::FlatGroup*>& groups() const { return groups_; }
  // Those whose parameters train, in this order.
  std::vector<nn::FlatGroup*> trained_groups() const;
  std::vector<nn::Parameter*> parameters() const;
  // Tensors without gradient of all blocks of this stage, in block order.
  nn::StageStates& states() { return states_; }
  const nn::StageStates& states() const { return states_; }
  // Gradients of further uses of a parameter of groups(), with StageOptions::separates_uses.
  struct UseApart {
    nn::FlatGroup* gradients;
    nn::FlatGroup* of;  // one of groups(), of the same layout
  };
  const std::vector<UseApart>& uses_apart() const { return uses_apart_; }
  // Where the parameters of groups() and then of uses_apart() are, in this order.
  std::vector<ResidentGroup> residences() const;
  // Where states() are, as one tensor.
  ResidentGroup residence_of_states() const;

 private:
  using Boundary = decltype(nn::BlockPlan::boundary);
  std::vector<nn::BoundaryTensor> boundary_of(const Boundary& boundary, std::int64_t batch,
                                              std::int64_t length,
                                              const nn::TensorParallel& parallel) const;
  // The steps of the constructor. Collective over the stages that share a parameter: lets the
  // blocks that are built next know who holds it.
  void tie_stages(const nn::ModelPlan& plan, nn::BuildContext& build) const;
  void build_blocks(const nn::ModelPlan& plan, nn::BuildContext& build);
  // Returns the groups of a block's own parameters.
  ShardedWeights::Use form_groups(nn::Block& block, const std::string& name);
  void materialize_groups(ops::Context& ctx);
  // What adds gradients up over the data dimension.
  std::vector<Communicator*> reducers() const;
  // The elements of a group's gradients that stay here.
  std::int64_t gradients_kept(const nn::FlatGroup& group) const;
  // Collective over the data dimension and the stages that share a parameter. Allocates the
  // gradients of the groups that stay here and returns them in the order of groups_. They are
  // undefined if the stage or the group does not train.
  Tensors allocate_gradients(ops::Context& ctx) const;
  // Collective over the shards. Allocates the weights of the groups that stay here and returns them
  // in the order of groups_. They are undefined where nothing is sharded.
  Tensors allocate_weights(ops::Context& ctx) const;

  const ProcessGrid& grid_;
  StageOptions options_;
  Stream stream_;
  std::int64_t drawn_ = 0;
  PipelineLayout layout_;
  bool collective_, together_;
  std::vector<int> bounds_;
  std::vector<Boundary> boundaries_;  // by block of the plan
  std::vector<std::shared_ptr<Communicator>> communicators_;
  std::vector<std::vector<std::unique_ptr<nn::Block>>> chunks_;
  std::vector<std::vector<ShardedWeights::Use>> used_;  // by chunk and block
  std::vector<nn::FlatGroup*> groups_;
  std::vector<UseApart> uses_apart_;
  nn::StageStates states_;
  mutable ShardedWeights weights_;
};

}  // namespace trireme::parallel
