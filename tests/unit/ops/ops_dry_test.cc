// Operations on a dry context: they check and count, and ask for the memory of the real ones. The
// real ones are those of the device that the test program is for (support/ops_device.h).
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/adafactor.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/batch_norm.h"
#include "trireme/ops/block_scaled.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/head_norm.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/normed_depthwise.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/ops/pooling.h"
#include "trireme/ops/quantize.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/split.h"
#include "trireme/ops/update.h"
#include "trireme/tensor/copy.h"

#include "support/ops_device.h"

namespace trireme::testing {
namespace {

using ops::Context;
using ops::Transpose;

constexpr std::int64_t kRows = 300, kColumns = 96, kClasses = 500;

// Tensors for calls of operations. Real ones are zero.
struct Operands {
  Context& ctx;
  DType type;

  Tensor of(const Shape& shape, DType dtype) const {
    const Tensor made = ctx.allocate(shape, dtype);
    if (!is_dry(made.raw())) upload(ctx, std::vector<std::byte>(made.bytes()).data(), made);
    return made;
  }
  Tensor typed(const Shape& shape) const { return of(shape, type); }
  Tensor fp32(const Shape& shape) const { return of(shape, DType::kF32); }
  Tensor rows() const { return typed({kRows, kColumns}); }
  // Filled by the host.
  Tensor host(std::int64_t n, DType dtype) const {
    if (ctx.device.kind != DeviceKind::kCpu) return of({n}, dtype);
    const Tensor made = ctx.allocate_host({n}, dtype);
    std::memset(made.raw(), 0, made.bytes());
    return made;
  }
};

struct Family {
  const char* name;
  std::function<void(Context&, const Operands&)> calls;
};

const ops::AttentionShape kHeads{
    .batch = 3, .length = 100, .heads = 4, .kv_heads = 2, .head_size = 12};

const Family kFamilies[] = {
    {"elementwise",
     [](Context& ctx, const Operands& o) {
       const Tensor x = o.rows(), y = o.rows();
       ops::fill(ctx, x, 1.0f);
       ops::fill(ctx, o.of({2}, DType::kF64), 1.0f);
       ops::cast(ctx, x, o.fp32(x.shape()));
       ops::cast(ctx, x, y);
       ops::add(ctx, x, y, y);
       ops::add_scaled(ctx, x, 2.0f, o.fp32(x.shape()));
       ops::scale(ctx, x, 2.0f);
       ops::add_bias(ctx, x, o.typed({kColumns}));
       ops::add_column_sums(ctx, x, o.fp32({kColumns}));
       ops::gelu(ctx, x, y);
       ops::gelu_backward(ctx, x, y, y);
       ops::gelu_erf(ctx, x, y);
       ops::gelu_erf_backward(ctx, x, y, y);
       ops::clamp(ctx, x, ops::kRelu, y);
       ops::clamp_backward(ctx, x, y, ops::kRelu, y);
       ops::swiglu(ctx, x, o.typed({kRows, kColumns / 2}));
       ops::swiglu_backward(ctx, x, o.typed({kRows, kColumns / 2}), y);
       ops::geglu(ctx, x, o.typed({kRows, kColumns / 2}));
       ops::geglu_backward(ctx, x, o.typed({kRows, kColumns / 2}), y);
       const ops::DropoutPlace place{.length = 100, .samples = o.host(3, DType::kI64)};
       ops::dropout(ctx, x, 0.5f, place, y);
     }},
    {"norm",
     [](Context& ctx, const Operands& o) {
       const Tensor x = o.rows(), y = o.rows(), dx = o.rows();
       const Tensor weight = o.typed({kColumns}), bias = o.typed({kColumns});
       const Tensor mean = o.fp32({kRows}), rstd = o.fp32({kRows});
       const Tensor dweight = o.fp32({kColumns}), dbias = o.fp32({kColumns});
       ops::layer_norm(ctx, x, weight, bias, 1e-5f, y, mean, rstd);
       ops::add_layer_norm(ctx, x, y, weight, bias, 1e-5f, dx, y, mean, rstd);
       ops::layer_norm_backward_input(ctx, y, x, weight, mean, rstd, {}, dx);
       ops::layer_norm_backward_weight(ctx, y, x, mean, rstd, dweight, dbias);
       ops::rms_norm(ctx, x, weight, 1e-5f, y, rstd);
       ops::add_rms_norm(ctx, x, y, weight, 1e-5f, dx, y, rstd);
       ops::rms_norm_backward_input(ctx, y, x, weight, rstd, {}, dx);
       ops::rms_norm_backward_weight(ctx, y, x, rstd, dweight);
       ops::layer_norm_backward(ctx, y, x, weight, mean, rstd, {}, dx, dweight, dbias);
       ops::rms_norm_backward(ctx, y, x, weight, rstd, dx, dx, dweight);
     }},
    {"embedding",
     [](Context& ctx, const Operands& o) {
       const Tensor tokens = o.host(kRows, DType::kI32), y = o.rows();
       ops::embedding(ctx, tokens, o.typed({kClasses, kColumns}), 0, y);
       ops::embedding_backward(ctx, tokens, y, 0, o.fp32({kClasses, kColumns}));
       ops::add_positions(ctx, y, o.typed({100, kColumns}), 0, 100, 0, y);
       ops::add_positions_backward(ctx, y, 0, 100, o.fp32({100, kColumns}));
       ops::copy_rows(ctx, {1, 50, 0, 3, kRows, 2}, y, o.rows());
     }},
    {"softmax_loss",
     [](Context& ctx, const Operands& o) {
       const Tensor targets = o.host(kRows, DType::kI32);
       const Tensor logits = o.fp32({kRows, kClasses});
       const Tensor row_max = o.fp32({kRows}), row_sum = o.fp32({kRows}), at = o.fp32({kRows});
       ops::softmax_statistics(ctx, logits, targets, 0, kClasses, row_max, row_sum, at);
       ops::softmax_rescale(ctx, row_max, row_max, row_sum);
       ops::softmax_loss_sum(ctx, targets, row_max, row_sum, at, o.of({1}, DType::kF64));
       ops::softmax_gradient(ctx, logits, targets, 0, kClasses, row_max, row_sum,
                             o.typed(logits.shape()));
       ops::bend_logits(ctx, logits, {0.5f, 30.0f});
       ops::softmax_gradient(ctx, logits, targets, 0, kClasses, row_max, row_sum,
                             o.typed(logits.shape()), {0.5f, 30.0f});
       ops::softmax_and_gradient(ctx, logits, targets, kClasses, row_max, row_sum, at,
                                 o.typed(logits.shape()));
       const Tensor narrow = o.of(logits.shape(), DType::kBF16);
       ops::bend_logits(ctx, narrow, {0.5f, 30.0f});
       ops::softmax_statistics(ctx, narrow, targets, 0, kClasses, row_max, row_sum, at);
       ops::softmax_gradient(ctx, narrow, targets, 0, kClasses, row_max, row_sum, narrow);
       ops::softmax_and_gradient(ctx, narrow, targets, kClasses, row_max, row_sum, at, narrow);
       ops::classification_loss(ctx, logits, targets, 0.1f, o.of({1}, DType::kF64), logits);
       ops::count_correct(ctx, logits, targets, o.of({2}, DType::kI64));
     }},
    {"batch_norm",
     [](Context& ctx, const Operands& o) {
       const Tensor x = o.rows(), y = o.rows(), moments = o.fp32({2, kColumns});
       const ops::BatchNorm norm{moments, o.typed({kColumns}), o.typed({kColumns}), 1e-5f,
                                 ops::kRelu};
       ops::batch_moments(ctx, x, moments);
       ops::merge_batch_moments(ctx, o.fp32({3, 2, kColumns}), moments);
       ops::batch_norm(ctx, norm, x, y, y);
       ops::batch_norm_backward_sums(ctx, norm, y, x, y, moments);
       ops::batch_norm_backward(ctx, norm, y, x, {}, moments, kRows, {}, y);
     }},
    {"pooling",
     [](Context& ctx, const Operands& o) {
       const ops::PoolingShape shape{2, 6, 6, 40, 3, 3, 2, 1};
       const Tensor x = o.typed(shape.input()), y = o.typed(shape.output());
       const Tensor which = o.of(shape.output(), DType::kI32);
       ops::max_pooling(ctx, shape, x, y, which);
       ops::max_pooling_backward(ctx, shape, y, which, x);
       ops::average_pooling(ctx, shape, x, y);
       ops::average_pooling_backward(ctx, shape, y, x);
     }},
    {"depthwise",
     [](Context& ctx, const Operands& o) {
       const ops::ConvolutionShape shape{2, 9, 9, 40, 40, 3, 3, 2, 1, 40};
       const Tensor x = o.typed(shape.input()), y = o.typed(shape.output());
       const Tensor weight = o.typed(shape.weight()), dweight = o.fp32(shape.weight());
       ops::convolution(ctx, shape, x, weight, o.typed({40}), y);
       ops::convolution_backward_input(ctx, shape, y, weight, x);
       ops::convolution_backward_weight(ctx, shape, y, x, dweight, o.fp32({40}));
       ops::convolution_backward(ctx, shape, y, x, weight, o.typed(shape.input()), dweight);
       const ops::ConvolutionShape wide{2, 9, 9, 40, 40, 5, 5, 1, 2, 40};
       const Tensor w = o.typed(wide.weight()), dw = o.fp32(wide.weight()),
                    z = o.typed(wide.output());
       ops::convolution_backward_weight(ctx, wide, z, x, dw, {});
       ops::convolution_backward(ctx, wide, z, x, w, o.typed(wide.input()), dw);
       const ops::BatchNorm norm{o.fp32({2, 40}), o.typed({40}), o.typed({40}), 1e-5f, ops::kRelu6};
       const Tensor pairs = o.fp32({2, 40}), dx = o.typed(shape.input());
       ops::normed_depthwise(ctx, shape, {}, x, weight, y, {});
       ops::normed_depthwise(ctx, shape, norm, x, weight, y, pairs);
       ops::normed_depthwise_backward(ctx, shape, norm, y, x, weight, dx, pairs, dweight);
       ops::normed_depthwise_backward(ctx, shape, norm, y, x, weight, dx, pairs, {});
       ops::normed_depthwise_backward(ctx, shape, norm, y, x, weight, {}, {}, dweight);
     }},
    {"convolution",
     [](Context& ctx, const Operands& o) {
       for (const std::int64_t groups : {1, 2}) {
         const ops::ConvolutionShape shape{2, 9, 9, 32, 48, 3, 3, 2, 1, groups};
         const Tensor x = o.typed(shape.input()), y = o.typed(shape.output());
         const Tensor weight = o.typed(shape.weight()), dweight = o.fp32(shape.weight());
         ops::convolution(ctx, shape, x, weight, {}, y);
         ops::convolution_backward_input(ctx, shape, y, weight, x);
         ops::convolution_backward_weight(ctx, shape, y, x, dweight, {});
       }
     }},
    {"attention",
     [](Context& ctx, const Operands& o) {
       const Tensor qkv = o.typed({kRows, kHeads.row()}), dqkv = o.typed(qkv.shape());
       const Tensor out = o.typed({kRows, 48}), log_sum = o.fp32({3 * 4 * 100});
       const Tensor first_key = o.host(kRows, DType::kI32);
       ops::Rotation rotation = ops::plain_rotation(1e4, kHeads.head_size);
       ops::rotary(ctx, kHeads, qkv, 0, rotation, false);
       rotation.adjacent = true;
       rotation.query_growth = 0.1f;
       rotation.frequencies.pop_back();
       ops::rotary(ctx, kHeads, qkv, 0, rotation, true);
       ops::attention(ctx, kHeads, qkv, first_key, out, log_sum);
       ops::attention_backward(ctx, kHeads, qkv, first_key, out, log_sum, out, dqkv);
       ops::AttentionShape both_ways = kHeads;
       both_ways.causal = false;
       ops::attention(ctx, both_ways, qkv, {{}, first_key}, out, log_sum);
       ops::attention_backward(ctx, both_ways, qkv, {{}, first_key}, out, log_sum, out, dqkv);
       const Tensor keys = o.typed({3, 100, 24}), values = o.typed(keys.shape());
       ops::attention_cached(ctx, kHeads, qkv, 0, {}, keys, values, out);
     }},
    {"head_norm",
     [](Context& ctx, const Operands& o) {
       for (const bool whole : {false, true}) {
         const std::int64_t size = kHeads.head_size;
         const std::int64_t query = (whole ? kHeads.heads : 1) * size;
         const std::int64_t key = (whole ? kHeads.kv_heads : 1) * size;
         const ops::HeadNorm norm = {.shape = kHeads,
                                     .whole = whole,
                                     .query_width = query,
                                     .key_width = key,
                                     .query = o.typed({query}),
                                     .key = o.typed({key})};
         const Tensor qkv = o.typed({kRows, kHeads.row()}), y = o.typed(qkv.shape());
         const Tensor squares = o.fp32({kRows, norm.groups()}), dots = o.fp32(squares.shape());
         ops::head_squares(ctx, norm, qkv, squares);
         ops::head_norm(ctx, norm, qkv, squares, y);
         ops::head_norm_dots(ctx, norm, y, qkv, dots);
         ops::head_norm_backward_input(ctx, norm, y, qkv, squares, dots, y);
         ops::head_norm_backward_weight(ctx, norm, y, qkv, squares, o.fp32({query}), o.fp32({key}));
       }
     }},
    {"matmul",
     [](Context& ctx, const Operands& o) {
       const Tensor x = o.rows(), weight = o.typed({kClasses, kColumns});
       const Tensor bias = o.typed({kClasses}), y = o.typed({kRows, kClasses});
       const Tensor dweight = o.fp32(weight.shape()), dbias = o.fp32({kClasses});
       ops::matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, o.fp32(y.shape()));
       const Tensor blocks = o.of({256, 128}, DType::kBF16);
       const auto rows = ops::allocate_scaled(ctx, 256, 128, ops::ScaledBlocks::kRows);
       const auto tiles = ops::allocate_scaled(ctx, 256, 128, ops::ScaledBlocks::kTiles);
       ops::scale_blocks(ctx, blocks, rows, {});
       ops::scale_blocks(ctx, blocks, tiles, {});
       ops::scaled_matmul(ctx, rows, tiles, o.of({256}, DType::kBF16), 0.0f,
                          o.of({256, 256}, DType::kBF16));
       ops::linear(ctx, x, weight, bias, y);
       ops::linear_gelu(ctx, x, weight, bias, y, o.typed(y.shape()));
       ops::linear_backward_input(ctx, y, weight, x);
       ops::linear_backward_input_gelu(ctx, y, weight, x, o.rows(), o.fp32({kColumns}));
       ops::linear_backward_weight(ctx, y, x, dweight, dbias);
     }},
    {"update",
     [](Context& ctx, const Operands& o) {
       const Tensor master = o.fp32({100000}), gradient = o.fp32({100000});
       const Tensor first = o.fp32({100000}), second = o.fp32({100000});
       const Tensor sum = o.of({1}, DType::kF64);
       const Tensor limbs = o.of({kExactLimbs}, DType::kI64);
       ops::fill(ctx, limbs, 0.0f);
       ops::add_sum_of_squares(ctx, gradient, 100, limbs);
       ops::round_exact_sum(ctx, limbs, sum);
       ops::finish_gradient_norm(ctx, sum, 1.0f, sum);
       ops::adamw_step(ctx, {}, master, gradient, first, second, o.typed({100000}));
       ops::sgd_step(ctx, {.momentum = 0.9f}, master, gradient, first, o.typed({100000}));
       ops::lion_step(ctx, {}, master, gradient, first, o.typed({100000}));
       ops::average_gradient(ctx, {}, gradient, first, o.typed({100000}));
       ops::step_along(ctx, {}, master, o.typed({100000}), o.typed({100000}));
       const Tensor high = o.of({100000}, DType::kBF16), low = o.of({100000}, DType::kU16);
       ops::split(ctx, master, high, low);
       ops::adamw_step(ctx, {}, low, gradient, first, second, high);
       ops::join(ctx, high, low, master);
       ops::divide_by_root(ctx, gradient, sum, 1e-7f, o.typed({100000}));
       ops::adamw_direction(ctx, {}, master, gradient, first, second, gradient);
       const Tensor one = o.fp32({1}), squares = o.of({2}, DType::kF64);
       ops::step_length(ctx, {}, squares, one);
       ops::clip_values(ctx, gradient, 1.0f);
       ops::schedule_free_step(ctx, {}, master, gradient, first, second, o.typed({100000}));
       ops::schedule_free_weights(ctx, {}, master, first, o.typed({100000}));
       const ops::Packing packing = {.bits = 4, .elements = 100000, .parts = 3};
       const Tensor packed = o.of({packing.bytes()}, DType::kU8);
       ops::quantize(ctx, packing, gradient, first, packed);
       ops::dequantize(ctx, packing, packed, gradient);
       ops::count_average(ctx, {});
       ops::average_weights(ctx, {}, master, first);
       ops::clip_to_norm(ctx, gradient, sum, 1.0f);
       const Tensor blocks = o.of({256, 128}, DType::kBF16);
       const auto straight = ops::allocate_scaled(ctx, 256, 128, ops::ScaledBlocks::kRows);
       const auto turned = ops::allocate_scaled(ctx, 128, 256, ops::ScaledBlocks::kRows);
       ops::scale_blocks(ctx, blocks, straight, turned);
       const ops::MatrixBox box = {.rows = 400, .columns = 250, .stride = 250};
       const Tensor rows = o.fp32({400}), columns = o.fp32({250});
       ops::add_squares_of_lines(ctx, box, gradient, 400, o.of({2, 650}, DType::kF64));
       ops::average_lines(ctx, {}, o.of({2, 650}, DType::kF64), rows, columns, one);
       ops::divide_by_lines(ctx, {}, box, gradient, rows, columns, one, gradient);
       ops::divide_by_average(ctx, {}, gradient, first, gradient);
       ops::commit_state(ctx, 0.5f, first, second);
       ops::carry_over(ctx, {}, first);
       ops::update_loss_scale(ctx, {});
     }},
};

// Writes down what is asked for.
class RecordingAllocator : public Allocator {
 public:
  explicit RecordingAllocator(std::shared_ptr<Allocator> inner) : inner_(std::move(inner)) {}

