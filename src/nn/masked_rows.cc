#include "trireme/nn/masked_rows.h"

#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"

namespace trireme::nn {

// The rows of x are a table of which other ranks may hold other parts.
Value target_rows(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                  const Value& x) {
  ops::Context& ctx = tape.context();
  const Tensor wanted = batch.field(kTargetRows);
  const std::int64_t first = parallel.first_outside_row(batch.batch * batch.length);
  const Tensor y = ctx.allocate({wanted.elements(), x.shape()[1]}, x.dtype());
  ops::embedding(ctx, wanted, x.tensor(), first, y);
  const auto backward = [slot = x.slot(), shape = x.shape(), wanted, first](Tape& t,
                                                                            const Tensor& dy) {
    const Tensor sums = t.context().allocate(shape, DType::kF32);
    ops::fill(t.context(), sums, 0.0f);
    ops::embedding_backward(t.context(), wanted, dy, first, sums);
    Tensor dx = sums;
    if (dy.dtype() != DType::kF32) {
      dx = t.context().allocate(shape, dy.dtype());
      ops::cast(t.context(), sums, dx);
    }
    t.add_gradient(slot, dx);
  };
  const Value rows = tape.record(y, {x}, backward);
  if (!parallel.splits_rows()) return rows;
  return leave(tape, {parallel.comm, false}, rows);
}

SegmentEmbedding::SegmentEmbedding(const LayerContext& context, std::int64_t segments,
                                   std::int64_t width, float deviation)
    : table_(&context.parameters.add({.name = context.child("weight").name,
                                      .placement = Placement::whole({segments, width}),
                                      .initial = Initializer::normal(deviation),
                                      .holders = outside_holders(context.parallel)})) {}

Value SegmentEmbedding::forward(Tape& tape, const Value& x) const {
  const std::int64_t width = x.shape()[1];
  // In place: nothing else needs the embedding without its segments.
  ops::add_bias(tape.context(), x.tensor(), table_->weight().flat_range(0, width));
  return tape.record(
      x.tensor(), {x}, [x = x.slot()](Tape& t, const Tensor& dy) { t.add_gradient(x, dy); },
      {table_},
      [width, this](Tape& t, const Tensor& dy) {
        ops::add_column_sums(t.context(), dy, table_->gradient().flat_range(0, width));
      });
}

}  // namespace trireme::nn
