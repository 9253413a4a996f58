#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/exact_sum.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/batch_norm.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/normed_depthwise.h"
#include "trireme/ops/pooling.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/update.h"
#include "trireme/study/bench.h"
#include "trireme/study/scaling_study.h"

#include "study/operation_timer.h"

namespace trireme::bench {
namespace {

using Body = std::function<void()>;

constexpr std::int64_t kMostUpdated = std::int64_t{16} << 20;  // elements; larger than any cache
constexpr std::int64_t kDocuments = 4;                         // of a masked sample

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
        timer_(ctx, {.cold = options.cold, .graph = options.graphs}) {
    ops::write_step_state(ctx_, {.updates = 1, .random_key = 1, .learning_rate = 1e-6f});
  }

  void run() {
    for (const models::Operation& operation : options_.model.operations(options_.batch)) {
      if (options_.products && !std::holds_alternative<models::LinearSizes>(operation) &&
          !std::holds_alternative<models::LossSizes>(operation)) {
        continue;
      }
      std::visit([this](const auto& sizes) { measure_all(sizes); }, operation);
    }
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
    row.seconds = median(timer_.repeats(body, options_.repeats));
    report_(row);
  }

  void measure_all(const models::LinearSizes& sizes) { linear(sizes, false); }
  void linear(const models::LinearSizes& sizes, bool float_output) {
    const auto& [name, rows, in, out] = sizes;
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

  // The keys of the positions of so many documents of equal length in each sample.
  ops::KeyRanges keys_of_documents(const ops::AttentionShape& shape, std::int64_t documents) {
    const std::int64_t rows = shape.batch * shape.length, length = shape.length / documents;
    const Tensor first = ctx_.allocate_host({rows}, DType::kI32);
    const Tensor end = ctx_.allocate_host({rows}, DType::kI32);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = row % shape.length / length * length;
      first.data<std::int32_t>()[row] = static_cast<std::int32_t>(begin);
      end.data<std::int32_t>()[row] = static_cast<std::int32_t>(begin + length);
    }
    if (shape.causal) return ops::to_device(ctx_, first);
    return {ops::to_device(ctx_, first), ops::to_device(ctx_, end)};
  }

  // There are 2 products forward and 5 backward, of 2 T T D operations each, of which causal
  // attention counts half, and of several documents only what is within them.
  void measure_attention(const ops::AttentionShape& shape, const Tensor& qkv, std::string text,
                         std::int64_t documents = 1) {
    ops::KeyRanges keys;
    ops::AttentionShape computed = shape;  // each document a sample
    if (documents > 1) {
      keys = keys_of_documents(shape, documents);
      computed.batch *= documents;
      computed.length /= documents;
      text += fmt::format(", {} documents", documents);
    }
    const std::int64_t rows = shape.batch * shape.length;
    const std::int64_t out_row = shape.heads * shape.head_size;
    const Tensor dqkv = tensor({rows, shape.row()});
    const Tensor out = tensor({rows, out_row}), dout = tensor({rows, out_row});
    const Tensor log_sum = floats({shape.batch * shape.heads * shape.length});
    const double product =
        2.0 * computed.pairs() * static_cast<double>(computed.batch) * static_cast<double>(out_row);
    // The forward runs first, since the backward pass reads its results.
    ops::attention(ctx_, shape, qkv, keys, out, log_sum);
    measure({"attention", text, 0.0, 2 * product, bytes_of({qkv, out, log_sum})},
            [&] { ops::attention(ctx_, shape, qkv, keys, out, log_sum); });
    measure(
        {"attention_backward", text, 0.0, 5 * product, bytes_of({qkv, out, log_sum, dout, dqkv})},
        [&] { ops::attention_backward(ctx_, shape, qkv, keys, out, log_sum, dout, dqkv); });
  }

  void measure_all(const models::AttentionSizes& sizes) {
    if (!any_wanted({"attention", "attention_backward", "rotary"})) return;
    ops::AttentionShape shape = sizes.shape;
    const std::string text =
        fmt::format("{} x {} x {} x {}", shape.batch, shape.length, shape.heads, shape.head_size);
    const Tensor qkv = tensor({shape.batch * shape.length, shape.row()});
    if (shape.reads_windows()) {  // other layers read all
      measure_attention(shape, qkv, fmt::format("{}, {} keys", text, shape.window));
      shape.window = 0;
    }
    measure_attention(shape, qkv, text);
    if (shape.length % kDocuments == 0) measure_attention(shape, qkv, text, kDocuments);
    if (sizes.rotation.frequencies.empty()) return;
    const double turned = static_cast<double>(shape.heads + shape.kv_heads) /
                          static_cast<double>(shape.heads + 2 * shape.kv_heads);
    measure({"rotary", text, 0.0, 0.0, turned * bytes_of({qkv, qkv})},
            [&] { ops::rotary(ctx_, shape, qkv, 0, sizes.rotation, false); });
  }

