// The steps of a run from a reader of whole batches.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/tasks/task.h"

namespace trireme::tasks {

// Cuts each batch of `Reader` (next, wait_seconds) into micro-batches of `micro` samples, of the
// size that its make_micro_batch takes.
template <class Reader, class Size>
class ReadSteps final : public StepReader {
 public:
  template <class... Arguments>
  ReadSteps(Size size, std::int64_t micro, Arguments&&... of_reader)
      : size_(size), micro_(micro), reader_(std::forward<Arguments>(of_reader)...) {}

  void read() override {
    batch_ = reader_.next();
    TRIREME_CHECK(batch_.has_value(), "the reader ended before the run");
  }

  std::vector<nn::MicroBatch> micro_batches(ops::Context& ctx) override {
    std::vector<nn::MicroBatch> batches;
    const auto micro = static_cast<std::size_t>(micro_);
    for (std::size_t first = 0; first < batch_->samples.size(); first += micro) {
      batches.push_back(make_micro_batch(ctx, *batch_, size_, first, micro_, true));
    }
    batch_.reset();
    return batches;
  }

  double wait_seconds() const override { return reader_.wait_seconds(); }

 private:
  Size size_;
  std::int64_t micro_;
  Reader reader_;
  decltype(std::declval<Reader&>().next()) batch_;
};

}  // namespace trireme::tasks
