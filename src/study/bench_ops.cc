#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/exact_sum.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/update.h"
#include "trireme/study/bench.h"
#include "trireme/study/scaling_study.h"

namespace trireme::bench {
namespace {

using Body = std::function<void()>;

constexpr std::int64_t kLogitBytes = std::int64_t{32} << 20;   // as in src/nn/vocabulary.cc
constexpr std::int64_t kMostUpdated = std::int64_t{16} << 20;  // elements; larger than any cache

// Returns small pseudo-random values. They are not denormal, and do not grow when a product is
// repeated.
Tensor small_values(ops::Context& ctx, const Shape& shape, DType dtype) {
  const Tensor x = ctx.allocate_host(shape, dtype);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const float value = static_cast<float>((i * 7919) % 1009) / 1009.0f - 0.5f;
    if (dtype == DType::kF32) {
      x.data<float>()[i] = value;
    } else if (x.dtype() == DType::kBF16) {
      x.data<BFloat16>()[i] = BFloat16(value);
    } else {
      x.data<Half>()[i] = Half(value);
    }
  }
  return ops::to_device(ctx, x);
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0.0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

class OpsBench {
 public:
  OpsBench(ops::Context& ctx, const OpsOptions& options,
           const std::function<void(const OpRow&)>& report)
      : ctx_(ctx),
        options_(options),
        report_(report),
        model_(options.model),
        shape_{options.batch, model_.context, model_.heads, model_.kv_heads,
               model_.width / model_.heads},
        rows_(options.batch * model_.context) {
    ops::write_step_state(ctx_, {.updates = 1, .random_key = 1, .learning_rate = 1e-6f});
  }

  void run() {
    const bool gated = model_.activation == nn::ActivationKind::kSwiglu;
    linear("query_key_value", rows_, model_.width, shape_.row());
    attention();
    linear("attention_output", rows_, model_.width, model_.width);
    norm();
    linear("feed_forward_up", rows_, model_.width, gated ? 2 * model_.hidden : model_.hidden);
    activation(gated);
    if (!gated) linear_gelu();
    linear("feed_forward_down", rows_, model_.hidden, model_.width);
    residual();
    elementwise();
    embedding();
    positions();
    loss();
    update();
  }

 private:
  Tensor tensor(const Shape& shape, DType type) { return small_values(ctx_, shape, type); }
  Tensor tensor(const Shape& shape) { return tensor(shape, options_.dtype); }
  Tensor floats(const Shape& shape) { return tensor(shape, DType::kF32); }

  bool wanted(const std::string& op) const { return op.find(options_.only) != std::string::npos; }
  // Returns whether any of these is wanted. If not, their tensors need not be made.
  bool any_wanted(std::initializer_list<std::string> names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return wanted(name); });
  }

  void measure(OpRow row, const Body& body) {
    if (!wanted(row.op)) return;
    body();
    ctx_.stream.synchronize();
    std::vector<double> seconds;
    for (int i = 0; i < options_.repeats; ++i) seconds.push_back(seconds_of(body));
    row.seconds = median(std::move(seconds));
    report_(row);
  }

  // On a GPU the time does not include the host's cost of launching the work and waiting for its
  // end.
  double seconds_of(const Body& body) {
    if (!ctx_.cuda) {
      const Stopwatch watch;
      body();
      return watch.seconds();
    }
    cuda::Event begin(ctx_.cuda, ctx_.device.index, true), end(ctx_.cuda, ctx_.device.index, true);
    begin.record(ctx_.stream);
    body();
    end.record(ctx_.stream);
    end.synchronize();
    return end.seconds_since(begin);
  }

