// How islands meet: what they have learned since the last time goes into weights that are equal on
// all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/parallel/compressed_sum.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme::parallel {

// The outer gradient is the weights of the last meeting less today's, the mean over the islands by
// the targets that each has seen. The outer weights take a step of SGD along it, with Nesterov's
// momentum: Douillard et al., "DiLoCo: Distributed low-communication training of language models",
// 2023. A rate of 1 without momentum makes them the mean of the islands' weights (Lin et al.,
// "Don't use large mini-batches, use local SGD", 2020).
struct MeetingRule {
  float rate = 1.0f;
  float momentum = 0.0f;
  // The blocks of the model are cut into so many runs of neighbours, which meet apart from each
  // other: Douillard et al., "Streaming DiLoCo with overlapping communication", 2025.
  int fragments = 1;
  int bits = 32;  // in which outer gradients travel: see CompressedSum
};

class Meeting {
 public:
  // Collective over `islands`, the ranks of all islands that hold what this one does
  // (Islands::across), and over the island's grid. `step` and `islands` must outlive this object.
  Meeting(ops::Context& ctx, TrainerStep& step, Communicator& islands, const MeetingRule& rule);

  // The outer weights are those of now, which must be the same on all islands; momentum is zero.
  void begin();

  // Collective over the islands and the grid, as are the two below, in one order on all ranks. No
  // step may be queued. Sends what the island has learned of a fragment; the sum may arrive while
  // steps go on. With the last fragment the states become the means of the islands'. `targets`: the
  // island's since the fragment's last meeting. Returns whether it counts: an island whose weights
  // are not finite sends nothing.
  bool start(int fragment, std::int64_t targets);
  // Ends what start() has begun, which must happen before this object ends. Takes the outer step of
  // the fragment and brings its weights back; `mix` is the share of the island's own weights in
  // those that it goes on with. Without an island that counts the outer weights stay.
  void finish(int fragment, float mix = 0.0f);
  // Sends the second half of what travels in few bits, about half way between the two. Does nothing
  // where that has been done.
  void turn(int fragment);
  // Waits until the sum of a fragment under way is here, as checkpoints need it.
  void arrive(int fragment);

  bool under_way(int fragment) const { return at(fragment).under_way; }
  // The targets of the islands that count in a meeting that is under way.
  double targets(int fragment) const { return double{at(fragment).targets}; }
  // A fragment is under way whose sum was written to Outer::arriving, as another start had it.
  void resume(int fragment, double targets);

  // Gives up what is under way of a fragment; the outer weights stay.
  void drop(int fragment) { at(fragment).under_way = false; }

  // The values of the groups become the outer weights, which may have been read anew.
  void take_outer();

  // The values of the groups become the outer weights, and again what they were: for evaluations
  // between steps.
  void exchange();

  // What is kept of the elements of a group's shard besides its values: fp32, (shard_extent()).
  struct Outer {
    const nn::FlatGroup* group;
    Tensor weights;
    Tensor momentum;  // undefined without momentum
    int fragment = 0;
    // The mean of what the islands have learned, of a fragment under way, after arrive(): by part
    // of the group (FlatGroup::parts).
    Tensors arriving;
  };
  // That of each group that trains, in the order of the stage.
  const std::vector<Outer>& outer() const { return outer_; }

  // What few bits have lost (CompressedSum), to be sent with the next outer gradient: of elements
  // of a group's shard, from `begin` on. The copies of a shard divide it among them.
  struct Kept {
    const nn::FlatGroup* group;
    std::int64_t begin;
    Tensor values;
    bool of_sum;  // of the mean, which the islands divide among them, not of the island's own part
  };
  // Nothing with 32 bits.
  std::vector<Kept> kept() const;

 private:
  // A part of a group in a sum. It lies in units of its own, as it lies in the group's: so few bits
  // have a scale for each unit of a parameter, whatever shares its memory here, and the copies of a
  // parameter stay equal.
  struct Piece {
    std::size_t outer;  // of outer_
    FlatRange in_shard, in_sum;
  };
  struct Fragment {
    std::vector<std::size_t> groups;  // of outer_
    std::vector<Piece> pieces;        // of all of them
    Tensor sum;                       // fp32
    Tensor numbers;                   // fp32: the targets, and of the last fragment the states
    float targets = 0.0f;
    bool under_way = false, turned = false, arrived = false;
    std::unique_ptr<CompressedSum> exchange;  // of this copy's part
  };
  Fragment& at(int fragment) { return fragments_.at(static_cast<std::size_t>(fragment)); }
  const Fragment& at(int fragment) const {
    return fragments_.at(static_cast<std::size_t>(fragment));
  }
  std::vector<int> fragments_of_groups(int fragments) const;
  void form_fragments(int fragments);
  bool is_finite(const Tensor& sum);
  Tensor part_of_copy(const Tensor& sum) const;
  Tensors states() const;
  // Adds up targets, and states where the fragment has them.
  void add_up_numbers(Fragment& fragment, float targets);
  void take_step(const Fragment& fragment, float mix);

  ops::Context& ctx_;
  ops::Context outer_ctx_;  // with a StepState of outer steps
  TrainerStep& step_;
  Communicator& islands_;
  Communicator& copies_;  // ranks of the island that hold the same shards
  MeetingRule rule_;
  std::vector<Outer> outer_;
  std::vector<Fragment> fragments_;
  Tensor limbs_, squares_;
};

}  // namespace trireme::parallel
