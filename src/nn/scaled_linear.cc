#include "nn/scaled_linear.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/ops/block_scaled.h"

namespace trireme::nn {
namespace {

using ops::BlockScaled;
using ops::ScaledBlocks;

// A matrix as it lies and transposed.
struct Copies {
  BlockScaled straight, turned;
};
enum class Which { kStraight, kTurned, kBoth };

Copies scaled(ops::Context& ctx, const Tensor& x, ScaledBlocks blocks, Which which) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  Copies copies;
  if (which != Which::kTurned) copies.straight = ops::allocate_scaled(ctx, rows, columns, blocks);
  if (which != Which::kStraight) copies.turned = ops::allocate_scaled(ctx, columns, rows, blocks);
  ops::scale_blocks(ctx, x, copies.straight, copies.turned);
  return copies;
}

// The weight, from bf16 at each use: who gathers weights gathers no scales.
BlockScaled scaled_weight(ops::Context& ctx, const std::vector<Parameter*>& weights, Which which) {
  const Tensor weight = side_by_side_weight(weights);
  const Copies copies = scaled(ctx, weight, ScaledBlocks::kTiles, which);
  return which == Which::kTurned ? copies.turned : copies.straight;
}

// What the gradient of the weight needs from the forward.
struct WeightPart {
  std::vector<Parameter*> weights;
  Kept x;              // where it is made again
  BlockScaled turned;  // (in, rows), otherwise
  Tape::WeightGradient bias_gradient;

  // `dy`: (rows, out), and what is kept of it transposed, (out, rows).
  void add(Tape& tape, const Tensor& dy, const BlockScaled& dy_turned) const {
    ops::Context& ctx = tape.context();
    if (const Tensor gradient = side_by_side_gradient(weights); gradient.defined()) {
      const BlockScaled input =
          turned.defined() ? turned
                           : scaled(ctx, x.tensor(ctx), ScaledBlocks::kRows, Which::kTurned).turned;
      ops::scaled_matmul(ctx, dy_turned, input, Tensor(), take_beta(weights), gradient);
    }
    if (bias_gradient) bias_gradient(tape, dy);
  }
};

}  // namespace

Value record_scaled_linear(Tape& tape, const Value& x, const Value& source, ScaledLinear linear) {
  ops::Context& ctx = tape.context();
  const bool trains = linear.weights.front()->trains();
  const bool keeps = tape.recording() && trains && !x.is_remade();
  const Copies input =
      scaled(ctx, x.tensor(), ScaledBlocks::kRows, keeps ? Which::kBoth : Which::kStraight);
  const BlockScaled weight = scaled_weight(ctx, linear.weights, Which::kStraight);
  const Tensor y = ctx.allocate({x.shape()[0], weight.codes.shape()[0]}, x.dtype());
  ops::scaled_matmul(ctx, input.straight, weight, linear.bias, 0.0f, y);

  const auto to_input = [weights = linear.weights, finish = std::move(linear.input_gradient)](
                            Tape& t, const BlockScaled& dy) {
    const BlockScaled turned = scaled_weight(t.context(), weights, Which::kTurned);  // (in, out)
    const Tensor dx =
        t.context().allocate({dy.codes.shape()[0], turned.codes.shape()[0]}, DType::kBF16);
    ops::scaled_matmul(t.context(), dy, turned, Tensor(), 0.0f, dx);
    finish(t, dx);
  };
  const auto part = std::make_shared<WeightPart>(
      WeightPart{linear.weights, trains && x.is_remade() ? x.kept() : Kept(), input.turned,
                 std::move(linear.bias_gradient)});
  const auto rows_of = [](Tape& t, const Tensor& dy, Which which) {
    return scaled(t.context(), dy, ScaledBlocks::kRows, which);
  };
  return tape.record(
      y, {source},
      [to_input, rows_of](Tape& t, const Tensor& dy) {
        to_input(t, rows_of(t, dy, Which::kStraight).straight);
      },
      std::move(linear.parameters),
      [part, trains, rows_of](Tape& t, const Tensor& dy) {
        part->add(t, dy, trains ? rows_of(t, dy, Which::kTurned).turned : BlockScaled());
      },
      [to_input, part, trains, rows_of](Tape& t, const Tensor& dy) {
        const Copies copies = rows_of(t, dy, trains ? Which::kBoth : Which::kStraight);
        to_input(t, copies.straight);
        part->add(t, dy, copies.turned);
      });
}

void check_whole_blocks(const std::vector<Parameter*>& weights) {
  std::int64_t rows = 0;
  for (const Parameter* weight : weights) rows += weight->placement().local[0];
  const std::int64_t columns = weights.front()->placement().local[1];
  if (ops::has_whole_blocks(rows, columns)) return;
  throw ConfigError(fmt::format(
      "run.precision fp8 multiplies blocks of {0} x {0}, but {1}{2} {3} x {4} on a rank: make the "
      "model's widths, divided by grid.tensor, multiples of {0}, or give run.precision bf16",
      ops::kScaledSide, weights.front()->name(),
      weights.size() == 1 ? " is" : " and what is packed with it are", rows, columns));
}

}  // namespace trireme::nn