  void measure_all(const models::NormSizes& sizes) {
    const auto& [kind, rows, c] = sizes;
    const bool rms = kind == nn::NormKind::kRms;
    const std::string name = rms ? "rms_norm" : "layer_norm";
    if (!any_wanted({name, "add_" + name, name + "_dx", name + "_dw", name + "_backward"})) return;
    const Tensor x = tensor({rows, c}), y = tensor({rows, c}), dy = tensor({rows, c});
    const Tensor branch = tensor({rows, c}), sum = tensor({rows, c});
    const Tensor w = tensor({c}), b = tensor({c}), mean = floats({rows}), rstd = floats({rows});
    const Tensor dw = floats({c}), db = floats({c});
    const std::string shape = fmt::format("{} x {}", rows, c);
    measure({name, shape, 0.0, 0.0, bytes_of({x, y})}, [&] {
      rms ? ops::rms_norm(ctx_, x, w, 1e-5f, y, rstd)
          : ops::layer_norm(ctx_, x, w, b, 1e-5f, y, mean, rstd);
    });
    measure({"add_" + name, shape, 0.0, 0.0, bytes_of({x, branch, sum, y})}, [&] {
      rms ? ops::add_rms_norm(ctx_, x, branch, w, 1e-5f, sum, y, rstd)
          : ops::add_layer_norm(ctx_, x, branch, w, b, 1e-5f, sum, y, mean, rstd);
    });
    // This adds the gradient that x gets from elsewhere, as in a block.
    measure({name + "_dx", shape, 0.0, 0.0, bytes_of({dy, x, branch, y})}, [&] {
      rms ? ops::rms_norm_backward_input(ctx_, dy, x, w, rstd, branch, y)
          : ops::layer_norm_backward_input(ctx_, dy, x, w, mean, rstd, branch, y);
    });
    measure({name + "_dw", shape, 0.0, 0.0, bytes_of({dy, x})}, [&] {
      rms ? ops::rms_norm_backward_weight(ctx_, dy, x, rstd, dw)
          : ops::layer_norm_backward_weight(ctx_, dy, x, mean, rstd, dw, db);
    });
    measure({name + "_backward", shape, 0.0, 0.0, bytes_of({dy, x, branch, y})}, [&] {
      rms ? ops::rms_norm_backward(ctx_, dy, x, w, rstd, branch, y, dw)
          : ops::layer_norm_backward(ctx_, dy, x, w, mean, rstd, branch, y, dw, db);
    });
  }

  void measure_all(const models::ActivationSizes& sizes) {
    const auto& [kind, rows, hidden] = sizes;
    const bool gated = kind == nn::ActivationKind::kSwiglu;
    const bool by_erf = kind == nn::ActivationKind::kGeluErf;
    const std::string name = gated ? "swiglu" : by_erf ? "gelu_erf" : "gelu";
    const auto forward = gated ? ops::swiglu : by_erf ? ops::gelu_erf : ops::gelu;
    const auto backward = gated    ? ops::swiglu_backward
                          : by_erf ? ops::gelu_erf_backward
                                   : ops::gelu_backward;
    if (!any_wanted({name, name + "_backward"})) return;
    const std::int64_t in = gated ? 2 * hidden : hidden;
    const Tensor x = tensor({rows, in}), dx = tensor({rows, in});
    const Tensor y = tensor({rows, hidden});
    const std::string shape = fmt::format("{} x {}", rows, hidden);
    measure({name, shape, 0.0, 0.0, bytes_of({x, y})}, [&] { forward(ctx_, x, y); });
    measure({name + "_backward", shape, 0.0, 0.0, bytes_of({x, y, dx})},
            [&] { backward(ctx_, x, y, dx); });
  }