  void linear(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out,
              bool float_output = false) {
    if (!any_wanted({name, name + "_dx", name + "_dw"})) return;
    const Tensor x = tensor({rows, in}), w = tensor({out, in}), dx = tensor({rows, in});
    const Tensor y = float_output ? floats({rows, out}) : tensor({rows, out});
    const Tensor dy = tensor({rows, out}), dw = floats({out, in});
    const std::string shape = fmt::format("{} x {} x {}", rows, in, out);
    const double flops = 2.0 * static_cast<double>(rows * in * out);
    measure({name, shape, 0.0, flops, bytes_of({x, w, y})},
            [&] { ops::linear(ctx_, x, w, Tensor(), y); });
    measure({name + "_dx", shape, 0.0, flops, bytes_of({dy, w, dx})},
            [&] { ops::linear_backward_input(ctx_, dy, w, dx); });
    measure({name + "_dw", shape, 0.0, flops, bytes_of({dy, x, dw, dw})},
            [&] { ops::linear_backward_weight(ctx_, dy, x, dw, Tensor()); });
  }

  // Counts only the causal half: 2 products forward and 5 backward, of 2 T T D / 2 operations each.
  void attention() {
    if (!any_wanted({"attention", "attention_backward", "rotary"})) return;
    const std::int64_t out_row = shape_.heads * shape_.head_size;
    const Tensor qkv = tensor({rows_, shape_.row()}), dqkv = tensor({rows_, shape_.row()});
    const Tensor out = tensor({rows_, out_row}), dout = tensor({rows_, out_row});
    const Tensor log_sum = floats({shape_.batch * shape_.heads * shape_.length});
    const std::string shape = fmt::format("{} x {} x {} x {}", shape_.batch, shape_.length,
                                          shape_.heads, shape_.head_size);
    const double product = static_cast<double>(rows_ * shape_.length * out_row);
    // Runs first, since the backward pass reads its results.
    ops::attention(ctx_, shape_, qkv, Tensor(), out, log_sum);
    measure({"attention", shape, 0.0, 2 * product, bytes_of({qkv, out, log_sum})},
            [&] { ops::attention(ctx_, shape_, qkv, Tensor(), out, log_sum); });
    measure(
        {"attention_backward", shape, 0.0, 5 * product, bytes_of({qkv, out, log_sum, dout, dqkv})},
        [&] { ops::attention_backward(ctx_, shape_, qkv, Tensor(), out, log_sum, dout, dqkv); });
    if (model_.positions != nn::PositionKind::kRotary) return;
    const double turned = static_cast<double>(shape_.heads + shape_.kv_heads) /
                          static_cast<double>(shape_.heads + 2 * shape_.kv_heads);
    measure({"rotary", shape, 0.0, 0.0, turned * bytes_of({qkv, qkv})},
            [&] { ops::rotary(ctx_, shape_, qkv, 0, model_.rotary_theta, false); });
  }

  void norm() {
    const bool rms = model_.norm == nn::NormKind::kRms;
    const std::string name = rms ? "rms_norm" : "layer_norm";
    if (!any_wanted({name, "add_" + name, name + "_dx", name + "_dw"})) return;
    const std::int64_t c = model_.width;
    const Tensor x = tensor({rows_, c}), y = tensor({rows_, c}), dy = tensor({rows_, c});
    const Tensor branch = tensor({rows_, c}), sum = tensor({rows_, c});
    const Tensor w = tensor({c}), b = tensor({c}), mean = floats({rows_}), rstd = floats({rows_});
    const Tensor dw = floats({c}), db = floats({c});
    const std::string shape = fmt::format("{} x {}", rows_, c);
    measure({name, shape, 0.0, 0.0, bytes_of({x, y})}, [&] {
      rms ? ops::rms_norm(ctx_, x, w, 1e-5f, y, rstd)
          : ops::layer_norm(ctx_, x, w, b, 1e-5f, y, mean, rstd);
    });
    measure({"add_" + name, shape, 0.0, 0.0, bytes_of({x, branch, sum, y})}, [&] {
      rms ? ops::add_rms_norm(ctx_, x, branch, w, 1e-5f, sum, y, rstd)
          : ops::add_layer_norm(ctx_, x, branch, w, b, 1e-5f, sum, y, mean, rstd);
    });
    // As in a block, this adds the gradient that x gets from elsewhere.
    measure({name + "_dx", shape, 0.0, 0.0, bytes_of({dy, x, branch, y})}, [&] {
      rms ? ops::rms_norm_backward_input(ctx_, dy, x, w, rstd, branch, y)
          : ops::layer_norm_backward_input(ctx_, dy, x, w, mean, rstd, branch, y);
    });
    measure({name + "_dw", shape, 0.0, 0.0, bytes_of({dy, x})}, [&] {
      rms ? ops::rms_norm_backward_weight(ctx_, dy, x, rstd, dw)
          : ops::layer_norm_backward_weight(ctx_, dy, x, mean, rstd, dw, db);
    });
  }

