// Reads batches ahead of their use on a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/io/dataset.h"

namespace trireme {

// The samples that this process wants at a step; nothing: there are no more steps. Called on the
// reader's thread, with rising steps.
using BatchPlan = std::function<std::optional<std::vector<std::uint64_t>>(std::uint64_t step)>;

struct BatchReaderOptions {
  std::uint64_t first_step = 0;
  int batches_ahead = 2;  // kept ready
  bool with_first_key = false;
};

class BatchReader {
 public:
  BatchReader(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
              const BatchReaderOptions& options = {});
  ~BatchReader();  // waits for the read that is under way, no longer
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // The next step's batch; nothing after the plan's end. What the thread threw at that step is
  // thrown here, again on every later call. For one thread at a time.
  std::optional<TokenBatch> next();

  // How long next() has waited for data, in total.
  double wait_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
