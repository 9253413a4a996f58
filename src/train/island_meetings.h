// When the islands of a run meet, and what checkpoints keep of that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.h"
#include "trireme/parallel/meeting.h"

#include "train/prepared_run.h"

namespace trireme {

// A run without meetings has nothing of this: all of it does nothing.
class IslandMeetings {
 public:
  // `run` must outlive this object.
  explicit IslandMeetings(PreparedRun& run);

  // Collective over the grid. What the islands go on from is known: `step` steps are done. `fresh`:
  // the outer weights are those of now; otherwise restore() has read them.
  void begin(std::int64_t step, bool fresh);
  // The island has seen so many targets in a step.
  void seen(std::int64_t targets);
  // Whether something is to be done between this step and the next.
  bool due(std::int64_t step) const;
  // Collective over the world, between the steps: does it. Returns lines for the user.
  std::vector<std::string> after(std::int64_t step);

  // Collective over the grid. Evaluations between the two have the outer weights.
  void show();
  void hide();

  // Collective over the world. Turns what an island alone would write into a checkpoint into what
  // this rank writes, and adds to the attributes what is needed to go on.
  void add_to(std::vector<TensorSlice>& slices, CheckpointInfo& info);
  // The checkpoint as this rank's island reads it. Of a run with as many islands it has what was
  // the island's own; otherwise the outer weights, and all else of the first island.
  Checkpoint of_island(const Checkpoint& checkpoint) const;
  // Collective over the world, when `slices` were read from of_island(checkpoint). Where there were
  // other islands the optimizer's state becomes the mean of theirs. Reads the outer state. Returns
  // lines for the user.
  std::vector<std::string> restore(const Checkpoint& checkpoint,
                                   std::span<const TensorSlice> slices);

 private:
  bool joined() const { return meeting_ && step_ < first_; }
  bool keeps_own(const CheckpointInfo& info) const;
  bool starts(int fragment, std::int64_t step) const;
  bool turns(std::int64_t ends, std::int64_t step) const;
  void start(int fragment, std::int64_t step, std::vector<std::string>& lines);
  std::string words_on_lost(std::int64_t step, bool counts) const;
  void take_means(const Checkpoint& checkpoint, int islands, std::span<const TensorSlice> slices);
  void read_outer(const Checkpoint& checkpoint, std::vector<std::string>& lines);
  void read_kept(const Checkpoint& checkpoint, bool as_many, std::vector<std::string>& lines);

  PreparedRun& run_;
  std::int64_t every_ = 0, first_ = 0, delay_ = 0;
  std::optional<parallel::Meeting> meeting_;
  std::vector<std::int64_t> targets_;              // by fragment: of this island since it met
  std::vector<std::optional<std::int64_t>> ends_;  // by fragment: after which step, if under way
  std::int64_t step_ = 0;                          // steps done
  bool equal_ = false;                             // the islands have the outer weights
};

// How many islands wrote a checkpoint; 1: it was a run without islands.
int islands_of(const CheckpointInfo& info);

}  // namespace trireme
