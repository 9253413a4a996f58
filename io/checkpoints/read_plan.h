// Which rank reads which part of a checkpoint's file. Every byte is read once, by one rank of the
// world, in long runs. From there the elements are sent to the ranks that want them, a bounded
// number at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/io/checkpoint.h"

namespace trireme {

// A world of `replicas` replicas of `ranks` ranks each. Rank c of every replica wants the same
// elements.
struct ReadWorld {
  int replicas = 1;
  int ranks = 1;
};

struct ReadLimits {
  std::int64_t shortest_run = std::int64_t{64} << 10;  // bytes
  std::int64_t longest_run = std::int64_t{8} << 20;
  std::int64_t round = std::int64_t{64} << 20;  // bytes of the file in flight at one time
};

// The file is read in rounds, in the order of its bytes. In a round each replica reads one run and
// sends the elements to its own ranks. Then the replicas all-gather what each of their ranks wants.
// Rank (round % ranks) of a replica reads its run. So every rank of the world reads once in `ranks`
// rounds, and all ranks may read at the same time, before the first of these rounds.
class ReadPlan {
 public:
  // `tensors` are those that some rank wants. They must outlive the plan.
  ReadPlan(std::vector<const CheckpointTensor*> tensors, const ReadWorld& world,
           const ReadLimits& limits = {});

  std::int64_t rounds() const { return rounds_; }
  const std::vector<const CheckpointTensor*>& tensors() const { return tensors_; }  // by offset
  int reader(std::int64_t round) const { return static_cast<int>(round % world_.ranks); }

  // Contiguous bytes of the file, and their position `at` in the memory of the run.
  struct Read {
    std::int64_t offset = 0, bytes = 0, at = 0;
  };
  // The elements of a tensor that begin in the run, and the byte position `at` of the first one in
  // the run's memory.
  struct Part {
    std::size_t tensor = 0;  // index in tensors()
    FlatRange elements;
    std::int64_t at = 0;
  };
  struct Run {
    std::int64_t bytes = 0;  // size of its memory
    std::vector<Read> reads;
    std::vector<Part> parts;
  };
  // The run of a replica in a round; empty past the end of the file.
  Run run(std::int64_t round, int replica) const;
  // Whether tensors()[tensor] has been read completely after round `round`.
  bool is_read(std::size_t tensor, std::int64_t round) const;

 private:
  // A stretch of the file that is read completely: tensors, and the small gaps between them.
  struct Stretch {
    std::int64_t offset = 0, bytes = 0;
    std::int64_t before = 0;  // bytes of the stretches before it
  };

  ReadWorld world_;
  std::vector<const CheckpointTensor*> tensors_;
  std::vector<std::int64_t> places_;  // by tensor: its offset in the concatenated stretches
  std::vector<Stretch> stretches_;
  std::int64_t bytes_ = 0;  // of all stretches
  std::int64_t run_bytes_ = 0, rounds_ = 0;
};

}  // namespace trireme
