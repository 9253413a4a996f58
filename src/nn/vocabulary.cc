// Layers whose weights are rows of the vocabulary, split over the tensor ranks.
#include <algorithm>

#include "trireme/nn/layers.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme::nn {
namespace {

std::int64_t first_row_here(const Parameter& table) {
  return table.placement().offset[0];
}
std::int64_t valid_rows_here(const Parameter& table) {
  return table.placement().extent[0];
}
// Returns the rows without the padding: token first_row_here() + valid_rows_here() is another
// rank's.
Tensor valid_rows_of(const Tensor& memory, const Parameter& table) {
  return memory.rows(0, valid_rows_here(table));
}

// Softmax statistics of a slice of rows: row maximum, row sum and target logit, views of one tensor
// (3, rows).
struct Statistics {
  Tensor all, row_max, row_sum, target_logit;
};

Statistics allocate_statistics(ops::Context& ctx, std::int64_t rows) {
  const Tensor all = ctx.allocate({3, rows}, DType::kF32);
  const auto part = [&](std::int64_t i) { return all.flat_range(i * rows, (i + 1) * rows); };
  return {all, part(0), part(1), part(2)};
}

// Statistics of a part of the vocabulary become those of the whole, equal on all tensor ranks.
void combine(ops::Context& ctx, const TensorParallel& parallel, const Statistics& part) {
  const Tensor local_max = ctx.allocate(part.row_max.shape(), DType::kF32);
  ops::cast(ctx, part.row_max, local_max);
  parallel.comm->all_reduce(ctx.stream, part.row_max, ReduceOp::kMax).wait_on(ctx.stream);
  ops::softmax_rescale(ctx, local_max, part.row_max, part.row_sum);
  parallel.comm->all_reduce(ctx.stream, part.all.rows(1, 3), ReduceOp::kSum).wait_on(ctx.stream);
}

// The rows of a projection to the vocabulary that this rank holds.
struct Projection {
  const Parameter* table;
  const Parameter* bias;  // or null
  ops::LogitBend bend;
  DType logits = DType::kF32;  // as it was asked for

  Tensor bias_weight() const { return bias ? bias->weight() : Tensor(); }
  Tensor bias_gradient() const { return bias ? bias->gradient() : Tensor(); }
};

// Adds the loss of x (rows, C), which is in the tensor-parallel part, to loss_sum. With `trains`
// adds the projection's gradient, and writes this rank's partial gradient of x to `dx` (rows, C) if
// that is defined.
void loss_by_slices(ops::Context& ctx, const TensorParallel& parallel, const Tensor& all_targets,
                    const Tensor& loss_sum, const Tensor& x, const Projection& projection,
                    bool trains, const Tensor& dx) {
  const Parameter& table = *projection.table;
  const std::int64_t rows = x.shape()[0];
  const std::int64_t classes = table.placement().local[0];
  const DType type = type_of_logits(projection.logits, x.dtype());
  const std::int64_t slice = loss_slice_rows({.rows = rows,
                                              .classes = classes,
                                              .compute = x.dtype(),
                                              .gpu_memory = ctx.gpu_memory,
                                              .logits = type});
  for (std::int64_t begin = 0; begin < rows; begin += slice) {
    const std::int64_t end = std::min(begin + slice, rows);
    const Tensor x_slice = x.rows(begin, end);
    const Tensor targets = all_targets.rows(begin, end);
    const Tensor logits = ctx.allocate({end - begin, classes}, type, MemoryUse::kWorkspace);
    ops::linear(ctx, x_slice, table.weight(), projection.bias_weight(), logits);
    if (projection.bend.bends()) ops::bend_logits(ctx, logits, projection.bend);
    const Statistics statistics = allocate_statistics(ctx, end - begin);
    const auto& [all, row_max, row_sum, target_logit] = statistics;
    const std::int64_t first = first_row_here(table), valid = valid_rows_here(table);
    const bool whole = parallel.size() == 1;  // all of the vocabulary is here
    Tensor dlogits;
    if (trains) {
      dlogits = x.dtype() == type ? logits
                                  : ctx.allocate(logits.shape(), x.dtype(), MemoryUse::kWorkspace);
    }
    if (whole && trains) {
      ops::softmax_and_gradient(ctx, logits, targets, valid, row_max, row_sum, target_logit,
                                dlogits, projection.bend);
    } else {
      ops::softmax_statistics(ctx, logits, targets, first, valid, row_max, row_sum, target_logit);
    }
    if (!whole) combine(ctx, parallel, statistics);
    // Each tensor rank adds the whole loss.
    ops::softmax_loss_sum(ctx, targets, row_max, row_sum, target_logit, loss_sum);
    if (!trains) continue;
    if (!whole) {
      ops::softmax_gradient(ctx, logits, targets, first, valid, row_max, row_sum, dlogits,
                            projection.bend);
    }
    if (dx.defined()) {
      ops::linear_backward_input(ctx, dlogits, table.weight(), dx.rows(begin, end));
    }
    ops::linear_backward_weight(ctx, dlogits, x_slice, table.gradient(),
                                projection.bias_gradient());
  }
}

}  // namespace

ParameterSpec vocabulary_parameter(const std::string& name, const TensorParallel& parallel,
                                   std::int64_t vocabulary, std::int64_t width, float deviation,
                                   std::int64_t multiple) {
  return {.name = name,
          .placement =
              Placement::split({vocabulary, width}, 0, parallel.size(), parallel.rank(), multiple),
          .initial = Initializer::normal(deviation),
          .holders = {}};
}

ParameterSpec vocabulary_bias(const std::string& name, const TensorParallel& parallel,
                              std::int64_t vocabulary, std::int64_t multiple) {
  return {
      .name = name,
      .placement = Placement::split({vocabulary}, 0, parallel.size(), parallel.rank(), multiple),
      .initial = Initializer::constant(0.0f),
      .holders = {},
      .decay = false};
}