  Buffer allocate(std::size_t bytes, MemoryUse use, const Stream& stream) override {
    requests_.emplace_back(bytes, use);
    return inner_->allocate(bytes, use, stream);
  }
  Buffer adopt(Buffer memory, std::size_t bytes, MemoryUse use) override {
    return inner_->adopt(std::move(memory), bytes, use);
  }
  void give_back_reserve() override { inner_->give_back_reserve(); }
  MemoryStats stats() const override { return inner_->stats(); }
  Device device() const override { return inner_->device(); }

  const std::vector<std::pair<std::size_t, MemoryUse>>& requests() const { return requests_; }

 private:
  std::shared_ptr<Allocator> inner_;
  std::vector<std::pair<std::size_t, MemoryUse>> requests_;
};

class DryOps : public ::testing::TestWithParam<std::tuple<Family, DType>> {};

TEST_P(DryOps, AskForTheMemoryOfRealOnes) {
  const auto& [family, type] = GetParam();
  Context real = make_test_context();
  const bool on_cpu = real.device.kind == DeviceKind::kCpu;
  const std::string_view name = family.name;
  if (!on_cpu && (name == "matmul" || name == "convolution")) {
    GTEST_SKIP() << "cuBLASLt chooses its workspace call by call";
  }
  Context dry = on_cpu ? ops::make_dry_context(real.threads) : ops::make_dry_cuda_context(1 << 30);
  const auto asked_really = std::make_shared<RecordingAllocator>(real.allocator);
  const auto asked = std::make_shared<RecordingAllocator>(dry.allocator);
  real.allocator = asked_really;
  dry.allocator = asked;
  family.calls(real, {real, type});
  family.calls(dry, {dry, type});
  EXPECT_EQ(asked->requests(), asked_really->requests());
  EXPECT_GT(dry.dry->total().bytes, 0.0);
  if (!on_cpu) return;  // its allocator counts nothing
  EXPECT_EQ(asked->stats().peak, asked_really->stats().peak);
  EXPECT_EQ(asked->stats().total_peak, asked_really->stats().total_peak);
  EXPECT_EQ(asked->stats().total_live, 0u);
}

// What is measured of operations is looked up by what programs say of them.
TEST_P(DryOps, TimedCallsAreThoseOfAProgram) {
  const auto& [family, type] = GetParam();
  Context real = make_test_context();
  if (real.device.kind != DeviceKind::kCpu) GTEST_SKIP() << "its libraries fuse what others do not";
  const auto log = std::make_shared<ProgramLog>();
  Context dry = ops::make_dry_context(real.threads, log);
  real.times = std::make_shared<ops::OperationTimes>();
  family.calls(real, {real, type});
  family.calls(dry, {dry, type});
  const StepProgram program = log->take();
  std::map<ops::OperationTimes::Key, std::size_t> calls, timed;
  for (const ProgramEntry& entry : program.entries) {
    if (entry.kind != ProgramEntry::Kind::kCompute) continue;
    ++calls[{program.name_of(entry), entry.dtype, entry.sizes, entry.flops, entry.bytes}];
  }
  for (const auto& [key, seconds] : real.times->calls()) timed[key] = seconds.size();
  EXPECT_EQ(timed, calls);
  EXPECT_FALSE(calls.empty());
  EXPECT_EQ(real.times->stretch(), 1.0);
}

// What a thread waits for is no computation, but stretches what it computes.
TEST(OperationTimes, OfAThreadLeaveOutItsWaits) {
  const Context ctx = make_test_context();
  if (ctx.device.kind != DeviceKind::kCpu) GTEST_SKIP() << "a GPU's operations are no thread's";
  ops::OperationTimes times(ops::OperationTimes::Clock::kThread);
  constexpr std::chrono::milliseconds kWait{20};
  times.run(ctx, {.name = "outer"}, [&] {
    times.run(ctx, {.name = "inner"}, [&] { std::this_thread::sleep_for(kWait); });
  });
  double computed = 0.0;
  for (const auto& [key, seconds] : times.calls()) computed += seconds.at(0);
  EXPECT_EQ(times.calls().size(), 2u);
  EXPECT_GE(times.stretch() * computed, 0.02);
  EXPECT_GT(times.stretch(), 1.0);
}

const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
INSTANTIATE_TEST_SUITE_P(Families, DryOps,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) + "_" +
                                  std::string(name_of(std::get<1>(param.param)));
                         });