  // The products next to GELU, forward and backward, each in one operation with GELU and the bias.
  void measure_all(const models::LinearGeluSizes& sizes) {
    if (!any_wanted({"linear_gelu", "linear_gelu_dx"})) return;
    const auto& [rows, in, out] = sizes;
    const Tensor x = tensor({rows, in}), w = tensor({out, in}), b = tensor({out});
    const Tensor pre = tensor({rows, out}), y = tensor({rows, out}), db = floats({out});
    const Tensor w_down = tensor({in, out});
    const double flops = 2.0 * static_cast<double>(rows * in * out);
    measure({"linear_gelu", fmt::format("{} x {} x {}", rows, in, out), 0.0, flops,
             bytes_of({x, w, pre, y})},
            [&] { ops::linear_gelu(ctx_, x, w, b, pre, y); });
    measure({"linear_gelu_dx", fmt::format("{} x {} x {}", rows, out, in), 0.0, flops,
             bytes_of({x, w_down, pre, y})},
            [&] { ops::linear_backward_input_gelu(ctx_, x, w_down, pre, y, db); });
  }

  void measure_all(const models::AddSizes& sizes) {
    if (!wanted("add")) return;
    const Shape shape{sizes.rows, sizes.width};
    const Tensor a = tensor(shape), b = tensor(shape), y = tensor(shape);
    measure({"add", fmt::format("{} x {}", sizes.rows, sizes.width), 0.0, 0.0, bytes_of({a, b, y})},
            [&] { ops::add(ctx_, a, b, y); });
  }

  // Operations that only some models have: dropout, the gradient of a bias, casts between types.
  void measure_all(const models::ElementwiseSizes& sizes) {
    const auto& [rows, length, width] = sizes;
    if (!any_wanted({"dropout", "add_bias", "add_column_sums", "cast"})) return;
    const Shape shape{rows, width};
    const std::string text = fmt::format("{} x {}", rows, width);
    const Tensor x = tensor(shape), y = tensor(shape), whole = floats(shape);
    const Tensor sums = floats({width});
    const Tensor samples = ctx_.allocate_host({options_.batch}, DType::kI64);
    for (std::int64_t i = 0; i < options_.batch; ++i) samples.data<std::int64_t>()[i] = i;
    const ops::DropoutPlace place{.length = length, .samples = ops::to_device(ctx_, samples)};
    measure({"dropout", text, 0.0, 0.0, bytes_of({x, y})},
            [&] { ops::dropout(ctx_, x, 0.1f, place, y); });
    const Tensor bias = tensor({width});
    measure({"add_bias", text, 0.0, 0.0, bytes_of({x, x})}, [&] { ops::add_bias(ctx_, x, bias); });
    measure({"add_column_sums", text, 0.0, 0.0, bytes_of({x})},
            [&] { ops::add_column_sums(ctx_, x, sums); });
    measure({"cast", text, 0.0, 0.0, bytes_of({whole, y})}, [&] { ops::cast(ctx_, whole, y); });
  }

  Tensor tokens(std::int64_t rows, std::int64_t vocabulary) {
    const Tensor numbers = ctx_.allocate_host({rows}, DType::kI32);
    for (std::int64_t i = 0; i < rows; ++i) {
      numbers.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
    }
    return ops::to_device(ctx_, numbers);
  }

  void measure_all(const models::EmbeddingSizes& sizes) {
    const auto& [rows, vocabulary, width] = sizes;
    if (!any_wanted({"embedding", "embedding_backward"})) return;
    const Tensor table = tensor({vocabulary, width});
    const Tensor dtable = floats({vocabulary, width});
    const Tensor y = tensor({rows, width}), numbers = tokens(rows, vocabulary);
    const std::string shape = fmt::format("{} x {}", rows, width);
    // Rows of the gradient are read and written only for tokens that occur. tokens() repeats a
    // token only once it has used all of them.
    const double gradient = 2.0 * sizeof(float) * static_cast<double>(width) *
                            static_cast<double>(std::min(rows, vocabulary));
    measure({"embedding", shape, 0.0, 0.0, bytes_of({y, y})},
            [&] { ops::embedding(ctx_, numbers, table, 0, y); });
    measure({"embedding_backward", shape, 0.0, 0.0, bytes_of({y}) + gradient},
            [&] { ops::embedding_backward(ctx_, numbers, y, 0, dtable); });
  }

