#include "trireme/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "ops/attention_engine.h"
#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_like_qkv(std::string_view op, std::string_view name, const AttentionShape& shape,
                    const Tensor& qkv) {
  TRIREME_CHECK(
      shape.batch > 0 && shape.length > 0 && shape.heads > 0 && shape.kv_heads > 0 &&
          shape.head_size > 0 && shape.heads % shape.kv_heads == 0,
      fmt::format("{}: batch {}, length {}, heads {}, key heads {}, head size {}", op, shape.batch,
                  shape.length, shape.heads, shape.kv_heads, shape.head_size));
  TRIREME_CHECK(shape.window >= 0 && (shape.window == 0 || shape.causal) && shape.cap >= 0.0f,
                fmt::format("{}: window {}, cap {}, {}", op, shape.window, shape.cap,
                            shape.causal ? "causal" : "bidirectional"));
  check_floating(op, name, qkv);
  check_shape(op, name, qkv, {shape.batch * shape.length, shape.row()});
}

void check_like_out(std::string_view op, std::string_view name, const AttentionShape& shape,
                    const Tensor& out) {
  check_floating(op, name, out);
  check_shape(op, name, out, {shape.batch * shape.length, shape.heads * shape.head_size});
}

void check_keys(std::string_view op, std::string_view name, const AttentionShape& shape,
                const Tensor& keys) {
  if (!keys.defined()) return;
  check_dtype(op, name, keys, {DType::kI32});
  check_elements(op, name, keys, shape.batch * shape.length);
}

void check_saved(std::string_view op, const AttentionShape& shape, const KeyRanges& keys,
                 const Tensor& log_sum) {
  check_dtype(op, "log_sum", log_sum, {DType::kF32});
  check_elements(op, "log_sum", log_sum, shape.batch * shape.heads * shape.length);
  check_keys(op, "first key", shape, keys.first);
  check_keys(op, "end of keys", shape, keys.end);
}

// Takes the place of a library that is not there.
class AbsentAttention final : public AttentionEngine {
 public:
  AbsentAttention(std::string library, std::string why)
      : library_(std::move(library)), why_(std::move(why)) {}

  const std::string& why_not(const AttentionKind&) override { return why_; }
  void forward(Context&, const AttentionKind&, const Tensor&, const Tensor&,
               const Tensor&) override {
    throw InternalError(library_ + " was asked for attention: " + why_);
  }
  void backward(Context&, const AttentionKind&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&, const Tensor&) override {
    throw InternalError(library_ + " was asked for attention: " + why_);
  }
  std::string_view description() const override { return library_; }

 private:
  const std::string library_, why_;
};

AttentionKind kind_of(const Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      const KeyRanges& keys) {
  return {shape, qkv.dtype(), keys.first.defined(), keys.end.defined(), ctx.any_order};
}

// Whether the context's library computes this call.
bool by_library(const Context& ctx, const AttentionKind& kind, const Tensor& out) {
  return ctx.attention && out.dtype() == kind.dtype && ctx.attention->why_not(kind).empty();
}

// What masked attention on tensor cores needs.
void ask_for_spans(Context& ctx, const AttentionShape& shape, const KeyRanges& keys,
                   bool of_one_type, DType dtype) {
  const bool masked = keys.first.defined() || keys.end.defined();
  if (masked && of_one_type && gpu::on_tensor_cores(shape, dtype)) {
    gpu::spans_of_attention(ctx, shape);
  }
}

// The cost of `count` products over all pairs of a query and a key.
Cost products(const AttentionShape& s, int count) {
  return {.flops = 2.0 * count * s.pairs() * static_cast<double>(s.batch * s.heads * s.head_size),
          .sizes = {s.batch * s.heads, s.length, s.length, s.head_size}};
}

// A dry context has no library, so none of its calls comes here.
void call_library(Context& ctx, std::string_view name, const AttentionShape& shape, int count,
                  const std::vector<Tensor>& operands, const std::function<void()>& body) {
  if (!ctx.times) return body();
  const Cost cost = products(shape, count);
  OperationCall call{
      .name = name, .dtype = operands[0].dtype(), .sizes = cost.sizes, .flops = cost.flops};
  for (const Tensor& one : operands) call.bytes += bytes_of(one);
  ctx.times->run(ctx, call, body);
}

}  // namespace

float AttentionShape::factor() const {
  return scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(head_size));
}

double AttentionShape::pairs() const {
  const auto all = static_cast<double>(length);
  if (!causal) return all * all;
  const double most = window > 0 ? static_cast<double>(std::min(window, length)) : all;
  return all * most - most * (most - 1) / 2;  // the first `most` - 1 queries have fewer keys
}

std::shared_ptr<AttentionEngine> make_absent_attention(std::string library, std::string why) {
  return std::make_shared<AbsentAttention>(std::move(library), std::move(why));
}