// Sizes that no machine holds. Each product counts 2 m n k.
TEST(DryOpsCounts, FlopsOfProductsAreExact) {
  for (const DType type : kTypes) {
    Context ctx = ops::make_dry_context(1);
    const Operands o{ctx, type};
    const std::int64_t rows = 1 << 20, in = 1 << 16, out = 3 << 16;
    const Tensor x = o.typed({rows, in}), weight = o.typed({out, in}), y = o.typed({rows, out});
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
    ops::linear(ctx, x, weight, o.typed({out}), y);
    EXPECT_EQ(ctx.dry->by_operation().at("matmul").flops, flops);
    ops::linear_backward_input(ctx, y, weight, x);
    ops::linear_backward_weight(ctx, y, x, o.fp32(weight.shape()), {});
    const ops::OperationCount& all = ctx.dry->by_operation().at("matmul");
    EXPECT_EQ(all.calls, 3);
    EXPECT_EQ(all.flops, 3 * flops);
    const auto size = static_cast<double>(size_of(type));
    const auto elements = [](std::int64_t m, std::int64_t n) {
      return static_cast<double>(m) * static_cast<double>(n);
    };
    EXPECT_EQ(all.bytes,
              size * (3 * elements(rows, in) + 3 * elements(rows, out) + 2 * elements(out, in)) +
                  4 * elements(out, in));
  }
}

