// Replicas with unequal numbers of micro-batches, and blocks that talk to the other replicas in
// each of them: empty micro-batches make the same calls and change nothing else.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/parallel/trainer_step.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"
#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

using Calls = std::vector<std::string>;

// A block that also adds up a one over the replicas in each forward and each backward, as a block
// that normalizes over the whole batch does.
class Talking final : public nn::Block {
 public:
  Talking(std::unique_ptr<nn::Block> inner, std::string name, Communicator& data, Calls& calls)
      : inner_(std::move(inner)), name_(std::move(name)), data_(data), calls_(calls) {
    parameters_ = std::move(inner_->parameters());
  }

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    call("forward");
    nn::Values out = inner_->forward(tape, batch, std::move(in));
    if (out.empty()) return out;
    const nn::Value& y = out[0];
    return {tape.record(y.tensor(), {y}, [y = y.slot(), this](nn::Tape& t, const Tensor& dy) {
      call("backward");
      t.add_gradient(y, dy);
    })};
  }
  void forward_empty(ops::Context& /*ctx*/) const override { call("forward"); }
  void backward_empty(ops::Context& /*ctx*/) const override { call("backward"); }

 private:
  void call(const char* what) const {
    calls_.push_back(fmt::format("{} of {}", what, name_));
    EXPECT_EQ(data_.all_reduce_host(1.0f, ReduceOp::kSum), static_cast<float>(data_.size()));
  }

  std::unique_ptr<nn::Block> inner_;
  std::string name_;
  Communicator& data_;
  Calls& calls_;
};

// The model, in which blocks 1 and 2 of seven talk if `calls` is given.
nn::ModelPlan plan(const ProcessGrid& grid, Calls* calls) {
  nn::ModelPlan made = models::gpt_plan(models::gpt_preset("test-gpt"));
  if (calls == nullptr) return made;
  for (const std::size_t i : {2u, 3u}) {
    nn::BlockPlan& block = made.blocks[i];
    block.collective = true;
    block.build = [inner = block.build, name = block.name, &grid, calls](nn::BuildContext& build) {
      return std::make_unique<Talking>(inner(build), name, grid.comm(kDataAxes), *calls);
    };
  }
  return made;
}

struct Result {
  std::vector<double> numbers;  // losses, norms and targets, of training and evaluation
  std::vector<std::vector<float>> weights;
  bool operator==(const Result&) const = default;
};

Result train(const GridShape& shape, const std::string& schedule, bool recompute,
             const std::vector<int>& counts, Calls* calls) {
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid grid(runtime(), shape);
  parallel::StepOptions options;
  options.schedule = schedule;
  if (recompute) options.runs.recompute = parallel::Recompute::kFull;
  parallel::TrainerStep step(ctx, grid, plan(grid, calls), options);
  int first = 0;
  for (int replica = 0; replica < grid.index(kDataAxes); ++replica) {
    first += counts[static_cast<std::size_t>(replica)];
  }
  const int own = counts[static_cast<std::size_t>(grid.index(kDataAxes))];
  Result result;
  for (int i = 0; i < 2; ++i) {
    const auto mine = make_batches(ctx, BatchShape(), 10 * i + first, own, true);
    const parallel::StepResult done = step.train(mine, i + 1, 1e-3f, 7);
    result.numbers.insert(result.numbers.end(),
                          {done.loss, done.gradient_norm, static_cast<double>(done.targets)});
  }
  const auto held_out = make_batches(ctx, BatchShape(), 100 + first, own, false);
  const nn::EvaluationSums evaluated = parallel::evaluate(
      step.executor(), own - 1, [&](int i) { return held_out[static_cast<std::size_t>(i)]; });
  result.numbers.push_back(evaluated.loss_sum);
  result.numbers.push_back(static_cast<double>(evaluated.targets));
  for (const nn::FlatGroup* group : step.stage().groups()) {
    const auto values = group->master().span<float>();
    result.weights.emplace_back(values.begin(), values.end());
  }
  return result;
}

TEST(EmptyBatches, MakeTheSameCallsAndChangeNothing) {
  std::vector<GridShape> shapes = {{runtime().size(), 1, 1}};
  if (runtime().size() == 4) shapes.emplace_back(2, 2, 1);
  for (const GridShape& shape : shapes) {
    // Shares that differ by one, and by more. Evaluations have one less, and so may have none.
    for (const std::vector<int>& counts : {std::vector<int>{2, 3, 2, 3}, {3, 1, 1, 2}}) {
      for (const bool recompute : {false, true}) {
        const std::string schedule = recompute ? "gpipe" : "1f1b";
        SCOPED_TRACE(shape.to_string() + ", " + schedule);
        Calls calls;
        const Result silent = train(shape, schedule, recompute, counts, nullptr);
        const Result talking = train(shape, schedule, recompute, counts, &calls);
        EXPECT_EQ(talking, silent);
        // In each of the two blocks: two steps with three forwards and backwards, some forwards
        // twice, and an evaluation of two forwards.
        const auto here = static_cast<std::int64_t>(calls.size());
        EXPECT_EQ(runtime().world().all_reduce_host(here, ReduceOp::kSum),
                  2 * (2 * 3 * (recompute ? 3 : 2) + 2) * shape.extent(kDataAxes));
        const ProcessGrid grid(runtime(), shape);
        const std::string mine = fmt::format("{}", fmt::join(calls, "\n"));
        EXPECT_EQ(mine, grid.comm(kDataAxes).broadcast_text(mine, 0));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
