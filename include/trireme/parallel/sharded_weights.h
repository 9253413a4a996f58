// Brings the shards of a stage's weights together before its blocks use them.
#pragma once

#include <map>
#include <vector>

#include "trireme/nn/flat_group.h"

namespace trireme::parallel {

// Where nothing is sharded, all of this does nothing.
//
// Where whole weights stay here (ZeRO stages 1 and 2), they are gathered when the values of shards
// have changed, all at once, and each is waited for when a block uses it first. Those that are
// frozen stay as they were gathered first.
//
// Otherwise (stage 3) they are gathered for each use. A pass over the stage says beforehand which
// groups it will use in which order. While one use computes, the weights of the next ones are on
// their way. They lie in buffers that are kept for the next uses, so that at most prefetch + 1 uses
// hold memory.
class ShardedWeights {
 public:
  // The groups that a run of blocks uses at the same time.
  using Use = std::vector<nn::FlatGroup*>;

  ShardedWeights() = default;
  // `groups` are all groups of a stage, in the order of the model; `shards` are the ranks of
  // StateLayout::divided.
  ShardedWeights(std::vector<nn::FlatGroup*> groups, Communicator& shards, bool whole_weights,
                 int prefetch);

  // Whether weights are gathered for each use. Then passes are collective over the data dimension.
  bool gathers_for_uses() const { return sharded_ && !whole_weights_; }

  // The values of shards have changed: of all of them, or by a step of training.
  void changed() { gathered_ = frozen_gathered_ = false; }
  void trained() { gathered_ = false; }
  // Collective over the shards. Where whole weights stay here and shards have changed,
  // starts to gather all of them. Call it before passes.
  void refresh(ops::Context& ctx);
  // Waits for what is still on its way (on a GPU the context's stream waits).
  void finish(ops::Context& ctx);

  // A pass: begin_pass, then begin_use and end_use for each of `uses`, in their order. Between the
  // two the weights of the use are valid, in the order of the context's stream. begin_use is
  // collective over the shards.
  void begin_pass(std::vector<Use> uses);
  void begin_use(ops::Context& ctx);
  void end_use();

  // Collective over the shards. Gathers each group once, so that the ranks are connected.
  void connect(ops::Context& ctx);

 private:
  struct Gathered {
    Tensor memory;  // undefined where whole weights stay here
    Work arrives;
  };

  // Starts to bring what the use needs and is not here, in one operation.
  void gather(ops::Context& ctx, Use use);
  Tensor take_buffer(ops::Context& ctx, const nn::FlatGroup& group);
  bool used_soon(const nn::FlatGroup* group) const;

  std::vector<nn::FlatGroup*> groups_;
  Communicator* shards_ = nullptr;
  bool sharded_ = false, whole_weights_ = true, gathered_ = false, frozen_gathered_ = false;
  std::size_t window_ = 1;  // uses that may hold memory
  std::vector<Use> uses_;   // of the pass
  std::size_t at_ = 0;      // the use that computes, or the next one
  std::map<const nn::FlatGroup*, Gathered> held_;
  std::vector<Tensor> free_;  // buffers
};

}  // namespace trireme::parallel