TEST(DryOpsCounts, ConvolutionsCountTheirProducts) {
  for (const DType type : kTypes) {
    Context ctx = ops::make_dry_context(1);
    const Operands o{ctx, type};
    for (const std::int64_t groups : {1, 4, 32}) {
      const ops::ConvolutionShape shape{64, 56, 56, 32, groups == 32 ? 32 : 64, 3, 3, 2, 1, groups};
      const Tensor x = o.typed(shape.input()), y = o.typed(shape.output());
      const double before = ctx.dry->total().flops;
      ops::convolution(ctx, shape, x, o.typed(shape.weight()), {}, y);
      ops::convolution_backward_input(ctx, shape, y, o.typed(shape.weight()), x);
      ops::convolution_backward_weight(ctx, shape, y, x, o.fp32(shape.weight()), {});
      EXPECT_EQ(ctx.dry->total().flops - before,
                3 * 2.0 * 64 * 28 * 28 * 9 * static_cast<double>(shape.out_channels * 32 / groups));
    }
  }
}

TEST(DryOpsCounts, AttentionCountsThePairsThatTheMaskLeaves) {
  Context ctx = ops::make_dry_context(1);
  const Operands o{ctx, DType::kF32};
  const Tensor qkv = o.typed({kRows, kHeads.row()}), out = o.typed({kRows, 48});
  const Tensor log_sum = o.fp32({3 * 4 * 100});
  ops::attention(ctx, kHeads, qkv, {}, out, log_sum);
  ops::attention_backward(ctx, kHeads, qkv, {}, out, log_sum, out, o.typed(qkv.shape()));
  const double product = 2.0 * 3 * 4 * 12 * (100 * 101 / 2);
  EXPECT_EQ(ctx.dry->by_operation().at("attention").flops, 2 * product);
  EXPECT_EQ(ctx.dry->by_operation().at("attention_backward").flops, 5 * product);
}