VocabularyEmbedding::VocabularyEmbedding(const LayerContext& context, Parameter& table)
    : parallel_(context.parallel), table_(table) {}

Value VocabularyEmbedding::forward(Tape& tape, const MicroBatch& batch) const {
  ops::Context& ctx = tape.context();
  const Tensor table = valid_rows_of(table_.weight(), table_);  // (local vocabulary, C)
  const Tensor tokens = batch.field(kTokens);
  const Tensor partial = ctx.allocate({tokens.elements(), table.shape()[1]}, table.dtype());
  ops::embedding(ctx, tokens, table, first_row_here(table_), partial);
  const Value rows =
      tape.record(partial, {}, {}, {&table_}, [tokens, this](Tape& t, const Tensor& dy) {
        ops::embedding_backward(t.context(), tokens, dy, first_row_here(table_),
                                valid_rows_of(table_.gradient(), table_));
      });
  return leave(tape, parallel_, rows);
}

LearnedPositions::LearnedPositions(const LayerContext& context, std::int64_t positions,
                                   std::int64_t width, float deviation, bool decay)
    : parallel_(context.parallel),
      table_(&context.parameters.add({.name = context.child("weight").name,
                                      .placement = Placement::whole({positions, width}),
                                      .initial = Initializer::normal(deviation),
                                      .holders = outside_holders(parallel_),
                                      .decay = decay})) {}

Value LearnedPositions::forward(Tape& tape, const MicroBatch& batch, const Value& x) const {
  const std::int64_t first_row = parallel_.first_outside_row(batch.batch * batch.length);
  const std::int64_t length = batch.length;
  // In place: nothing else needs the embedding without its positions.
  ops::add_positions(tape.context(), x.tensor(), table_->weight(), first_row, length,
                     batch.cache ? batch.cache->past : 0, x.tensor());
  return tape.record(
      x.tensor(), {x}, [x = x.slot()](Tape& t, const Tensor& dy) { t.add_gradient(x, dy); },
      {table_},
      [first_row, length, this](Tape& t, const Tensor& dy) {
        ops::add_positions_backward(t.context(), dy, first_row, length, table_->gradient());
      });
}

void vocabulary_loss(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                     const Value& x, Parameter& table, Parameter* bias, const ops::LogitBend& bend,
                     DType logits) {
  const Value inside = enter(tape, parallel, x);  // (rows, C)
  const Projection projection{&table, bias, bend, logits};
  if (!tape.recording()) {
    loss_by_slices(tape.context(), parallel, batch.field(kTargets), batch.loss_sum, inside.tensor(),
                   projection, false, Tensor());
    return;
  }
  std::vector<const Parameter*> parameters = {&table};
  if (bias) parameters.push_back(bias);
  tape.record_loss(
      [kept = inside.kept(), slot = inside.slot(), wanted = inside.needs_gradient(), parallel,
       targets = batch.field(kTargets), loss_sum = batch.loss_sum,
       projection](Tape& t, const Tensor&) {
        const Tensor rows = kept.tensor(t.context());
        const Tensor dx = wanted ? t.context().allocate(rows.shape(), rows.dtype()) : Tensor();
        loss_by_slices(t.context(), parallel, targets, loss_sum, rows, projection, true, dx);
        t.add_gradient(slot, dx);
      },
      std::move(parameters));
}

Tensor vocabulary_logits(ops::Context& ctx, const TensorParallel& parallel, const Tensor& x,
                         const Parameter& table, const Parameter* bias,
                         const ops::LogitBend& bend) {
  const std::int64_t rows = x.shape()[0], local = table.placement().local[0];
  const Tensor part = ctx.allocate({rows, local}, DType::kF32);
  ops::linear(ctx, x, table.weight(), bias ? bias->weight() : Tensor(), part);
  if (bend.bends()) ops::bend_logits(ctx, part, bend);
  Tensor gathered = part;
  if (parallel.size() > 1) {
    gathered = ctx.allocate({parallel.size(), rows, local}, DType::kF32);
    parallel.comm->all_gather(ctx.stream, part, gathered).wait_on(ctx.stream);
  }
  // The logits go from (ranks, rows, local) to (rows, vocabulary), without the padding.
  const std::int64_t vocabulary = table.placement().global[0];
  if (parallel.size() == 1 && local == vocabulary) return part;
  const std::int64_t each = (vocabulary + parallel.size() - 1) / parallel.size();
  const Tensor logits = ctx.allocate({rows, vocabulary}, DType::kF32);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t begin = 0; begin < vocabulary; begin += each) {
      const std::int64_t count = std::min(each, vocabulary - begin);
      const std::int64_t from = (begin / each * rows + row) * local;
      ops::cast(ctx, gathered.flat_range(from, from + count),
                logits.flat_range(row * vocabulary + begin, row * vocabulary + begin + count));
    }
  }
  return logits;
}

Tensor last_logits(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                   const Value& x, const Parameter& table, const ops::LogitBend& bend) {
  ops::Context& ctx = tape.context();
  const Value inside = enter(tape, parallel, x);
  const std::int64_t width = inside.shape()[1];
  const Tensor last = ctx.allocate({batch.batch, width}, inside.tensor().dtype());
  for (std::int64_t b = 0; b < batch.batch; ++b) {
    const std::int64_t row = b * batch.length + batch.length - 1;
    ops::cast(ctx, inside.tensor().rows(row, row + 1), last.rows(b, b + 1));
  }
  return vocabulary_logits(ctx, parallel, last, table, nullptr, bend);
}

}  // namespace trireme::nn
