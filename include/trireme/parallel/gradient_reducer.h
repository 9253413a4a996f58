// Adds up gradients over the ranks that hold copies of a parameter, group by group, while the
// backward pass goes on.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/ops/update.h"
#include "trireme/parallel/compressed_sum.h"
#include "trireme/parallel/stage.h"
#include "trireme/parallel/tree_sum.h"
#include "trireme/parallel/work_split.h"

namespace trireme::parallel {

// A step's gradients are sums over runs of micro-batches (work_split.h). A group is complete when
// each of its parameters has received its contributions from every micro-batch of a run. Then its
// reduction over the ranks with other data begins, a call or two (state_calls.h); or, where this
// replica has a block of neighbouring runs, it waits as a term of their sum, and the last run's
// completion begins the only reduction. Each phase starts for one group after the other,
// in the order in which the groups were completed, which is the same on all replicas. On GPUs, and
// where blocks make calls over the data dimension themselves, a second phase waits for the next run
// or for the end of the backward pass, because hosts must enter operations in an order that does
// not depend on timing (src/comm/README.md).
//
// Where whole gradients do not stay (FlatGroup::keeps_whole_gradients), a group has memory for them
// from the first contribution of a run to the end of its reduction, and the sum over runs is made
// in shards. When a reduction starts, all but as many as a block has groups must have gone through
// their first phase, and all but twice as many must be over (or all but as many, if there is no
// second phase). So few blocks hold memory, and how many does not depend on timing.
//
// Partial sums of the ranks of a replica that hold a copy (Holders::partial), and of the uses of a
// parameter on one stage that are reduced apart, are added up last, so that the order of sums does
// not depend on how a model is divided among replicas and stages.
//
// In few bits (ReductionOptions::bits) a group is a CompressedSum: its terms travel in the first
// phase and its result in the second one, if more ranks than the owner want it. Its bits depend
// neither on shards nor on communicators. What is kept of it belongs to steps whose gradients are
// taken; it is zero at first.
//
// Each rank of a replica that holds a copy of a parameter reduces it over the data dimension in its
// own communicator, and each replica adds up partial sums in its own. If these communicators do not
// fix the order of sums (NCCL, MPI's own algorithms), or partial sums are rounded, the results may
// differ in the last bits and the copies would drift apart. Then the first replica's partial sums,
// and the first holder's gradients, are broadcast to the others after all reductions.
class GradientReducer : public nn::GradientListener {
 public:
  // Collective over the grid. So many neighbouring blocks of a chunk have their backward at once
  // (RunOptions::blocks).
  GradientReducer(ops::Context& ctx, const Stage& stage, const nn::ReductionOptions& options = {},
                  const WorkSplit& work = {}, int blocks_at_once = 1);

  // Collective over the ranks that hold copies. Makes the calls of a step's reductions once, with
  // gradients of zero and in the order of a backward, so that libraries connect. Where each run is
  // reduced it makes those of one; or of two where whole gradients do not stay, because the second
  // takes memory while the first still holds some. So a step takes no more memory for gradients
  // than there is then.
  void connect();

  // `micro_batches` is this replica's share, at least 1 and a multiple of its runs. Shares may
  // differ between replicas if each has one run. In a dry run there may be fewer micro-batches than
  // runs that are reduced one by one: then so many runs of one micro-batch are made.
  // `keeps` is false where no step is taken along the gradients: what few bits have lost of others
  // is then left alone.
  void begin_step(int micro_batches, bool keeps = true);
  // Sets the group's gradients to zero where a run begins, after the run before has left them. They
  // may have no memory until then.
  void prepare(const nn::FlatGroup& group) override;
  void contributed(const nn::Parameter& parameter) override;
  // Reduces what is left, and waits until all gradients are sums over all runs and ranks (on a GPU
  // the context's stream waits). Throws InternalError if a group is incomplete.
  void finish_step();

  // Whether sums lose something that goes with the next step's.
  bool compresses() const { return compresses_; }
  // Call it after the optimizer, before the loss scale changes: see ops::carry_over.
  void carry_over(const ops::LossScaling& rule);
  // Collective over the grid, between steps. Leaves in the gradients what all ranks have kept of
  // them, added up as gradients are, in fp32.
  void add_up_kept();
  // Collective over the grid, between steps. The gradients of this rank's shard
  // (FlatGroup::gradient_shard) are such sums: every rank that adds to a gradient keeps as much as
  // the others. Changes the gradients.
  void take_kept();

