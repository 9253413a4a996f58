#include <fmt/format.h>

#include "trireme/nn/layers.h"

namespace trireme::nn {
void check_heads_fit(std::int64_t heads, std::int64_t kv_heads, int tensor_ranks) {
  if (heads % tensor_ranks != 0) {
    throw ConfigError(
        fmt::format("{} heads cannot be split over {} tensor ranks: grid.tensor must "
                    "divide model.heads",
                    heads, tensor_ranks));
  }
  if (kv_heads % tensor_ranks != 0 && tensor_ranks % kv_heads != 0) {
    throw ConfigError(
        fmt::format("{} key and value heads fit {} tensor ranks neither split nor "
                    "copied: one of grid.tensor and model.kv_heads must divide the other",
                    kv_heads, tensor_ranks));
  }
}

Attention::Attention(const LayerContext& context, BuildContext& build, const Options& options)
    : options_(options), parallel_(context.parallel) {
  const int ranks = parallel_.size();
  check_heads_fit(options.heads, options.kv_heads, ranks);
  const std::int64_t head_size = options.width / options.heads;
  local_heads_ = options.heads / ranks;
  local_kv_heads_ = std::max<std::int64_t>(options.kv_heads / ranks, 1);
  // If there are fewer key and value heads than ranks, `copies` neighbouring ranks hold the same
  // head, and each computes the gradient from its own query heads alone.
  const int copies = static_cast<int>(ranks / std::min<std::int64_t>(options.kv_heads, ranks));
  const int parts = ranks / copies;
  const int index = parallel_.rank() / copies;
  const Span same_heads = {Axis::kTensor, copies};
  if (copies > 1) build.comm({"kv_copies", same_heads, Purpose::kGradients});
  const auto kv_part = [&](const char* name) {
    return ColumnParallelLinear::Part{name,
                                      options.kv_heads * head_size,
                                      parts,
                                      index,
                                      {.ranks = same_heads, .partial = copies > 1},
                                      true,
                                      static_cast<int>(options.kv_heads)};
  };
  ColumnParallelLinear::Part query =
      ColumnParallelLinear::split_part(context, "query", options.heads * head_size);
  query.heads = static_cast<int>(options.heads);
  qkv_ = std::make_unique<ColumnParallelLinear>(
      context, std::vector{std::move(query), kv_part("key"), kv_part("value")}, options.width,
      options.bias, options.deviation);
  output_ = std::make_unique<RowParallelLinear>(context.child("output"), options.width,
                                                options.heads * head_size, options.bias,
                                                options.output_deviation);
}

ops::AttentionShape Attention::shape(const MicroBatch& batch) const {
  return {
      batch.batch,    batch.length, local_heads_, local_kv_heads_, options_.width / options_.heads,
      options_.causal};
}

Value Attention::forward(Tape& tape, const MicroBatch& batch, const Value& x) const {
  Value qkv =
      qkv_->forward(tape, enter(tape, parallel_, x));  // (rows, (heads + 2 kv_heads) D), local
  if (options_.positions == PositionKind::kRotary) qkv = rotate(tape, batch, qkv);
  return output_->forward(tape,
                          batch.cache ? attend_cached(tape, batch, qkv) : attend(tape, batch, qkv));
}

Value Attention::rotate(Tape& tape, const MicroBatch& batch, const Value& qkv) const {
  const ops::AttentionShape s = shape(batch);
  const float theta = options_.rotary_theta;
  const std::int64_t first = batch.cache ? batch.cache->past : 0;
  // In place: nothing else needs the rows as they were before.
  ops::rotary(tape.context(), s, qkv.tensor(), first, theta, false);
  return tape.record(qkv.tensor(), {qkv},
                     [qkv = qkv.slot(), s, first, theta](Tape& t, const Tensor& dy) {
                       const Tensor own = t.writable(dy);
                       ops::rotary(t.context(), s, own, first, theta, true);
                       t.add_gradient(qkv, own);
                     });
}

Value Attention::attend(Tape& tape, const MicroBatch& batch, const Value& qkv) const {
  ops::Context& ctx = tape.context();
  const ops::AttentionShape s = shape(batch);
  const Tensor out = ctx.allocate({qkv.shape()[0], s.heads * s.head_size}, qkv.tensor().dtype());
  const Tensor log_sum = ctx.allocate({s.batch * s.heads * s.length}, DType::kF32);
  const ops::KeyRanges keys = {batch.field(kFirstKey), batch.field(kKeyEnd)};
  ops::attention(ctx, s, qkv.tensor(), keys, out, log_sum);
  return tape.record(out, {qkv}, [=](Tape& t, const Tensor& dy) {
    const Tensor dqkv = t.context().allocate(qkv.shape(), dy.dtype());
    ops::attention_backward(t.context(), s, qkv.tensor(), keys, out, log_sum, dy, dqkv);
    t.add_gradient(qkv.slot(), dqkv);
  });
}

Value Attention::attend_cached(Tape& tape, const MicroBatch& batch, const Value& qkv) const {
  ops::Context& ctx = tape.context();
  const ops::AttentionShape s = shape(batch);
  KeyValueCache& cache = *batch.cache;
  cache.layers.resize(std::max(cache.layers.size(), static_cast<std::size_t>(options_.layer) + 1));
  auto& [keys, values] = cache.layers[static_cast<std::size_t>(options_.layer)];
  if (!keys.defined()) {
    const Shape shape{s.batch, cache.capacity, s.kv_heads * s.head_size};
    keys = ctx.allocate(shape, qkv.tensor().dtype());
    values = ctx.allocate(shape, qkv.tensor().dtype());
  }
  const Tensor out = ctx.allocate({qkv.shape()[0], s.heads * s.head_size}, qkv.tensor().dtype());
  ops::attention_cached(ctx, s, qkv.tensor(), cache.past, batch.field(kFirstKey), keys, values,
                        out);
  return tape.input(out, false);
}

}  // namespace trireme::nn