TEST(DryOpsCounts, BytesAreThoseOfTheTensors) {
  Context ctx = ops::make_dry_context(1);
  const Operands o{ctx, DType::kBF16};
  ops::gelu(ctx, o.rows(), o.rows());
  EXPECT_EQ(ctx.dry->by_operation().at("gelu").bytes, 2.0 * 2 * kRows * kColumns);
  // Only those rows of the table count that are looked up.
  ops::embedding(ctx, o.host(kRows, DType::kI32), o.typed({1 << 30, kColumns}), 0, o.rows());
  EXPECT_EQ(ctx.dry->by_operation().at("embedding").bytes,
            4.0 * kRows + 2.0 * 2 * kRows * kColumns);
  EXPECT_EQ(ctx.dry->total().calls, 2);
  EXPECT_EQ(ctx.dry->total().flops, 0.0);
}

TEST(DryOpsCounts, OperationsStillCheckTheirArguments) {
  Context ctx = ops::make_dry_context(1);
  const Operands o{ctx, DType::kF32};
  EXPECT_THROW(ops::gelu(ctx, o.rows(), o.typed({7})), InternalError);
  EXPECT_THROW(ops::matmul(ctx, o.typed({2, 3}), Transpose::kNo, o.typed({4, 5}), Transpose::kNo,
                           0.0f, o.typed({2, 5})),
               InternalError);
  EXPECT_EQ(ctx.dry->total().calls, 0);
}

