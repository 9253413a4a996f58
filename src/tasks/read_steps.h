// The steps of a run from a reader of whole batches.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/tasks/task.h"

namespace trireme::tasks {

// The number of micro-batches of each step of the plan, by its first.
inline int micro_batches_of(const BatchPlan& plan, std::int64_t micro) {
  const auto samples = plan(0);
  if (!samples) return 1;
  return static_cast<int>((std::ssize(*samples) + micro - 1) / micro);
}

// The plan of a reader whose batches are the micro-batches of the steps of `plan`, `count` of each.
inline BatchPlan plan_by_micro_batches(BatchPlan plan, std::int64_t micro, int count) {
  return [plan = std::move(plan), parts = static_cast<std::uint64_t>(count), micro,
          step = std::vector<std::uint64_t>()](
             std::uint64_t number) mutable -> std::optional<std::vector<std::uint64_t>> {
    const auto part = static_cast<std::int64_t>(number % parts);
    if (part == 0) {
      auto samples = plan(number / parts);
      if (!samples) return std::nullopt;
      step = std::move(*samples);
    }
    const std::int64_t size = std::ssize(step), begin = part * micro;
    TRIREME_CHECK(begin < size && size <= static_cast<std::int64_t>(parts) * micro,
                  "all steps of a plan have equally many micro-batches");
    return std::vector(step.begin() + begin, step.begin() + std::min(size, begin + micro));
  };
}

// Cuts the batches of `Reader` (next, wait_seconds), so many of which are a step, into
// micro-batches of `micro` samples, of the size that its make_micro_batch takes.
template <class Reader, class Size>
class ReadSteps final : public StepReader {
 public:
  template <class... Arguments>
  ReadSteps(Size size, std::int64_t micro, bool training, int batches_of_step,
            Arguments&&... of_reader)
      : size_(size),
        micro_(micro),
        training_(training),
        batches_of_step_(batches_of_step),
        reader_(std::forward<Arguments>(of_reader)...) {}

  void read() override { take(); }

  std::vector<nn::MicroBatch> micro_batches(ops::Context& ctx) override {
    std::vector<nn::MicroBatch> made;
    const auto micro = static_cast<std::size_t>(micro_);
    for (int taken = 1;; ++taken) {
      for (std::size_t first = 0; first < batch_->samples.size(); first += micro) {
        made.push_back(make_micro_batch(ctx, *batch_, size_, first, micro_, training_));
      }
      batch_.reset();
      if (taken == batches_of_step_) return made;
      take();
    }
  }

  double wait_seconds() const override { return reader_.wait_seconds(); }

 private:
  void take() {
    batch_ = reader_.next();
    TRIREME_CHECK(batch_.has_value(), "the reader ended before the run");
  }

  Size size_;
  std::int64_t micro_;
  bool training_;
  int batches_of_step_;
  Reader reader_;
  decltype(std::declval<Reader&>().next()) batch_;
};

}  // namespace trireme::tasks
