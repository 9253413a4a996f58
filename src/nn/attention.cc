#include <algorithm>

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

HeadNorms::HeadNorms(const LayerContext& context, const Options& options,
                     const ColumnParallelLinear::Part& key)
    : options_(options), parallel_(context.parallel) {
  const int ranks = parallel_.size();
  key_share_ = options.whole ? static_cast<float>(key.parts) / static_cast<float>(ranks) : 1.0f;
  const auto add = [&](const char* name, std::int64_t heads, int parts, int index,
                       const Holders& of_part) -> Parameter* {
    const std::string weight = context.child(name).child("weight").name;
    const auto initial = Initializer::constant(options.plus_one ? 0.0f : 1.0f);
    if (!options.whole) {
      // One weight for all heads: each tensor rank has the part of the gradient that its heads
      // make.
      return &context.parameters.add(
          {.name = weight,
           .placement = Placement::whole({options.head_size}),
           .initial = initial,
           .holders = {.ranks = ranks > 1 ? Span(Axis::kTensor) : Span(), .partial = ranks > 1},
           .decay = false});
    }
    return &context.parameters.add(
        {.name = weight,
         .placement = Placement::split({heads * options.head_size}, 0, parts, index),
         .initial = initial,
         .holders = of_part,
         .decay = false});
  };
  query_ = add("query_norm", options.heads, ranks, parallel_.rank(), {});
  key_ = add("key_norm", options.kv_heads, key.parts, key.index, key.holders);
}

ops::HeadNorm HeadNorms::norm(const ops::AttentionShape& shape) const {
  const std::int64_t size = options_.head_size;
  const float plus = options_.plus_one ? 1.0f : 0.0f;
  return {.shape = shape,
          .whole = options_.whole,
          .query_width = options_.whole ? options_.heads * size : size,
          .key_width = options_.whole ? options_.kv_heads * size : size,
          .key_share = key_share_,
          .epsilon = options_.epsilon,
          .query = {query_->weight(), plus},
          .key = {key_->weight(), plus}};
}

void HeadNorms::add_up(ops::Context& ctx, const Tensor& sums) const {
  if (!options_.whole || parallel_.size() == 1) return;
  parallel_.comm->all_reduce(ctx.stream, sums, ReduceOp::kSum).wait_on(ctx.stream);
}

Value HeadNorms::forward(Tape& tape, const ops::AttentionShape& shape, const Value& qkv) const {
  ops::Context& ctx = tape.context();
  const ops::HeadNorm now = norm(shape);
  const Tensor squares = ctx.allocate({now.rows(), now.groups()}, DType::kF32);
  ops::head_squares(ctx, now, qkv.tensor(), squares);
  add_up(ctx, squares);
  const Tensor y = ctx.allocate(qkv.shape(), qkv.tensor().dtype());
  ops::head_norm(ctx, now, qkv.tensor(), squares, y);
  return tape.record(
      y, {qkv},
      [qkv, squares, shape, this](Tape& t, const Tensor& dy) {
        const ops::HeadNorm same = norm(shape);
        const Tensor dots = t.context().allocate(squares.shape(), DType::kF32);
        ops::head_norm_dots(t.context(), same, dy, qkv.tensor(), dots);
        add_up(t.context(), dots);
        const Tensor dqkv = t.context().allocate(dy.shape(), dy.dtype());
        ops::head_norm_backward_input(t.context(), same, dy, qkv.tensor(), squares, dots, dqkv);
        t.add_gradient(qkv.slot(), dqkv);
      },
      {query_, key_},
      [qkv, squares, shape, this](Tape& t, const Tensor& dy) {
        ops::head_norm_backward_weight(t.context(), norm(shape), dy, qkv.tensor(), squares,
                                       query_->gradient(), key_->gradient());
      });
}

Attention::Attention(const LayerContext& context, BuildContext& build, const Options& options)
    : options_(options), parallel_(context.parallel) {
  const int ranks = parallel_.size();
  check_heads_fit(options.heads, options.kv_heads, ranks);
  const std::int64_t head_size = options.head_size;
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
      options.biases.qkv, options.deviation);
  if (options.norm != QueryKeyNorm::kNone) {
    norms_ = std::make_unique<HeadNorms>(
        context,
        HeadNorms::Options{options.norm == QueryKeyNorm::kWidth, options.heads, options.kv_heads,
                           head_size, options.norm_epsilon, options.norm_plus_one},
        kv_part("key"));
  }
  output_ = std::make_unique<RowParallelLinear>(context.child("output"), options.width,
                                                options.heads * head_size, options.biases.output,
                                                options.output_deviation);
}

ops::AttentionShape Attention::shape(const MicroBatch& batch) const {
  return {.batch = batch.batch,
          .length = batch.length,
          .heads = local_heads_,
          .kv_heads = local_kv_heads_,
          .head_size = options_.head_size,
          .causal = options_.causal,
          .window = options_.window,
          .scale = options_.scale,
          .cap = options_.cap};
}

Value Attention::forward(Tape& tape, const MicroBatch& batch, const Value& x,
                         const Value* addend) const {
  Value qkv =
      qkv_->forward(tape, enter(tape, parallel_, x));  // (rows, (heads + 2 kv_heads) D), local
  if (norms_) qkv = norms_->forward(tape, shape(batch), qkv);
  if (!options_.rotations.near.frequencies.empty()) qkv = rotate(tape, batch, qkv);
  return output_->forward(
      tape, batch.cache ? attend_cached(tape, batch, qkv) : attend(tape, batch, qkv), addend);
}

Value Attention::rotate(Tape& tape, const MicroBatch& batch, const Value& qkv) const {
  const ops::AttentionShape s = shape(batch);
  const std::int64_t first = batch.cache ? batch.cache->past : 0;
  const ops::Rotation* rotation = &options_.rotations.of(first + s.length);
  // In place: nothing else needs the rows as they were before.
  ops::rotary(tape.context(), s, qkv.tensor(), first, *rotation, false);
  return tape.record(qkv.tensor(), {qkv},
                     [qkv = qkv.slot(), s, first, rotation](Tape& t, const Tensor& dy) {
                       const Tensor own = t.writable(dy);
                       ops::rotary(t.context(), s, own, first, *rotation, true);
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
