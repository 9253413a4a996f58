#include "product_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

// A tile of the result, and the share of a multiprocessor's rate that it reaches: a small one has
// fewer operations for each byte that comes into shared memory.
struct Tile {
  double m, n, share;
};
constexpr std::array kTiles = {Tile{256, 128, 1.0}, Tile{128, 256, 1.0}, Tile{128, 128, 0.95},
                               Tile{64, 128, 0.8},  Tile{128, 64, 0.8},  Tile{64, 64, 0.6}};
// Filling and emptying the pipeline of a tile takes as long as so many columns of the operands.
constexpr double kEnds = 64;
// Where tiles are fewer than multiprocessors, several share one. Each takes a part of k, which is
// not shorter than this.
constexpr double kLeastPart = 256;

}  // namespace

double product_seconds(const Product& product, double rate, int multiprocessors) {
  double least = std::numeric_limits<double>::infinity();
  const double places = multiprocessors;
  for (const Tile& tile : kTiles) {
    const double tiles =
        std::ceil(product.m / tile.m) * std::ceil(product.n / tile.n) * product.batch;
    for (double parts = 1;; parts *= 2) {
      const double waves = std::ceil(tiles * parts / places);
      const double part = product.k / parts;
      const double columns = (parts > 1 ? std::max(part, kLeastPart) : part) + kEnds;
      least = std::min(least, waves * 2 * tile.m * tile.n * columns / tile.share);
      if (waves > 1 || part <= kLeastPart) break;
    }
  }
  return least * places / rate;
}

}  // namespace trireme::plan