  void activation(bool gated) {
    const std::string name = gated ? "swiglu" : "gelu";
    if (!any_wanted({name, name + "_backward"})) return;
    const std::int64_t in = gated ? 2 * model_.hidden : model_.hidden;
    const Tensor x = tensor({rows_, in}), dx = tensor({rows_, in});
    const Tensor y = tensor({rows_, model_.hidden});
    const std::string shape = fmt::format("{} x {}", rows_, model_.hidden);
    measure({name, shape, 0.0, 0.0, bytes_of({x, y})},
            [&] { gated ? ops::swiglu(ctx_, x, y) : ops::gelu(ctx_, x, y); });
    measure({name + "_backward", shape, 0.0, 0.0, bytes_of({x, y, dx})}, [&] {
      gated ? ops::swiglu_backward(ctx_, x, y, dx) : ops::gelu_backward(ctx_, x, y, dx);
    });
  }

  // The products next to GELU, forward and backward, each in one operation with GELU and the bias.
  void linear_gelu() {
    if (!any_wanted({"linear_gelu", "linear_gelu_dx"})) return;
    const std::int64_t in = model_.width, out = model_.hidden;
    const Tensor x = tensor({rows_, in}), w = tensor({out, in}), b = tensor({out});
    const Tensor pre = tensor({rows_, out}), y = tensor({rows_, out}), db = floats({out});
    const Tensor w_down = tensor({in, out});
    const double flops = 2.0 * static_cast<double>(rows_ * in * out);
    measure({"linear_gelu", fmt::format("{} x {} x {}", rows_, in, out), 0.0, flops,
             bytes_of({x, w, pre, y})},
            [&] { ops::linear_gelu(ctx_, x, w, b, pre, y); });
    measure({"linear_gelu_dx", fmt::format("{} x {} x {}", rows_, out, in), 0.0, flops,
             bytes_of({x, w_down, pre, y})},
            [&] { ops::linear_backward_input_gelu(ctx_, x, w_down, pre, y, db); });
  }

  void residual() {
    if (!wanted("add")) return;
    const Shape shape{rows_, model_.width};
    const Tensor a = tensor(shape), b = tensor(shape), y = tensor(shape);
    measure({"add", fmt::format("{} x {}", rows_, model_.width), 0.0, 0.0, bytes_of({a, b, y})},
            [&] { ops::add(ctx_, a, b, y); });
  }

  // Operations that only some models have: dropout, the gradient of a bias, casts between types.
  void elementwise() {
    if (!any_wanted({"dropout", "add_column_sums", "cast"})) return;
    const Shape shape{rows_, model_.width};
    const std::string text = fmt::format("{} x {}", rows_, model_.width);
    const Tensor x = tensor(shape), y = tensor(shape), whole = floats(shape);
    const Tensor sums = floats({model_.width});
    const Tensor samples = ctx_.allocate_host({options_.batch}, DType::kI64);
    for (std::int64_t i = 0; i < options_.batch; ++i) samples.data<std::int64_t>()[i] = i;
    const ops::DropoutPlace place{.length = model_.context,
                                  .samples = ops::to_device(ctx_, samples)};
    measure({"dropout", text, 0.0, 0.0, bytes_of({x, y})},
            [&] { ops::dropout(ctx_, x, 0.1f, place, y); });
    measure({"add_column_sums", text, 0.0, 0.0, bytes_of({x})},
            [&] { ops::add_column_sums(ctx_, x, sums); });
    measure({"cast", text, 0.0, 0.0, bytes_of({whole, y})}, [&] { ops::cast(ctx_, whole, y); });
  }