 private:
  // A call with its communicator.
  struct Step {
    Call call;
    Communicator* over = nullptr;
  };
  struct Group {
    nn::FlatGroup* flat = nullptr;
    nn::FlatGroup* of = nullptr;  // its gradients are added to this group's (Stage::UseApart)
    std::vector<Step> of_run{};   // the phases of a reduction
    std::vector<Step> at_end{}, handed_on{};
    std::vector<Step> of_kept{};                  // as of_run, of what few bits have lost
    std::unique_ptr<CompressedSum> compressed{};  // makes the calls of of_run
    // The sum over this replica's runs, where there are several, and where it belongs in other
    // memory than the gradients of a run.
    std::optional<TreeSum> sum{};
    int runs = 0;                        // begun in this step
    int missing = 0;                     // contributions still to come in the last of them
    std::optional<std::size_t> phase{};  // of the reduction that is under way
    std::vector<Work> works{};           // of that phase

    // A reduction without calls has a phase all the same.
    std::size_t last_phase() const { return of_run.empty() ? 0 : of_run.size() - 1; }
  };

  // Begins a step of so many runs of each replica. There may be fewer than runs_ where each is
  // reduced: then the sums are those of a part of the step.
  void begin_runs(int runs, int run_length);
  std::vector<Step> steps_of(std::span<const Call> calls) const;
  // `calls` are those of this group.
  void plan(Group group, const nn::ReductionOptions& options, std::span<const Call> calls);
  // Lets the group's sums be compressed. `plain`: its calls otherwise.
  void compress(Group& group, const nn::ReductionOptions& options, std::span<const Call> plain);
  void share_memory_of_sums();
  // Whether all ranks that hold a copy of a parameter of the group get the same bits by reducing it
  // in their own communicators.
  bool keeps_copies_equal(const Group& group) const;
  // Makes the calls of one run of micro-batches with gradients of zero.
  void rehearse_run();
  void begin_run(Group& group);
  // Gives the group memory for whole gradients, where they do not stay.
  void take_memory(nn::FlatGroup& group);
  void return_memory(nn::FlatGroup& group);
  // Waits until not many hold whole gradients for their reduction besides the one that has started.
  void hold_few(Group& started);
  // Whether sums over ranks are added up, not this rank's terms before their reduction.
  bool adds_after_reduction(const Group& group) const {
    return reduces_each_ || !group.flat->keeps_whole_gradients();
  }
  void start(Group& group, std::size_t phase);
  // Takes the group that entered `phase` first to what follows, once its works are done.
  void move_on(std::size_t phase);
  // Starts the second phase of groups whose first is done.
  void poll();
  // Starts these calls of all groups, and waits for them.
  void make_all(std::vector<Step> Group::*steps);
  void add_uses_apart();
  // Waits until the group's reduction is over. Those that started before it move on, too.
  void settle(const Group& group);

  using WholeGradients = nn::FlatGroup::WholeGradients;

  ops::Context& ctx_;
  const Stage& stage_;
  // The groups of neighbouring blocks whose backward is computed at once, in the order of the
  // model.
  std::vector<std::vector<nn::FlatGroup*>> at_once_;
  int runs_;                               // of each replica
  int runs_of_step_ = 0, run_length_ = 0;  // micro-batches, in this step
  bool reduces_each_;                      // each run, not the sum of this replica's runs
  bool defers_;  // second phases start at the points where something waits for them
  // Gathers results of compressed sums where the data dimension carries terms at the same time.
  std::shared_ptr<Communicator> results_;
  bool compresses_;
  Tensor adding_;      // see CompressedSum::add_up_in
  bool keeps_ = true;  // in this step
  std::vector<Group> groups_;
  std::map<const nn::FlatGroup*, Group*> by_flat_;
  std::vector<Group*> shared_;  // those that several blocks of the stage use
  // The groups that are in each phase, in the order of starting.
  std::array<std::deque<Group*>, 2> under_way_;
  bool phased_ = false;           // a group has two phases
  std::size_t block_groups_ = 1;  // the most of a block
  // Those whose whole gradients have memory until their reduction is over, in the order of
  // starting.
  std::deque<Group*> reducing_;
  // Memory for whole gradients that no group has now, by extent.
  std::map<std::int64_t, std::vector<WholeGradients>> free_;
  bool hands_on_ = false;  // copies are broadcast
};

// Starts a call of a group's gradients over its communicator.
Work start_call(ops::Context& ctx, const nn::FlatGroup& group, const Call& call,
                Communicator& over);

// Collective over the model's ranks (pipeline x tensor), and over those that share a copy of it.
// Sets sum (1) fp64, on every rank, to the sum of the squares of all gradients of the model, each
// counted once. The bits depend on the gradients alone, not on how the model is divided. `limbs`
// (kExactLimbs) int64 is workspace.
void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& limbs,
                              const Tensor& sum);

}  // namespace trireme::parallel
