// The flat memory of parameters that are reduced, sharded and updated together.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/residence.h"
#include "trireme/nn/sharding.h"
#include "trireme/ops/context.h"
#include "trireme/ops/lengths.h"

namespace trireme::nn {

class Parameter;

// How groups lie on the ranks with the same part of the model and other data. (Copies within a
// replica belong to single parameters: see Holders.)
struct StateLayout {
  Span summed;                // all of them: gradients are added up over these
  Span divided;               // those that share one copy: each holds a shard of it
  Span copied;                // those that hold the same shard
  int shards = 1, shard = 0;  // of a copy, and this rank's

  // The layout of groups that are copied and divided over these axes of the grid.
  static StateLayout along(const ProcessGrid& grid, Axes copied, Axes divided);
};

// What this rank keeps of a group's memory. The optimizer's state and the master values are always
// those of its shard alone.
struct ParameterUse {
  DType compute = DType::kF32;  // the type of the weights
  bool trains = true;           // false: no gradients, as of groups that are frozen
  // Whole weights stay here. Otherwise only the shard's do, and the parameters have weights between
  // gather and release.
  bool whole_weights = true;
  // The weights are no copy of the master values, so they are not the same memory in fp32, either.
  // This is for groups that train.
  bool apart = false;
  // The master values of a group that trains, and those of a stage that does not, are the weights,
  // in bf16, and 16 bits more (SplitFloat). Not with `apart`.
  bool split = false;
};

// How the gradients of a group are added up.
struct ReductionOptions {
  // The type in which gradients travel between replicas. In bf16 each rank's gradients are rounded
  // first, and partial sums wherever they are sent on.
  DType travel = DType::kF32;
  // Fewer than 32: they travel in so many bits, as parallel/compressed_sum.h has it, and travel is
  // fp32.
  int bits = 32;
  // Only this rank's shard of the sums is wanted. The rest of the gradients is then undefined. In
  // fp32 the shard has the same bits as otherwise, where our own algorithms carry it and
  // StateLayout::divided is an aligned block of a power of two of the ranks, or all of them.
  bool to_shard = false;
};

// Parameters of one block that are reduced, sharded and updated together. They lie in flat memory,
// one after the other in their order.
class FlatGroup {
 public:
  FlatGroup(std::string name, std::vector<Parameter*> parameters, const StateLayout& layout = {});

  const std::string& name() const { return name_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const Sharding& sharding() const { return sharding_; }
  bool decay() const;
  bool shared() const;
  bool trains() const;  // false: its parameters are frozen
  std::int64_t elements() const { return sharding_.elements(); }
  std::int64_t extent() const { return sharding_.extent(); }  // in memory, with padding

  // The elements of a parameter that this rank's shard holds.
  struct Part {
    const Parameter* parameter;
    FlatRange elements;  // of the parameter's local memory
    std::int64_t at;     // of the first one in the shard
  };
  // The parts in the order of the memory. Parameters without elements in the shard are left out.
  const std::vector<Part>& parts() const { return parts_; }
  // The number of contributions to the gradients in a micro-batch.
  int uses() const;

  // Allocates the memory. All values are zero. Where the compute type is fp32, the master values
  // are the weights of the shard, but with ParameterUse::apart; with ParameterUse::split they are
  // the weights and more. A frozen group of a stage that trains has none in another type than fp32.
  // `gradients` as take_gradients has them; undefined if the stage or the group does not train.
  // The weights that stay here lie in `weights` where it is given: (extent) for whole ones, or
  // (sharding().shard_extent()) for those of the shard, in the compute type.
  void materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients,
                   const Tensor& weights = {});

  // The gradients that stay here are in this fp32 memory, which is zero then: (extent) for whole
  // ones, or (sharding().shard_extent()) for those of the shard. In the latter case they must be
  // reduced to the shard, and there are whole ones only between hold_gradients and
  // release_gradients. A group for a use of a parameter whose weights another group has
  // (Parameter::first_use) needs this call alone, without materialize.
  void take_gradients(ops::Context& ctx, const Tensor& gradients);
  bool keeps_whole_gradients() const { return !gradient_shard_.defined(); }
  // The whole gradients become zeros, to which operations add. On a GPU those of products alone
  // (ParameterSpec::overwrites) may stay as they are, since Parameter::take_beta has the first
  // product of each overwrite them: a pass less to write them and one less to read them.
  void begin_gradients(ops::Context& ctx);

  // Fills this rank's shard with the initial values of a fresh model, on all threads of the rank.
  // The bits depend on neither the threads nor the shards. Returns the number of random numbers
  // drawn. Adds to `rounded`, where it is given, the names of frozen parameters that got other
  // values, because their type does not have these.
  std::int64_t draw_initial_values(ops::Context& ctx, std::uint64_t seed,
                                   std::set<std::string>* rounded = nullptr) const;

  // The memory of the whole group.
  const Tensor& weights() const { return weights_; }  // (extent), compute type; or undefined
  const Tensor& gradients() const { return gradients_.sums; }  // (extent), fp32; or undefined
  // A parameter's part of a whole flat tensor of the group, in the parameter's local extents.
  Tensor view(const Tensor& flat, const Parameter& parameter) const;

