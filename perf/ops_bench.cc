// Speed of the operations at the shapes of a GPT-2 124M step (width 768, 12 heads of 64).
// ops_bench [THREADS [FILTER]]: one line per operation, shape and type, with its best time of as
// many runs as fit in a tenth of a second; GFLOP/s where arithmetic counts, else GB/s of memory
// read and written.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/update.h"

namespace trireme {
namespace {

using ops::Transpose;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

class Bench {
 public:
  Bench(int threads, std::string filter)
      : ctx(ops::make_cpu_context(threads)), filter_(std::move(filter)) {
    *ctx.step_state = {.step = 1, .random_key = 1, .learning_rate = 1e-6f};
    fmt::print("{}, {} threads, {}; fp32 products: {}; bf16 products: {}\n", processor(), threads,
               ops::instruction_set(ctx), ops::matmul_description(ctx, DType::kF32),
               ops::matmul_description(ctx, DType::kBF16));
  }

  void run() {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      dtype = type;
      matmuls();
      attention(4, 256);
      attention(4, 1024);
      generation();
      pointwise(1024);
      rows(1024);
    }
    dtype = DType::kF32;
    updates();
  }

 private:
  // Small random-looking values: neither denormal nor growing when a product is repeated.
  Tensor tensor(const Shape& shape, DType type) {
    const Tensor x = ctx.allocate(shape, type);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const float value = static_cast<float>((i * 7919) % 1009) / 1009.0f - 0.5f;
      if (type == DType::kF32) {
        x.data<float>()[i] = value;
      } else {
        x.data<BFloat16>()[i] = BFloat16(value);
      }
    }
    return x;
  }
  Tensor tensor(const Shape& shape) { return tensor(shape, dtype); }
  double gigabytes(std::int64_t elements) const {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype)) * 1e-9;
  }

  void measure(const std::string& name, double amount, const char* unit,
               const std::function<void()>& body) {
    if (name.find(filter_) == std::string::npos) return;
    body();
    double best = std::numeric_limits<double>::infinity();
    const Stopwatch total;
    while (total.seconds() < 0.1) {
      const Stopwatch once;
      body();
      best = std::min(best, once.seconds());
    }
    fmt::print("{:<44} {} {:9.3f} ms {:8.1f} {}\n", name, name_of(dtype), best * 1e3, amount / best,
               unit);
    std::fflush(stdout);
  }

  void matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool add) {
    const Tensor a = tensor(ta ? Shape{k, m} : Shape{m, k});
    const Tensor b = tensor(tb ? Shape{n, k} : Shape{k, n});
    const Tensor c = tensor({m, n}, add ? DType::kF32 : dtype);
    measure(fmt::format("matmul {}{} {}{}{}", m, ta ? "^T" : "", k, tb ? "^T " : " ", n) +
                (add ? " accumulate" : ""),
            2e-9 * static_cast<double>(m * n * k), "GFLOP/s", [&] {
              ops::matmul(ctx, a, ta ? Transpose::kYes : Transpose::kNo, b,
                          tb ? Transpose::kYes : Transpose::kNo, add ? 1.0f : 0.0f, c);
            });
  }

  void matmuls() {
    for (const std::int64_t rows : {256, 1024}) {
      for (const auto& [in, out] : {std::pair{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}}) {
        matmul(rows, out, in, false, true, false);   // forward
        matmul(rows, in, out, false, false, false);  // gradient of the input
        matmul(out, in, rows, true, false, true);    // gradient of the weight
      }
    }
    matmul(256, 50304, 768, false, true, false);
    matmul(50304, 768, 256, true, false, true);
    matmul(1024, 1024, 1024, false, false, false);
    matmul(1, 3072, 768, false, true, false);
    matmul(4, 3072, 768, false, true, false);
    const Tensor x = tensor({1024, 768}), w = tensor({3072, 768}), b = tensor({3072});
    const Tensor y = tensor({1024, 3072});
    measure("linear 1024 768 -> 3072 with bias", 2e-9 * 1024 * 768 * 3072, "GFLOP/s",
            [&] { ops::linear(ctx, x, w, b, y); });
  }

  // Only the visible half counts: 2 products forward, 5 backward, of 2 T T D / 2 operations each.
  void attention(std::int64_t batch, std::int64_t length) {
    const ops::AttentionShape shape = {batch, length, 12, 12, 64};
    const Tensor qkv = tensor({batch * length, shape.row()});
    const Tensor dqkv = tensor({batch * length, shape.row()});
    const Tensor out = tensor({batch * length, 768}), dout = tensor({batch * length, 768});
    const Tensor log_sum = tensor({batch * 12 * length}, DType::kF32);
    const double product = 1e-9 * static_cast<double>(batch * 12 * length * length * 64);
    measure(fmt::format("attention B {} T {}", batch, length), 2 * product, "GFLOP/s",
            [&] { ops::attention(ctx, shape, qkv, Tensor(), out, log_sum); });
    measure(fmt::format("attention_backward B {} T {}", batch, length), 5 * product, "GFLOP/s",
            [&] { ops::attention_backward(ctx, shape, qkv, Tensor(), out, log_sum, dout, dqkv); });
    measure(fmt::format("rotary B {} T {}", batch, length), gigabytes(2 * batch * length * 2 * 768),
            "GB/s", [&] { ops::rotary(ctx, shape, qkv, 0, 10000.0f, false); });
  }

  void generation() {
    const ops::AttentionShape shape = {1, 1, 12, 12, 64};
    const Tensor qkv = tensor({1, shape.row()}), out = tensor({1, 768});
    const Tensor keys = tensor({1, 1024, 768}), values = tensor({1, 1024, 768});
    measure("attention_cached 1 after 1000", gigabytes(2 * 1000 * 768), "GB/s",
            [&] { ops::attention_cached(ctx, shape, qkv, 1000, keys, values, out); });
  }

  void pointwise(std::int64_t rows) {
    const std::int64_t n = rows * 3072;
    const Tensor a = tensor({rows, 3072}), b = tensor({rows, 3072}), y = tensor({rows, 3072});
    const Tensor fp32 = tensor({rows, 3072}, DType::kF32), bias = tensor({3072});
    const Tensor sums = tensor({3072}, DType::kF32), half = tensor({rows, 1536});
    const Tensor samples = ctx.allocate({rows / 256}, DType::kI64);
    for (std::int64_t i = 0; i < rows / 256; ++i) samples.data<std::int64_t>()[i] = i;
    measure("add", gigabytes(3 * n), "GB/s", [&] { ops::add(ctx, a, b, y); });
    measure("cast to fp32", gigabytes(n) + 4e-9 * static_cast<double>(n), "GB/s",
            [&] { ops::cast(ctx, a, fp32); });
    measure("add_bias", gigabytes(2 * n), "GB/s", [&] { ops::add_bias(ctx, a, bias); });
    measure("add_column_sums", gigabytes(n), "GB/s", [&] { ops::add_column_sums(ctx, a, sums); });
    measure("gelu", gigabytes(2 * n), "GB/s", [&] { ops::gelu(ctx, a, y); });
    measure("gelu_backward", gigabytes(3 * n), "GB/s", [&] { ops::gelu_backward(ctx, a, b, y); });
    measure("swiglu", gigabytes(n + n / 2), "GB/s", [&] { ops::swiglu(ctx, a, half); });
    measure("swiglu_backward", gigabytes(2 * n + n / 2), "GB/s",
            [&] { ops::swiglu_backward(ctx, a, half, y); });
    const ops::DropoutPlace place = {1, 0, 256, samples};
    measure("dropout", gigabytes(2 * n), "GB/s", [&] { ops::dropout(ctx, a, 0.1f, place, y); });
  }

  void rows(std::int64_t rows) {
    const std::int64_t n = rows * 768;
    const Tensor x = tensor({rows, 768}), y = tensor({rows, 768}), dy = tensor({rows, 768});
    const Tensor w = tensor({768}), b = tensor({768});
    const Tensor mean = tensor({rows}, DType::kF32), rstd = tensor({rows}, DType::kF32);
    const Tensor dw = tensor({768}, DType::kF32), db = tensor({768}, DType::kF32);
    measure("layer_norm", gigabytes(2 * n), "GB/s",
            [&] { ops::layer_norm(ctx, x, w, b, 1e-5f, y, mean, rstd); });
    measure("layer_norm_backward_input", gigabytes(3 * n), "GB/s",
            [&] { ops::layer_norm_backward_input(ctx, dy, x, w, mean, rstd, y); });
    measure("layer_norm_backward_weight", gigabytes(2 * n), "GB/s",
            [&] { ops::layer_norm_backward_weight(ctx, dy, x, mean, rstd, dw, db); });
    measure("rms_norm", gigabytes(2 * n), "GB/s",
            [&] { ops::rms_norm(ctx, x, w, 1e-5f, y, rstd); });
    const Tensor table = tensor({50304, 768}), dtable = tensor({50304, 768}, DType::kF32);
    const Tensor tokens = ctx.allocate({rows}, DType::kI32);
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % 50304);
    }
    measure("embedding", gigabytes(2 * n), "GB/s",
            [&] { ops::embedding(ctx, tokens, table, 0, y); });
    measure("embedding_backward", gigabytes(n) + 8e-9 * static_cast<double>(n), "GB/s",
            [&] { ops::embedding_backward(ctx, tokens, dy, 0, dtable); });
    const Tensor logits = tensor({256, 50304}, DType::kF32), dlogits = tensor({256, 50304});
    const Tensor some = tokens.flat_range(0, 256), top = tensor({256}, DType::kF32);
    const Tensor sum = tensor({256}, DType::kF32), target = tensor({256}, DType::kF32);
    const double classes = 256.0 * 50304.0;
    measure("softmax_statistics", 4e-9 * classes, "GB/s",
            [&] { ops::softmax_statistics(ctx, logits, some, 0, 50257, top, sum, target); });
    measure("softmax_gradient", 4e-9 * classes + gigabytes(256 * 50304), "GB/s",
            [&] { ops::softmax_gradient(ctx, logits, some, 0, 50257, top, sum, dlogits); });
  }

  void updates() {
    const std::int64_t n = 16 << 20;
    const Tensor master = tensor({n}), gradient = tensor({n}), first = tensor({n});
    const Tensor second = tensor({n}), weights = tensor({n}, DType::kBF16);
    ops::fill(ctx, second, 0.5f);
    measure("adamw_step, bf16 weights", 30e-9 * static_cast<double>(n), "GB/s",
            [&] { ops::adamw_step(ctx, {}, master, gradient, first, second, weights); });
    measure("sgd_step with momentum", 20e-9 * static_cast<double>(n), "GB/s",
            [&] { ops::sgd_step(ctx, {.momentum = 0.9f}, master, gradient, first, master); });
    const Tensor sum = tensor({1}, DType::kF64);
    measure("add_sum_of_squares", 4e-9 * static_cast<double>(n), "GB/s",
            [&] { ops::add_sum_of_squares(ctx, gradient, sum); });
  }

  ops::Context ctx;
  DType dtype = DType::kF32;
  std::string filter_;
};

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) try {
  trireme::Bench(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2 ? argv[2] : "").run();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ops_bench: %s\n", error.what());
  return 1;
}
