#include "trireme/nn/tensor_parallel.h"

namespace trireme::nn {
namespace {

// Starts the sum of x (rows, C) over the ranks. The result is (outside rows, C).
std::pair<Tensor, Work> start_sum(ops::Context& ctx, const TensorParallel& parallel,
                                  const Tensor& x) {
  if (!parallel.splits_rows()) {
    return {x, parallel.comm->all_reduce(ctx.stream, x, ReduceOp::kSum)};
  }
  const Tensor share =
      ctx.allocate(x.shape().with(0, parallel.outside_rows(x.shape()[0])), x.dtype());
  return {share, parallel.comm->reduce_scatter(ctx.stream, x, share, ReduceOp::kSum)};
}

Tensor all_rows(ops::Context& ctx, const TensorParallel& parallel, const Tensor& x) {
  if (!parallel.splits_rows()) return x;
  const Tensor all = ctx.allocate(x.shape().with(0, x.shape()[0] * parallel.size()), x.dtype());
  parallel.comm->all_gather(ctx.stream, x, all).wait_on(ctx.stream);
  return all;
}

}  // namespace

Holders outside_holders(const TensorParallel& parallel) {
  return {.ranks = parallel.size() > 1 ? Span(Axis::kTensor) : Span(),
          .partial = parallel.splits_rows()};
}

Value enter(Tape& tape, const TensorParallel& parallel, const Value& x) {
  if (parallel.size() == 1) return x;
  const auto gradient = [x = x.slot(), parallel](Tape& t, const Tensor& dy) {
    // The all-reduce is in place; the reduce-scatter is not.
    const Tensor own = parallel.splits_rows() ? dy : t.writable(dy);
    auto [sum, work] = start_sum(t.context(), parallel, own);
    t.add_gradient(x, sum, work);
  };
  if (!parallel.splits_rows()) return tape.record_same(x, gradient);
  // The gathered rows stay on the tape: what can be made again alone must not communicate.
  return tape.record(all_rows(tape.context(), parallel, x.tensor()), {x}, gradient);
}

Value leave(Tape& tape, const TensorParallel& parallel, const Value& x) {
  if (parallel.size() == 1) return x;
  // Nothing else needs the partial product, so summing in place is safe.
  auto [sum, work] = start_sum(tape.context(), parallel, x.tensor());
  work.wait_on(tape.context().stream);
  return tape.record(sum, {x}, [x = x.slot(), parallel](Tape& t, const Tensor& dy) {
    t.add_gradient(x, all_rows(t.context(), parallel, dy));
  });
}

}  // namespace trireme::nn
