// The work by which a device is described.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/family.h"
#include "trireme/ops/context.h"

namespace trireme::bench {

// A step of a small model, as wide as models that people train. It has several layers, since the
// caches hold other things around a single one.
struct DescribedStep {
  std::string text;  // "gpt, 768 wide, 4 x 256 tokens"
  models::ModelRequest request;
  std::int64_t samples = 1;  // one micro-batch
};
// Returns them, those that take least first.
std::vector<DescribedStep> described_steps();

// A linear layer: a forward product and both gradients.
struct DescribedProduct {
  std::int64_t rows, in, out;

  double multiplications() const;
};
// Returns a grid of sizes, those that take least first, up to a number of multiplications.
std::vector<DescribedProduct> described_products(double most);

// Makes the products of the layer once. Operands that are small come again from memory where
// others were used meanwhile.
void run_products(ops::Context& ctx, const DescribedProduct& product, DType dtype);

}  // namespace trireme::bench
