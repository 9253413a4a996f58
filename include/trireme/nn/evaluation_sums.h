// What an evaluation adds up.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::nn {

// Numbers of samples whose target had the largest logit, and was among the five largest.
struct CorrectCounts {
  std::int64_t top1 = 0, top5 = 0;
  bool operator==(const CorrectCounts&) const = default;
};

struct EvaluationSums {
  double loss_sum = 0.0;                      // over the targets
  std::int64_t targets = 0;                   // that are not masked
  std::optional<CorrectCounts> correct = {};  // if the micro-batches count them

  double mean_loss() const { return loss_sum / static_cast<double>(targets); }
  double share(std::int64_t count) const {
    return static_cast<double>(count) / static_cast<double>(targets);
  }
};

}  // namespace trireme::nn