TEST(DryOpsCounts, AStepIsFinite) {
  Context ctx = ops::make_dry_context(1);
  const Operands o{ctx, DType::kF32};
  const Tensor sum = o.of({1}, DType::kF64);
  ops::write_step_inputs(ctx, {.step = 1, .learning_rate = 0.1f});
  ops::finish_gradient_norm(ctx, sum, 1.0f, sum);
  EXPECT_EQ(ops::read_step_state(ctx).finite, 1);
  EXPECT_EQ(ops::read_step_state(ctx).updates, 1);
  const Tensor norm = o.host(1, DType::kF64);
  norm.data<double>()[0] = 5.0;
  copy(sum, norm, ctx.stream);
  EXPECT_EQ(norm.data<double>()[0], 0.0);
}

TEST(DryOpsCounts, OnAGpuNothingIsComputedEither) {
  Context ctx = ops::make_dry_cuda_context(std::int64_t{80} << 30);
  EXPECT_EQ(ctx.gpu_memory, std::int64_t{80} << 30);
  const Operands o{ctx, DType::kBF16};
  const Tensor x = o.typed({1 << 20, 1 << 16}), weight = o.typed({3 << 16, 1 << 16});
  const Tensor pre = o.typed({1 << 20, 3 << 16});
  ops::linear_gelu(ctx, x, weight, o.typed({3 << 16}), pre, o.typed(pre.shape()));
  // One call, since cuBLASLt fuses all of it.
  EXPECT_EQ(ctx.dry->total().calls, 1);
  EXPECT_EQ(ctx.dry->total().flops, 2.0 * (1 << 20) * (1 << 16) * (3 << 16));
  const Tensor tokens = ctx.allocate_host({8}, DType::kI32);
  tokens.data<std::int32_t>()[0] = 1;
  EXPECT_TRUE(is_dry(ops::to_device(ctx, tokens).raw()));
  ops::write_step_inputs(ctx, {.step = 4});
  EXPECT_EQ(ops::read_step_state(ctx).step, 4);
  EXPECT_EQ(ops::read_step_state(ctx).finite, 1);
  const Tensor norm = ctx.allocate_host({1}, DType::kF64);
  norm.data<double>()[0] = 5.0;
  copy(o.of({1}, DType::kF64), norm, ctx.stream);
  EXPECT_EQ(norm.data<double>()[0], 0.0);
}

}  // namespace
}  // namespace trireme::testing
