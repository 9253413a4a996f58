// Who reads which part of a checkpoint's file. Every byte is read once, by one rank of the world,
// in long runs, and its elements travel from there to the ranks that want them, a bounded number at
// a time.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/io/checkpoint.h"

namespace trireme {

// `replicas` times the same `ranks` ranks: rank c of every replica wants the same elements.
struct ReadWorld {
  int replicas = 1;
  int ranks = 1;
};

struct ReadLimits {
  std::int64_t shortest_run = std::int64_t{64} << 10;  // bytes
  std::int64_t longest_run = std::int64_t{8} << 20;
  std::int64_t round = std::int64_t{64} << 20;  // bytes of the file that travel at one time
};

// The file is read in rounds, in the order of its bytes. Of a round each replica reads one run,
// and hands the elements to its own ranks; then the replicas gather what each of their ranks wants.
// The run of a replica is read by rank (round % ranks), so that in as many rounds as a replica has
// ranks every rank of the world reads once: they may do so all together, before the first of these
// rounds.
class ReadPlan {
 public:
  // `tensors`: those that some rank wants, which outlive the plan.
  ReadPlan(std::vector<const CheckpointTensor*> tensors, const ReadWorld& world,
           const ReadLimits& limits = {});

  std::int64_t rounds() const { return rounds_; }
  const std::vector<const CheckpointTensor*>& tensors() const { return tensors_; }  // by offset
  int reader(std::int64_t round) const { return static_cast<int>(round % world_.ranks); }

  // Consecutive bytes of the file, and where they go in the memory of the run.
  struct Read {
    std::int64_t offset = 0, bytes = 0, at = 0;
  };
  // Elements of a tensor that begin in the run, and where the first one lies in its memory.
  struct Part {
    std::size_t tensor = 0;  // of tensors()
    FlatRange elements;
    std::int64_t at = 0;
  };
  struct Run {
    std::int64_t bytes = 0;  // of memory
    std::vector<Read> reads;
    std::vector<Part> parts;
  };
  // Empty past the end of the file.
  Run run(std::int64_t round, int replica) const;
  // Where tensors()[tensor] has been read after round `round`.
  bool is_read(std::size_t tensor, std::int64_t round) const;

 private:
  // A stretch of the file that is read whole: tensors, and the small gaps between them.
  struct Stretch {
    std::int64_t offset = 0, bytes = 0;
    std::int64_t before = 0;  // bytes of the stretches before it
  };

  ReadWorld world_;
  std::vector<const CheckpointTensor*> tensors_;
  std::vector<std::int64_t> places_;  // of the tensors, counted in bytes of the stretches
  std::vector<Stretch> stretches_;
  std::int64_t bytes_ = 0;  // of all stretches
  std::int64_t run_bytes_ = 0, rounds_ = 0;
};

}  // namespace trireme