  Tensor tokens(std::int64_t rows) {
    const Tensor numbers = ctx_.allocate_host({rows}, DType::kI32);
    for (std::int64_t i = 0; i < rows; ++i) {
      numbers.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % model_.vocabulary);
    }
    return ops::to_device(ctx_, numbers);
  }

  void embedding() {
    if (!any_wanted({"embedding", "embedding_backward"})) return;
    const Tensor table = tensor({model_.vocabulary, model_.width});
    const Tensor dtable = floats({model_.vocabulary, model_.width});
    const Tensor y = tensor({rows_, model_.width}), numbers = tokens(rows_);
    const std::string shape = fmt::format("{} x {}", rows_, model_.width);
    // Rows of the gradient are read and written only for tokens that occur. tokens() repeats a
    // token only once it has used all of them.
    const double gradient = 2.0 * sizeof(float) * static_cast<double>(model_.width) *
                            static_cast<double>(std::min(rows_, model_.vocabulary));
    measure({"embedding", shape, 0.0, 0.0, bytes_of({y, y})},
            [&] { ops::embedding(ctx_, numbers, table, 0, y); });
    measure({"embedding_backward", shape, 0.0, 0.0, bytes_of({y}) + gradient},
            [&] { ops::embedding_backward(ctx_, numbers, y, 0, dtable); });
  }

  void positions() {
    if (model_.positions != nn::PositionKind::kLearned) return;
    if (!any_wanted({"add_positions", "add_positions_backward"})) return;
    const Tensor table = tensor({model_.context, model_.width});
    const Tensor dtable = floats({model_.context, model_.width});
    const Tensor x = tensor({rows_, model_.width}), y = tensor({rows_, model_.width});
    const std::string shape = fmt::format("{} x {}", rows_, model_.width);
    measure({"add_positions", shape, 0.0, 0.0, bytes_of({x, y, table})},
            [&] { ops::add_positions(ctx_, x, table, 0, model_.context, 0, y); });
    measure({"add_positions_backward", shape, 0.0, 0.0, bytes_of({y, dtable, dtable})},
            [&] { ops::add_positions_backward(ctx_, y, 0, model_.context, dtable); });
  }

  // Measures one slice of rows, as the loss processes them.
  void loss() {
    const std::int64_t classes = model_.vocabulary;
    const std::int64_t rows = std::clamp<std::int64_t>(kLogitBytes / (classes * 4), 1, rows_);
    linear("head", rows, model_.width, classes, /*float_output=*/true);
    if (!any_wanted({"softmax_statistics", "softmax_gradient", "softmax_loss_sum"})) return;
    const Tensor logits = floats({rows, classes}), dlogits = tensor({rows, classes});
    const Tensor top = floats({rows}), sum = floats({rows}), target = floats({rows});
    const Tensor targets = tokens(rows);
    const std::string shape = fmt::format("{} x {}", rows, classes);
    ops::softmax_statistics(ctx_, logits, targets, 0, classes, top, sum, target);
    measure({"softmax_statistics", shape, 0.0, 0.0, bytes_of({logits})},
            [&] { ops::softmax_statistics(ctx_, logits, targets, 0, classes, top, sum, target); });
    measure({"softmax_gradient", shape, 0.0, 0.0, bytes_of({logits, dlogits})},
            [&] { ops::softmax_gradient(ctx_, logits, targets, 0, classes, top, sum, dlogits); });
    const Tensor loss = ctx_.allocate({1}, DType::kF64);
    ops::fill(ctx_, loss, 0.0f);
    measure({"softmax_loss_sum", fmt::format("{}", rows), 0.0, 0.0,
             bytes_of({targets, top, sum, target})},
            [&] { ops::softmax_loss_sum(ctx_, targets, top, sum, target, loss); });
  }

  void update() {
    if (!any_wanted({"adamw_step", "add_sum_of_squares", "fill"})) return;
    const std::int64_t n =
        std::min(kMostUpdated, models::gpt_plan(model_).parameters / model_.layers);
    const Tensor master = floats({n}), gradient = floats({n}), first = floats({n});
    const Tensor second = floats({n}), limbs = ctx_.allocate({kExactLimbs}, DType::kI64);
    const bool copies = options_.dtype != DType::kF32;
    const Tensor weights = copies ? tensor({n}) : master;
    ops::fill(ctx_, second, 0.5f);
    ops::fill(ctx_, limbs, 0.0f);
    const double copied = copies ? bytes_of({weights}) : 0.0;
    measure({"adamw_step", fmt::format("{}", n), 0.0, 0.0,
             bytes_of({master, master, gradient, first, first, second, second}) + copied},
            [&] { ops::adamw_step(ctx_, {}, master, gradient, first, second, weights); });
    measure({"add_sum_of_squares", fmt::format("{}", n), 0.0, 0.0, bytes_of({gradient})},
            [&] { ops::add_sum_of_squares(ctx_, gradient, 0, limbs); });
    measure({"fill", fmt::format("{}", n), 0.0, 0.0, bytes_of({gradient})},
            [&] { ops::fill(ctx_, gradient, 0.0f); });
  }

  ops::Context& ctx_;
  const OpsOptions& options_;
  const std::function<void(const OpRow&)>& report_;
  const models::GptConfig& model_;
  ops::AttentionShape shape_;
  std::int64_t rows_;
};

