#include "parallel/step_capture.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/copy.h"

namespace trireme::parallel {
namespace {

// The tensors of a micro-batch, including undefined ones.
template <class Batch>
auto tensors_of(Batch& batch) {
  std::vector tensors = {&batch.samples, &batch.loss_sum, &batch.correct};
  for (auto& field : batch.fields) tensors.push_back(&field.tensor);
  return tensors;
}

bool same_names(const nn::Fields& a, const nn::Fields& b) {
  return std::ranges::equal(a, b, {}, &nn::Field::name, &nn::Field::name);
}

std::string without_capture(const std::string& why) {
  return "cuda.graphs: steps are queued as they are, not captured, because " + why;
}

}  // namespace

StepCapture::StepCapture(ops::Context& ctx, const ProcessGrid& grid, bool wanted)
    : ctx_(ctx), grid_(grid) {
  if (!wanted) return;
  const std::string why =
      ctx.cuda ? grid.runtime().why_no_capture() : "a CPU has nothing to capture";
  if (!why.empty()) {
    news_ = without_capture(why);
    return;
  }
  stage_ = Stage::kFirst;
  graph_.emplace(ctx.cuda, ctx.stream, ctx.allocator);
}

StepCapture::Batches StepCapture::run(Batches mine, std::int64_t step,
                                      const std::function<void(Batches)>& work) {
  if (stage_ == Stage::kPlain) {
    work(mine);
    return mine;
  }
  if (stage_ == Stage::kFirst) hold_place_for(mine);
  bring(mine);
  if (stage_ == Stage::kFirst || grid_.runtime().recorder().tracing()) {
    graph_->rehearse([&] { work(batches_); });
    if (stage_ == Stage::kFirst) stage_ = Stage::kSecond;
    return batches_;
  }
  if (stage_ == Stage::kSecond && !capture(step, work)) {
    stage_ = Stage::kPlain;
    work(batches_);
    return batches_;
  }
  stage_ = Stage::kReplaying;
  communication_->replay(step);
  graph_->replay();
  return batches_;
}

void StepCapture::hold_place_for(Batches mine) {
  batches_.assign(mine.begin(), mine.end());
  for (nn::MicroBatch& batch : batches_) {
    for (Tensor* tensor : tensors_of(batch)) {
      if (tensor->defined()) *tensor = ctx_.allocate(tensor->shape(), tensor->dtype());
    }
  }
}

void StepCapture::bring(Batches mine) {
  TRIREME_CHECK(mine.size() == batches_.size(), "steps with graphs are all alike");
  for (std::size_t i = 0; i < mine.size(); ++i) {
    TRIREME_CHECK(same_names(mine[i].fields, batches_[i].fields),
                  "steps with graphs are all alike");
    const auto from = tensors_of(mine[i]);
    const auto to = tensors_of(batches_[i]);
    for (std::size_t t = 0; t < from.size(); ++t) {
      TRIREME_CHECK(from[t]->defined() == to[t]->defined() && from[t]->shape() == to[t]->shape(),
                    "steps with graphs are all alike");
      if (from[t]->defined()) copy(*from[t], *to[t], ctx_.stream);
    }
  }
}

bool StepCapture::capture(std::int64_t step, const std::function<void(Batches)>& work) {
  std::optional<std::string> fault;
  try {
    communication_ = grid_.runtime().capture(ctx_.stream, &ctx_.step_state->step);
    communication_->held_by(graph_->give_up());
    graph_->capture([&] {
      work(batches_);
      communication_->join();
    });
  } catch (const CudaError& error) {
    fault = error.what();
  } catch (const OutOfMemoryError& error) {
    fault = error.what();
  }
  const std::string why = agree(fault);
  if (why.empty()) {
    news_ =
        fmt::format("cuda.graphs: the step is captured, {} operations; replayed from step {} on",
                    graph_->operations(), step);
    return true;
  }
  communication_.reset();
  graph_.reset();
  news_ = without_capture(why);
  return false;
}

std::string StepCapture::agree(const std::optional<std::string>& own_fault) const {
  Communicator& world = grid_.world();
  const int lowest = world.all_reduce_host(own_fault ? world.rank() : world.size(), ReduceOp::kMin);
  if (lowest == world.size()) return "";
  const std::string why = world.broadcast_text(own_fault.value_or(""), lowest);
  if (world.agree(own_fault.has_value())) return why;
  // The ranks have by now made different NCCL calls for this step.
  throw CudaError(
      fmt::format("rank {} cannot capture the training step, though others can: {}; --cuda.graphs "
                  "false goes on "
                  "without",
                  world.world_rank(lowest), why));
}

}  // namespace trireme::parallel