void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv, const KeyRanges& keys,
               const Tensor& out, const Tensor& log_sum) {
  check_like_qkv("attention", "qkv", shape, qkv);
  check_like_out("attention", "out", shape, out);
  check_saved("attention", shape, keys, log_sum);
  const AttentionKind kind = kind_of(ctx, shape, qkv, keys);
  if (by_library(ctx, kind, out)) {
    return call_library(ctx, "attention", shape, 2, {qkv, out, log_sum},
                        [&] { ctx.attention->forward(ctx, kind, qkv, out, log_sum); });
  }
  if (on_dry_gpu(ctx)) ask_for_spans(ctx, shape, keys, gpu::of_one_type({&qkv, &out}), qkv.dtype());
  dispatch(TRIREME_OP(attention), products(shape, 2), ctx, shape, qkv, keys, out, log_sum);
}

void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const KeyRanges& keys, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv) {
  check_like_qkv("attention_backward", "qkv", shape, qkv);
  check_like_qkv("attention_backward", "dqkv", shape, dqkv);
  check_like_out("attention_backward", "out", shape, out);
  check_like_out("attention_backward", "dout", shape, dout);
  check_saved("attention_backward", shape, keys, log_sum);
  TRIREME_CHECK(dqkv.raw() != qkv.raw(), "attention_backward: dqkv may not be qkv");
  const AttentionKind kind = kind_of(ctx, shape, qkv, keys);
  if (by_library(ctx, kind, out) && dout.dtype() == kind.dtype && dqkv.dtype() == kind.dtype) {
    return call_library(ctx, "attention_backward", shape, 5, {qkv, out, log_sum, dout, dqkv},
                        [&] { ctx.attention->backward(ctx, kind, qkv, out, log_sum, dout, dqkv); });
  }
  if (on_dry_gpu(ctx)) {
    const Tensor deltas = gpu::deltas_of_attention(ctx, shape);
    ask_for_spans(ctx, shape, keys, gpu::of_one_type({&qkv, &out, &dout, &dqkv}), qkv.dtype());
  }
  dispatch(TRIREME_OP(attention_backward), products(shape, 5), ctx, shape, qkv, keys, out, log_sum,
           dout, dqkv);
}

AttentionChoice attention_choice(const Context& ctx, const AttentionShape& shape, DType dtype,
                                 bool masks_documents) {
  const bool tensor_cores =
      ctx.device.kind != DeviceKind::kCpu && gpu::on_tensor_cores(shape, dtype);
  const std::string own = tensor_cores ? "own kernel on tensor cores" : "own kernel";
  if (!ctx.attention) return {own, own};
  std::string library(ctx.attention->description());
  // Causal attention masks documents by where the keys of a query begin, bidirectional attention by
  // where they end.
  const std::string& why_not =
      ctx.attention->why_not({shape, dtype, masks_documents && shape.causal,
                              masks_documents && !shape.causal, ctx.any_order});
  if (why_not.empty()) {
    if (ctx.any_order) library += ", gradients in any order";
    return {library, library};
  }
  return {own, fmt::format("{} ({}: {})", own, library, why_not)};
}

void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& first_key, const Tensor& keys,
                      const Tensor& values, const Tensor& out) {
  check_like_qkv("attention_cached", "qkv", shape, qkv);
  check_like_out("attention_cached", "out", shape, out);
  check_keys("attention_cached", "first key", shape, first_key);
  TRIREME_CHECK(shape.causal, "attention_cached: bidirectional attention has no cache");
  check_rank("attention_cached", "keys", keys, 3);
  check_dtype("attention_cached", "keys", keys, {qkv.dtype()});
  const std::int64_t capacity = keys.shape()[1];
  check_shape("attention_cached", "keys", keys,
              {shape.batch, capacity, shape.kv_heads * shape.head_size});
  check_dtype("attention_cached", "values", values, {qkv.dtype()});
  check_shape("attention_cached", "values", values, keys.shape());
  TRIREME_CHECK(past >= 0 && past + shape.length <= capacity,
                fmt::format("attention_cached: {} past and {} new positions, of a cache of {}",
                            past, shape.length, capacity));
  if (on_dry_gpu(ctx)) {
    ask_for_spans(ctx, shape, first_key, gpu::of_one_type({&qkv, &out}), qkv.dtype());
  }
  dispatch(TRIREME_OP(attention_cached), ctx, shape, qkv, past, first_key, keys, values, out);
}

Rotation plain_rotation(double theta, std::int64_t channels) {
  Rotation rotation;
  for (std::int64_t i = 0; i < channels / 2; ++i) {
    rotation.frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(channels)));
  }
  return rotation;
}

void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, const Rotation& rotation, bool inverse) {
  check_like_qkv("rotary", "qkv", shape, qkv);
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  TRIREME_CHECK(0 < pairs && 2 * pairs <= shape.head_size && rotation.query_period > 0,
                fmt::format("rotary: {} pairs of {} channels, query period {}", pairs,
                            shape.head_size, rotation.query_period));
  if (on_dry_gpu(ctx)) gpu::table_of_rotary(ctx, shape, rotation);
  dispatch(TRIREME_OP(rotary), ctx, shape, qkv, first_position, rotation, inverse);
}

}  // namespace trireme::ops
