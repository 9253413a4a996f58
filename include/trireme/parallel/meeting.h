// How islands meet: what they have learned since the last time goes into weights that are equal on
// all of them.
#pragma once

#include <cstdint>
#include <vector>

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
  // The share of the island's own weights in those that it goes on with; the rest are the outer
  // ones. 0: all are.
  float mix = 0.0f;
};

class Meeting {
 public:
  // Collective over `islands`, the ranks of all islands that hold what this one does
  // (Islands::across), and over the island's grid. `step` and `islands` must outlive this object.
  Meeting(ops::Context& ctx, TrainerStep& step, Communicator& islands, const MeetingRule& rule);

  // The outer weights are those of now, which must be the same on all islands; momentum is zero.
  void begin();

  // Collective over the islands and the grid, as is finish(), in one order on all ranks. Sends what
  // the island has learned of a fragment; the result may come while steps go on. `targets`: the
  // island's since the fragment's last meeting. Returns whether it counts: an island whose weights
  // are not finite sends nothing. No step may be queued.
  bool start(int fragment, std::int64_t targets);
  // Ends what start() has begun, which must happen before this object ends. Takes the outer step of
  // the fragment and brings its weights back. Without an island that counts
  // the outer weights stay. With the last fragment come the means of the states. Returns the
  // targets of the islands that count. No step may be queued.
  double finish(int fragment);

  // What is kept of the elements of a group's shard besides its values: fp32, (shard_extent()).
  struct Outer {
    const nn::FlatGroup* group;
    Tensor weights;
    Tensor momentum;  // undefined without momentum
  };
  // That of each group that trains, in the order of the stage.
  const std::vector<Outer>& outer() const { return outer_; }

 private:
  struct Fragment {
    std::vector<std::size_t> groups;  // of outer_
    Tensor sum;                       // fp32, padded: each copy's part has whole units
    Tensor numbers;                   // fp32: the targets, and of the last fragment the states
    Work sums, counts;
  };
  std::vector<int> fragments_of_groups(int fragments) const;
  void form_fragments(int fragments);
  bool is_finite(const Tensor& sum);
  Tensor part_of_copy(const Tensor& sum) const;
  std::vector<Tensor> states() const;
  void take_step(const Fragment& fragment, float targets);
  void take_states(const Fragment& fragment, float targets);

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
