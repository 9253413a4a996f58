// How long a product of matrices takes on a GPU, by the tiles that its multiprocessors compute.
#pragma once

#include <cstdint>

namespace trireme::plan {

struct Product {
  double m = 1, n = 1, k = 1, batch = 1;

  double flops() const { return 2 * m * n * k * batch; }
};

// Returns the seconds of the tiles, where all multiprocessors together reach `rate` FLOP/s. Never
// less than flops / rate. A product that is larger in any size never takes less.
double product_seconds(const Product& product, double rate, int multiprocessors);

}  // namespace trireme::plan
