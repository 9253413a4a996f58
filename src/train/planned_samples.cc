#include "train/planned_samples.h"

#include <optional>
#include <utility>
#include <vector>

namespace trireme {

BatchPlan planned_samples(const parallel::WorkSplit& work, int replica, StepSamples samples) {
  return [all = std::move(samples), mine = work.of(replica)](
             std::uint64_t of_step) -> std::optional<std::vector<std::uint64_t>> {
    const auto number = static_cast<std::int64_t>(of_step);
    if (number >= all.steps) return std::nullopt;
    std::vector<std::uint64_t> read;
    for (const parallel::Micro& one : mine) {
      const std::int64_t first = number * all.of_step + one.number * all.micro;
      for (std::int64_t i = 0; i < all.micro; ++i) {
        read.push_back(static_cast<std::uint64_t>(all.place(first + i)));
      }
    }
    return read;
  };
}

}  // namespace trireme