  void measure_all(const models::PositionsSizes& sizes) {
    const auto& [rows, length, width] = sizes;
    if (!any_wanted({"add_positions", "add_positions_backward"})) return;
    const Tensor table = tensor({length, width});
    const Tensor dtable = floats({length, width});
    const Tensor x = tensor({rows, width}), y = tensor({rows, width});
    const std::string shape = fmt::format("{} x {}", rows, width);
    measure({"add_positions", shape, 0.0, 0.0, bytes_of({x, y, table})},
            [&] { ops::add_positions(ctx_, x, table, 0, length, 0, y); });
    measure({"add_positions_backward", shape, 0.0, 0.0, bytes_of({y, dtable, dtable})},
            [&] { ops::add_positions_backward(ctx_, y, 0, length, dtable); });
  }

  void measure_all(const models::ConvolutionSizes& sizes) {
    const ops::ConvolutionShape& shape = sizes.shape;
    const std::string name = shape.depthwise() ? "depthwise" : "convolution";
    if (!any_wanted({name, name + "_dx", name + "_dw", name + "_backward", name + "_normed",
                     name + "_normed_backward"})) {
      return;
    }
    const Tensor x = tensor(shape.input()), y = tensor(shape.output());
    const Tensor w = tensor(shape.weight()), dw = floats(shape.weight());
    const std::string text =
        fmt::format("{}x{} {}->{}, {}x{}{}", shape.height, shape.width, shape.in_channels,
                    shape.out_channels, shape.kernel_height, shape.kernel_width,
                    shape.stride > 1 ? fmt::format("/{}", shape.stride) : "");
    const double flops =
        2.0 * static_cast<double>(y.elements() * shape.taps() * shape.group_channels());
    measure({name, text, 0.0, flops, bytes_of({x, w, y})},
            [&] { ops::convolution(ctx_, shape, x, w, Tensor(), y); });
    measure({name + "_dx", text, 0.0, flops, bytes_of({y, w, x})},
            [&] { ops::convolution_backward_input(ctx_, shape, y, w, x); });
    measure({name + "_dw", text, 0.0, flops, bytes_of({y, x, dw, dw})},
            [&] { ops::convolution_backward_weight(ctx_, shape, y, x, dw, Tensor()); });
    if (!ops::convolution_backward_is_one_pass(ctx_, shape)) return;
    const Tensor dx = tensor(shape.input());
    measure({name + "_backward", text, 0.0, 2.0 * flops, bytes_of({y, x, w, dx, dw, dw})},
            [&] { ops::convolution_backward(ctx_, shape, y, x, w, dx, dw); });
    if (!ops::depthwise_takes_norms(ctx_, shape)) return;
    const std::int64_t channels = shape.in_channels;
    const Tensor moments = floats({2, channels}), pairs = floats({2, channels});
    const ops::BatchNorm norm{.moments = moments,
                              .weight = tensor({channels}),
                              .bias = tensor({channels}),
                              .clamp = ops::kRelu6};
    ops::batch_moments(ctx_, x.reshape({x.shape().rows(), channels}), moments);
    measure({name + "_normed", text, 0.0, flops, bytes_of({x, w, y})},
            [&] { ops::normed_depthwise(ctx_, shape, norm, x, w, y, pairs); });
    measure({name + "_normed_backward", text, 0.0, 2.0 * flops, bytes_of({y, x, w, dx, dw, dw})},
            [&] { ops::normed_depthwise_backward(ctx_, shape, norm, y, x, w, dx, pairs, dw); });
  }

  void measure_all(const models::BatchNormSizes& sizes) {
    if (!any_wanted({"batch_moments", "batch_norm", "batch_norm_sums", "batch_norm_dx"})) return;
    const Shape shape{sizes.rows, sizes.channels};
    const Tensor x = tensor(shape), y = tensor(shape), dy = tensor(shape);
    const Tensor residual = sizes.adds_residual ? tensor(shape) : Tensor();
    const Tensor moments = floats({2, sizes.channels}), sums = floats({2, sizes.channels});
    const ops::BatchNorm norm{.moments = moments,
                              .weight = tensor({sizes.channels}),
                              .bias = tensor({sizes.channels}),
                              .clamp = sizes.clamps ? ops::kRelu6 : ops::kNoClamp};
    const std::string text =
        fmt::format("{} x {}{}", sizes.rows, sizes.channels, sizes.adds_residual ? ", added" : "");
    // This runs first, since the others read its result.
    ops::batch_moments(ctx_, x, moments);
    measure({"batch_moments", text, 0.0, 0.0, bytes_of({x})},
            [&] { ops::batch_moments(ctx_, x, moments); });
    measure({"batch_norm", text, 0.0, 0.0,
             bytes_of({x, y}) + (sizes.adds_residual ? bytes_of({residual}) : 0.0)},
            [&] { ops::batch_norm(ctx_, norm, x, residual, y); });
    measure({"batch_norm_sums", text, 0.0, 0.0, bytes_of({dy, x})},
            [&] { ops::batch_norm_backward_sums(ctx_, norm, dy, x, y, sums); });
    measure({"batch_norm_dx", text, 0.0, 0.0, bytes_of({dy, x, y})}, [&] {
      ops::batch_norm_backward(ctx_, norm, dy, x, Tensor(), sums, sizes.rows, Tensor(), y);
    });
  }

