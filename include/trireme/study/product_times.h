// The algorithms that a GPU's library proposes for matrix products, timed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/ops/product_algorithms.h"

namespace trireme::bench {

// Returns the place of the least of these times, and 0 unless that is at least 1 % less than the
// first: less may be noise.
std::size_t fastest(std::span<const double> seconds);

struct ProductTimes {
  ops::Product product;
  std::int64_t calls = 0;  // in the steps that were looked at
  std::vector<ops::ProductAlgorithm> algorithms;
  std::vector<double> seconds;  // of each, in the median

  ops::ProductChoice choice() const;
};

struct ProductTimesOptions {
  int most = 8;  // algorithms of a product
  int repeats = 20;
};
// Times the algorithms of the products that the context has made since its beginning. Each call
// finds nothing of its operands in the GPU's cache, and algorithms take turns. Calls `report` with
// each product as soon as it is done. Afterwards the context takes the first proposals.
std::vector<ProductTimes> time_products(ops::Context& ctx, const ProductTimesOptions& options,
                                        const std::function<void(const ProductTimes&)>& report);

// Collective over comm. Returns the choices of all ranks on the leading one, of each product that
// of the lowest rank. Throws ConfigError where the ranks' machines differ.
ops::ProductFile gathered_products(Communicator& comm, const ops::ProductMachine& machine,
                                   std::span<const ProductTimes> times);

}  // namespace trireme::bench
