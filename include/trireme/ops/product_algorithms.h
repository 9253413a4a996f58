// Which algorithm a GPU's library takes for each matrix product: what it proposes, what was chosen
// by time, and the file that keeps the choice. Nothing here is timed: see study/product_times.h.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ops/block_scaled.h"
#include "trireme/ops/context.h"

namespace trireme::ops {

// What is done to a product (with its bias) before it is written to c.
enum class Epilogue {
  kNone,
  kGelu,          // auxiliary = product, c = gelu(product)
  kGeluBackward,  // c = product * gelu'(auxiliary)
};

// A product c (m, n) = op(a) op(b) of row-major matrices, as the choice of its algorithm depends on
// it.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::kF32, result = DType::kF32;  // of a and b, and of c
  bool accumulates = false;                         // c += the product
  bool adds = false;                                // another matrix to it
  bool has_bias = false, sums_bias = false;         // adds a bias; writes the gradient of one
  Epilogue epilogue = Epilogue::kNone;
  ScaledBlocks a_blocks = ScaledBlocks::kRows, b_blocks = ScaledBlocks::kRows;  // of e4m3
  // Bytes that addresses are multiples of, 16 at most: a, b, what is added, c, bias, auxiliary.
  std::array<std::uint32_t, 6> alignment = {16, 16, 16, 16, 16, 16};

  auto operator<=>(const Product&) const = default;
};
// "(3, 4)^T by (3, 5) in bf16 into fp32 with a bias, then GELU".
std::string text_of(const Product& product);

// What cuBLASLt calls the attributes of an algorithm (cublasLtMatmulAlgoConfigAttributes_t), in its
// order. The algorithm's own struct is opaque, and may differ between versions.
inline constexpr std::array<std::string_view, 9> kAlgorithmAttributes = {
    "id", "tile", "split_k", "reduction", "swizzle", "custom", "stages", "inner_shape", "cluster"};

struct ProductAlgorithm {
  std::array<std::uint32_t, kAlgorithmAttributes.size()> attributes{};
  bool operator==(const ProductAlgorithm&) const = default;
};

struct ProductChoice {
  Product product;
  ProductAlgorithm algorithm;
  double seconds = 0.0, first = 0.0;  // that it took, and that the library's first proposal took

  bool operator==(const ProductChoice&) const = default;
};

// Where choices hold.
struct ProductMachine {
  std::string gpu, library;
  std::size_t workspace = 0;  // bytes that an algorithm may take at most
  int multiprocessors = 0;    // that algorithms are chosen for; 0: all of the GPU

  bool operator==(const ProductMachine&) const = default;
};

struct ProductFile {
  ProductMachine machine;
  std::vector<ProductChoice> choices;  // of different products
};
// JSON, a product on each line.
std::string write_products(const ProductFile& file);
// Throws ConfigError that begins with `origin`.
ProductFile read_products(const std::string& text, const std::string& origin);

class ProductAlgorithms {
 public:
  virtual ~ProductAlgorithms() = default;
  virtual ProductMachine machine() const = 0;  // without the GPU's name
  // The products since the beginning or the last use(), and how often each ran; but those in e4m3,
  // for which the library proposes few algorithms.
  virtual std::map<Product, std::int64_t> made() const = 0;
  // What the library proposes, the best by its own rules first. Empty: it cannot compute this.
  virtual std::vector<ProductAlgorithm> proposed(const Product& product, int most) = 0;
  // Whether this algorithm computes this product here, in the workspace, and adds up in an order
  // that is always the same.
  virtual bool fits(const Product& product, const ProductAlgorithm& algorithm) = 0;
  // From now on these, all of which fit, are taken, and for other products the first proposals.
  virtual void use(std::span<const ProductChoice> choices) = 0;
};
// The algorithms of the context's library, which live as long as the context; null where products
// have none to choose among, as on a CPU.
ProductAlgorithms* product_algorithms(Context& ctx);
// The machine with its GPU's name. The context is one that has algorithms.
ProductMachine product_machine(Context& ctx);

// Returns what computes such a product each time it is called, of made-up operands that it
// holds.
std::function<void()> made_up_product(Context& ctx, const Product& product);

}  // namespace trireme::ops
