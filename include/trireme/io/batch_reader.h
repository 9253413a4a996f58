// Reads batches ahead of their use, on a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "trireme/io/batch_plan.h"
#include "trireme/io/dataset.h"

namespace trireme {

struct BatchReaderOptions {
  std::uint64_t first_step = 0;
  int batches_ahead = 2;  // batches kept ready; at least 1
  bool with_first_key = false;
};

class BatchReader {
 public:
  BatchReader(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
              const BatchReaderOptions& options = {});
  ~BatchReader();  // waits only for the read in progress
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Returns the next step's batch, or nothing after the plan's end. If the thread threw at that
  // step, this call and every later one rethrow it. Only one thread may call it at a time.
  std::optional<TokenBatch> next();

  // The total time that next() has waited for data.
  double wait_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