// Collective over comm. Returns the seconds of a square product on the slowest rank, the best of a
// few rounds.
double seconds_of_product(Communicator& comm, ops::Context& ctx, DType dtype, std::int64_t side) {
  constexpr int kRounds = 3;
  const Shape square{side, side};
  const Tensor a = small_values(ctx, square, dtype);
  const Tensor b = small_values(ctx, square, dtype);
  const Tensor c = ctx.allocate(square, dtype, MemoryUse::kWorkspace);
  ctx.stream.synchronize();
  double least = 0.0;
  for (int round = 0; round <= kRounds; ++round) {
    comm.barrier().wait_host();
    const Stopwatch watch;
    ops::matmul(ctx, a, ops::Transpose::kNo, b, ops::Transpose::kYes, 0.0f, c);
    ctx.stream.synchronize();
    const double slowest = comm.all_reduce_host(watch.seconds(), ReduceOp::kMax);
    if (round == 1 || slowest < least) least = slowest;  // the first round is a warm-up
  }
  return least;
}

}  // namespace

double Roof::floor(double operations, double bytes) const {
  return std::max(operations / flops, bytes / bandwidth);
}

Roof measure_roof(Communicator& comm, ops::Context& ctx, DType dtype) {
  constexpr std::int64_t kLargest = 8192;
  constexpr double kLongEnough = 0.05;  // seconds
  Roof roof{.flops = 0.0, .bandwidth = scaling::measure_memory_bandwidth(comm, ctx)};
  double seconds = 0.0;
  for (std::int64_t side = 256; side <= kLargest && seconds < kLongEnough; side *= 2) {
    seconds = seconds_of_product(comm, ctx, dtype, side);
    const double cube = static_cast<double>(side) * side * side;
    roof.flops = std::max(roof.flops, 2.0 * cube * comm.size() / seconds);
  }
  return roof;
}

void measure_ops(ops::Context& ctx, const OpsOptions& options,
                 const std::function<void(const OpRow&)>& report) {
  OpsBench(ctx, options, report).run();
}

}  // namespace trireme::bench
