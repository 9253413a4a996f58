#include "described_work.h"

#include <algorithm>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"

namespace trireme::bench {
namespace {

models::ModelRequest text_model(std::string family, int width, int heads, int layers, int context,
                                int vocabulary) {
  return {.family = std::move(family),
          .keys = {{"layers", std::to_string(layers)},
                   {"width", std::to_string(width)},
                   {"heads", std::to_string(heads)},
                   {"context", std::to_string(context)},
                   {"vocabulary", std::to_string(vocabulary)}}};
}

models::ModelRequest llama(int width, int heads, int kv_heads, int hidden, int context,
                           int vocabulary) {
  models::ModelRequest request = text_model("gpt", width, heads, 2, context, vocabulary);
  request.keys.insert({{"kv_heads", std::to_string(kv_heads)},
                       {"hidden", std::to_string(hidden)},
                       {"norm", "rms"},
                       {"activation", "swiglu"},
                       {"query_key_norm", "head"},
                       {"positions", "rotary"},
                       {"bias", "false"},
                       {"tied", "false"}});
  return request;
}

// What Gemma has and Llama has not.
models::ModelRequest gemma() {
  models::ModelRequest request = llama(384, 6, 2, 1536, 128, 4096);
  request.keys["activation"] = "geglu";
  request.keys["embedding_scale"] = "19.6";
  return request;
}

models::ModelRequest with_dropout(models::ModelRequest request) {
  request.keys["dropout"] = "0.1";
  return request;
}

}  // namespace

std::vector<DescribedStep> described_steps() {
  return {
      {"gpt, 128 wide, 12 x 64 tokens", with_dropout(text_model("gpt", 128, 4, 2, 64, 257)), 12},
      {"bert, 256 wide, 4 x 128 tokens", with_dropout(text_model("bert", 256, 4, 2, 128, 4096)), 4},
      {"gpt, 256 wide, 2 x 256 tokens", text_model("gpt", 256, 4, 2, 256, 4096), 2},
      {"mobilenet_v2, 16 pictures of 32 x 32",
       {.family = "mobilenet_v2", .keys = {{"preset", "mobilenet_v2-cifar"}}},
       16},
      {"gemma, 384 wide, 3 x 128 tokens", gemma(), 3},
      {"llama, 512 wide, 512 tokens", llama(512, 8, 2, 1376, 512, 8192), 1},
      {"gpt, 768 wide, 256 tokens", text_model("gpt", 768, 12, 3, 256, 50257), 1},
      {"llama, 1024 wide, 2 x 256 tokens", llama(1024, 16, 8, 3072, 256, 16384), 2},
      {"gpt, 768 wide, 4 x 256 tokens", text_model("gpt", 768, 12, 2, 256, 8192), 4},
      {"mobilenet_v2, 64 pictures of 32 x 32",
       {.family = "mobilenet_v2", .keys = {{"preset", "mobilenet_v2-cifar"}}},
       64},
      {"bert, 768 wide, 4 x 128 tokens", text_model("bert", 768, 12, 2, 128, 30522), 4},
      {"gpt, 512 wide, 1024 tokens", text_model("gpt", 512, 8, 2, 1024, 8192), 1},
  };
}

double DescribedProduct::multiplications() const {
  return static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

std::vector<DescribedProduct> described_products(double most) {
  std::vector<DescribedProduct> products;
  for (const std::int64_t rows : {16, 64, 256, 1024, 4096, 16384}) {
    for (const std::int64_t in : {16, 64, 256, 1024, 4096}) {
      for (const std::int64_t out : {16, 64, 256, 1024, 4096}) {
        const DescribedProduct one{rows, in, out};
        if (one.multiplications() <= most) products.push_back(one);
      }
    }
  }
  std::ranges::sort(products, {}, &DescribedProduct::multiplications);
  return products;
}

void run_products(ops::Context& ctx, const DescribedProduct& product, DType dtype) {
  const auto& [rows, in, out] = product;
  const auto values = [&](const Shape& shape, DType type) {
    const Tensor x = ctx.allocate(shape, type);
    ops::fill(ctx, x, 0.5f);
    return x;
  };
  const Tensor x = values({rows, in}, dtype), weight = values({out, in}, dtype);
  const Tensor y = values({rows, out}, dtype), gradient = values({out, in}, DType::kF32);
  ops::linear(ctx, x, weight, Tensor(), y);
  ops::linear_backward_input(ctx, y, weight, x);
  ops::linear_backward_weight(ctx, y, x, gradient, Tensor());
}

}  // namespace trireme::bench
