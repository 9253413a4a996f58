#include "trireme/nn/patches.h"

#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/tensor/copy.h"

namespace trireme::nn {

PatchEmbedding::PatchEmbedding(const LayerContext& context, const Options& options)
    : parallel_(context.parallel),
      patches_(context.child("patches"), {.in = kColours,
                                          .out = options.width,
                                          .kernel = options.patch,
                                          .stride = options.patch,
                                          .bias = true,
                                          .deviation = options.deviation,
                                          .inner = false}),
      class_token_(&context.parameters.add({.name = context.child("class_token").name,
                                            .placement = Placement::whole({options.width}),
                                            .initial = Initializer::normal(options.deviation),
                                            .holders = outside_holders(parallel_),
                                            .decay = false})) {}

Tensor PatchEmbedding::all_rows(ops::Context& ctx, const Tensor& dy, std::int64_t rows) const {
  if (!parallel_.splits_rows()) return dy;
  const Tensor all = ctx.allocate({rows, dy.shape()[1]}, dy.dtype());
  ops::fill(ctx, all, 0.0f);
  const std::int64_t first = parallel_.first_outside_row(rows);
  copy(dy, all.rows(first, first + dy.shape()[0]), ctx.stream);
  return all;
}

Value PatchEmbedding::forward(Tape& tape, const MicroBatch& batch, DType compute) const {
  ops::Context& ctx = tape.context();
  const Value patches = patches_.forward(tape, pixels_of(tape, batch, compute));  // (N, h, w, C)
  const std::int64_t samples = patches.shape()[0], width = patches.shape()[3];
  const std::int64_t count = patches.shape()[1] * patches.shape()[2], length = 1 + count;
  const std::int64_t rows = samples * length;
  const Tensor all = ctx.allocate({rows, width}, compute);
  ops::copy_rows(ctx, {.batch = samples, .count = 1, .y_length = length},
                 class_token_->weight().reshape({1, width}), all);
  const ops::SampleRows behind{samples, count, count, 0, length, 1};
  ops::copy_rows(ctx, behind, patches.tensor().reshape({samples * count, width}), all);
  const std::int64_t first = parallel_.first_outside_row(rows);
  return tape.record(
      all.rows(first, first + parallel_.outside_rows(rows)), {patches},
      [=, slot = patches.slot(), shape = patches.shape(), this](Tape& t, const Tensor& dy) {
        const Tensor dpatches = t.context().allocate({samples * count, width}, dy.dtype());
        const ops::SampleRows from{samples, count, length, 1, count, 0};
        ops::copy_rows(t.context(), from, all_rows(t.context(), dy, rows), dpatches);
        t.add_gradient(slot, dpatches.reshape(shape));
      },
      {class_token_},
      [=, this](Tape& t, const Tensor& dy) {
        const Tensor tokens = t.context().allocate({samples, width}, dy.dtype());
        const ops::SampleRows from{samples, 1, length, 0, 1, 0};
        ops::copy_rows(t.context(), from, all_rows(t.context(), dy, rows), tokens);
        ops::add_column_sums(t.context(), tokens, class_token_->gradient());
      });
}

Value first_rows(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                 const Value& x) {
  ops::Context& ctx = tape.context();
  const std::int64_t width = x.shape()[1], rows = batch.batch * batch.length;
  Tensor all = x.tensor();
  if (parallel.splits_rows()) {
    all = ctx.allocate({rows, width}, x.dtype());
    parallel.comm->all_gather(ctx.stream, x.tensor(), all).wait_on(ctx.stream);
  }
  const Tensor y = ctx.allocate({batch.batch, width}, x.dtype());
  ops::copy_rows(ctx, {batch.batch, 1, batch.length, 0, 1, 0}, all, y);
  const ops::SampleRows back{batch.batch, 1, 1, 0, batch.length, 0};
  return tape.record(y, {x}, [=, slot = x.slot()](Tape& t, const Tensor& dy) {
    const Tensor dx = t.context().allocate({rows, width}, dy.dtype());
    ops::fill(t.context(), dx, 0.0f);
    ops::copy_rows(t.context(), back, dy, dx);
    const std::int64_t first = parallel.first_outside_row(rows);
    t.add_gradient(slot, dx.rows(first, first + parallel.outside_rows(rows)));
  });
}

}  // namespace trireme::nn
