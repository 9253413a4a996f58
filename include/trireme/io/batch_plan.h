// Which samples are read when.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace trireme {

// Returns the samples that this process wants at a step, or nothing when there are no more steps.
// Called by one thread at a time: on a reader's threads with rising steps, and before that, where
// the first step says how large all are, with step 0 by who makes the reader.
using BatchPlan = std::function<std::optional<std::vector<std::uint64_t>>(std::uint64_t step)>;

struct ReadAheadOptions {
  std::uint64_t first_step = 0;
  int batches_ahead = 2;  // batches kept ready; at least 1
  int threads = 1;        // each reads a batch; at least 1
};

}  // namespace trireme