  void measure_all(const models::MaxPoolingSizes& sizes) {
    if (!any_wanted({"max_pooling", "max_pooling_backward"})) return;
    const ops::PoolingShape& shape = sizes.shape;
    const Tensor x = tensor(shape.input()), y = tensor(shape.output());
    const Tensor which = ctx_.allocate(shape.output(), DType::kI32);
    const std::string text = fmt::format("{}x{} {}", shape.height, shape.width, shape.channels);
    // This runs first, since the backward reads `which`.
    ops::max_pooling(ctx_, shape, x, y, which);
    measure({"max_pooling", text, 0.0, 0.0, bytes_of({x, y, which})},
            [&] { ops::max_pooling(ctx_, shape, x, y, which); });
    measure({"max_pooling_backward", text, 0.0, 0.0, bytes_of({x, y, which})},
            [&] { ops::max_pooling_backward(ctx_, shape, y, which, x); });
  }

  void measure_all(const models::GlobalPoolingSizes& sizes) {
    if (!any_wanted({"pooling", "pooling_backward"})) return;
    const auto shape =
        ops::PoolingShape::global(sizes.samples, sizes.side, sizes.side, sizes.channels);
    const Tensor x = tensor(shape.input()), y = tensor(shape.output());
    const std::string text = fmt::format("{}x{} {}", shape.height, shape.width, shape.channels);
    measure({"pooling", text, 0.0, 0.0, bytes_of({x, y})},
            [&] { ops::average_pooling(ctx_, shape, x, y); });
    measure({"pooling_backward", text, 0.0, 0.0, bytes_of({x, y})},
            [&] { ops::average_pooling_backward(ctx_, shape, y, x); });
  }

  void measure_all(const models::ClassificationLossSizes& sizes) {
    if (!any_wanted({"classification_loss", "count_correct"})) return;
    const Tensor logits = tensor({sizes.samples, sizes.classes});
    const Tensor dlogits = tensor({sizes.samples, sizes.classes});
    const Tensor targets = tokens(sizes.samples, sizes.classes);
    const Tensor sum = ctx_.allocate({1}, DType::kF64), counts = ctx_.allocate({2}, DType::kI64);
    ops::fill(ctx_, sum, 0.0f);
    ops::fill(ctx_, counts, 0.0f);
    const std::string text = fmt::format("{} x {}", sizes.samples, sizes.classes);
    measure({"classification_loss", text, 0.0, 0.0, bytes_of({logits, dlogits})},
            [&] { ops::classification_loss(ctx_, logits, targets, 0.0f, sum, dlogits); });
    measure({"count_correct", text, 0.0, 0.0, bytes_of({logits})},
            [&] { ops::count_correct(ctx_, logits, targets, counts); });
  }