  // The memory of this rank's shard: (sharding().shard_extent()).
  // The master values in fp32; undefined where there are none. With ParameterUse::split it has
  // their low 16 bits (uint16).
  const Tensor& master() const { return master_; }
  bool splits() const { return master_.defined() && use_.split; }
  // The values of its parameters: the master values, or the weights where there are none. Not for a
  // group that splits, whose values are in no single memory.
  const Tensor& values() const;
  // The same in any group: values() itself, or a copy in fp32 as workspace. Elements of the shard.
  Tensor read_values(ops::Context& ctx, const FlatRange& elements) const;
  Tensor read_values(ops::Context& ctx) const {
    return read_values(ctx, {0, sharding_.shard_extent()});
  }
  // Writes fp32 values, of the whole shard, to where they are kept. refresh_weights must follow.
  void write_values(ops::Context& ctx, const Tensor& from) const;
  const Tensor& weight_shard() const { return weight_shard_; }
  Tensor gradient_shard() const;  // a view of gradients() where whole ones stay here
  // A part's elements of a flat tensor of the shard.
  static Tensor view(const Tensor& shard, const Part& part);

  // Converts the master values to the shard's weights. Call it after writing to values() or by
  // write_values(), and then gather, unless one shard is the whole group.
  void refresh_weights(ops::Context& ctx) const;

  // Collective over `shards`, the ranks of StateLayout::divided. Starts to bring all shards of the
  // groups' weights together, in one operation: in weights() where whole weights stay here, and
  // otherwise in `whole[i]` (extent, compute type) for group i. Then the parameters' weights are
  // views of `whole` until release. They are valid once the Work is done.
  static Work gather(ops::Context& ctx, Communicator& shards, std::span<FlatGroup* const> groups,
                     std::span<const Tensor> whole);
  // The parameters have no weights until the next gather. Does nothing where weights stay here.
  void release();

  // The memory of whole gradients, for a group that does not keep it.
  struct WholeGradients {
    Tensor sums;     // (extent), fp32
    Tensor rounded;  // (extent), in the type in which they travel; undefined if that is fp32
  };
  // Collective over the carriers on a GPU, after plan_reduction. The contents are undefined.
  WholeGradients allocate_gradients(ops::Context& ctx) const;
  bool lacks_gradients() const { return !gradients_.sums.defined(); }
  // Lets the gradients be whole, in memory of a group of the same extent, until release_gradients
  // returns that memory.
  void hold_gradients(WholeGradients whole);
  WholeGradients release_gradients();

  // The reduction of the gradients is made of calls (parallel/state_calls.h). Those over the ranks
  // with other data come first, between begin_reduction and finish_reduction, and change what
  // travelling() returns; then those over the ranks of a replica, of what reduced() returns.
  // Collective over `carriers`, which will make the first ones, on a GPU if gradients travel
  // rounded and whole ones stay here.
  void plan_reduction(ops::Context& ctx, const ReductionOptions& options,
                      const std::vector<Communicator*>& carriers);
  void begin_reduction(ops::Context& ctx) const;
  // Elements of the memory, in the type in which they travel.
  Tensor travelling(const FlatRange& elements) const;
  bool rounds() const { return travel_ != DType::kF32; }
  // Call it when the last of those calls is done.
  void finish_reduction(ops::Context& ctx) const;
  // Returns where finish_reduction leaves the sums, with padding: all gradients, or the shard's
  // part of whole gradients.
  Tensor sums_of_run() const;
  // Where the sums over all runs of micro-batches belong. Where whole gradients stay here, that is
  // sums_of_run().
  Tensor reduced() const { return to_shard_ ? gradient_shard() : gradients_.sums; }
  // Elements of the memory, in reduced().
  Tensor reduced(const FlatRange& elements) const;
  // Adds those gradients in the shard that this rank counts to `parts`, for
  // ops::add_sum_of_squares. The ranks that differ in `among` alone (those of a replica and of
  // StateLayout::divided) together count each element of the model once, and neither stages nor
  // shards change a bit of the sum.
  void add_counted(const GridShape& grid, int place, Axes among,
                   std::vector<ops::SquaresPart>& parts) const;

 private:
  std::int64_t draw(ops::Context& ctx, const Part& part, std::uint64_t seed,
                    std::set<std::string>* rounded) const;
  bool write_piece(ops::Context& ctx, std::span<const float> values, std::int64_t at) const;
  // Lets the weights be in `whole` unless they stay here. Returns what an all-gather then brings.
  Gather begin_gather(const Tensor& whole);
  bool keeps_whole_weights() const { return use_.whole_weights || sharding_.count() == 1; }
  void set_weights(const Tensor& whole);
  void set_gradients(WholeGradients whole);
  Tensor allocate_carried_by_reducers(ops::Context& ctx, DType dtype) const;

  std::string name_;
  std::vector<Parameter*> parameters_;
  Sharding sharding_;
  std::vector<Part> parts_;
  ParameterUse use_;
  bool to_shard_ = false;
  DType travel_ = DType::kF32;  // of gradients between ranks
  std::vector<Communicator*> carriers_;
  Tensor weights_, weight_shard_, master_;
  WholeGradients gradients_;
  Tensor gradient_shard_;  // undefined where whole gradients stay here
};

// Returns what the rank at `place` writes into checkpoints, by group: parts of its shards. The
// ranks that hold copies divide their elements evenly, so all of them write: first those of a
// replica that hold copies of a parameter, then those of StateLayout::copied, all groups together.
// Shares are cut at multiples of kWriteUnit elements, because file systems are slow with short
// writes. `groups` are all groups of a stage, of one layout.
inline constexpr std::int64_t kWriteUnit = std::int64_t{1} << 16;
std::vector<std::vector<FlatGroup::Part>> written_parts(std::span<FlatGroup* const> groups,
                                                        const GridShape& grid, int place);

}  // namespace trireme::nn