  // Measures one slice of rows, as the loss processes them.
  void measure_all(const models::LossSizes& sizes) {
    const std::int64_t classes = nn::vocabulary_rows_in_memory(sizes.classes, 1);
    const DType type = nn::type_of_logits(sizes.logits, options_.dtype);
    const std::int64_t rows = nn::loss_slice_rows({.rows = sizes.rows,
                                                   .classes = classes,
                                                   .compute = options_.dtype,
                                                   .gpu_memory = ctx_.gpu_memory,
                                                   .logits = type});
    linear({"head", rows, sizes.width, classes}, /*float_output=*/type == DType::kF32);
    if (options_.products) return;
    if (!any_wanted({"softmax_statistics", "softmax_gradient", "softmax_and_gradient",
                     "softmax_loss_sum"})) {
      return;
    }
    const Tensor logits = tensor({rows, classes}, type), dlogits = tensor({rows, classes});
    const Tensor top = floats({rows}), sum = floats({rows}), target = floats({rows});
    const Tensor targets = tokens(rows, classes);
    const std::string shape = fmt::format("{} x {}", rows, classes);
    ops::softmax_statistics(ctx_, logits, targets, 0, classes, top, sum, target);
    measure({"softmax_statistics", shape, 0.0, 0.0, bytes_of({logits})},
            [&] { ops::softmax_statistics(ctx_, logits, targets, 0, classes, top, sum, target); });
    measure({"softmax_gradient", shape, 0.0, 0.0, bytes_of({logits, dlogits})},
            [&] { ops::softmax_gradient(ctx_, logits, targets, 0, classes, top, sum, dlogits); });
    measure({"softmax_and_gradient", shape, 0.0, 0.0, bytes_of({logits, dlogits})}, [&] {
      ops::softmax_and_gradient(ctx_, logits, targets, classes, top, sum, target, dlogits);
    });
    const Tensor loss = ctx_.allocate({1}, DType::kF64);
    ops::fill(ctx_, loss, 0.0f);
    measure({"softmax_loss_sum", fmt::format("{}", rows), 0.0, 0.0,
             bytes_of({targets, top, sum, target})},
            [&] { ops::softmax_loss_sum(ctx_, targets, top, sum, target, loss); });
  }

  void measure_all(const models::UpdateSizes& sizes) {
    if (!any_wanted({"adamw_step", "add_sum_of_squares", "fill"})) return;
    const std::int64_t n = std::min(kMostUpdated, sizes.elements);
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
  OperationTimer timer_;
};

// A square product that all ranks make at the same time.
class SquareProduct {
 public:
  SquareProduct(Communicator& comm, ops::Context& ctx, DType dtype, std::int64_t side)
      : comm_(comm),
        ctx_(ctx),
        a_(small_values(ctx, {side, side}, dtype)),
        b_(small_values(ctx, {side, side}, dtype)),
        c_(ctx.allocate({side, side}, dtype, MemoryUse::kWorkspace)) {
    ctx_.stream.synchronize();
  }

  double operations() const { return 2.0 * static_cast<double>(c_.elements() * c_.shape()[0]); }

  // Collective. The seconds of so many, one after the other, on the slowest rank.
  double seconds(int count) {
    comm_.barrier().wait_host();
    const Stopwatch watch;
    for (int i = 0; i < count; ++i) {
      ops::matmul(ctx_, a_, ops::Transpose::kNo, b_, ops::Transpose::kYes, 0.0f, c_);
    }
    ctx_.stream.synchronize();
    return comm_.all_reduce_host(watch.seconds(), ReduceOp::kMax);
  }
  // Collective. The same of one, the best of a few after a warm-up.
  double least_seconds() {
    constexpr int kRounds = 3;
    seconds(1);
    double least = seconds(1);
    for (int round = 1; round < kRounds; ++round) least = std::min(least, seconds(1));
    return least;
  }

 private:
  Communicator& comm_;
  ops::Context& ctx_;
  Tensor a_, b_, c_;
};

}  // namespace

double Roof::floor(double operations, double bytes) const {
  return std::max(operations / flops, bytes / bandwidth);
}

Roof measure_roof(Communicator& comm, ops::Context& ctx, DType dtype) {
  constexpr std::int64_t kLargest = 8192;
  constexpr double kLongEnough = 0.05, kSustained = 1.0;  // seconds
  Roof roof{.flops = 0.0, .bandwidth = scaling::measure_memory_bandwidth(comm, ctx)};
  double seconds = 0.0;
  for (std::int64_t side = 256; side <= kLargest && seconds < kLongEnough; side *= 2) {
    SquareProduct product(comm, ctx, dtype, side);
    seconds = product.least_seconds();
    const double all = product.operations() * comm.size();
    roof.flops = std::max(roof.flops, all / seconds);
    const bool last = 2 * side > kLargest || seconds >= kLongEnough;
    if (!ctx.cuda || !last) continue;
    const int count = static_cast<int>(std::ceil(kSustained / seconds));  // equal on all ranks
    roof.sustained = all * count / product.seconds(count);
  }
  return roof;
}

void measure_ops(ops::Context& ctx, const OpsOptions& options,
                 const std::function<void(const OpRow&)>& report) {
  OpsBench(ctx, options, report).run();
}

}  // namespace trireme::bench
