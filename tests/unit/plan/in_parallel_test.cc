// Pieces of work on all cores: each once, faults by the lowest number, pieces that have pieces.
#include "plan/in_parallel.h"

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

using plan::in_parallel;

TEST(InParallel, EachPieceIsDoneOnce) {
  for (const std::size_t count : {0, 1, 2, 100}) {
    std::vector<int> done(count);
    in_parallel(count, [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(count, 1));
  }
}

TEST(InParallel, TheFaultOfTheLowestNumberIsThrownOnceAllHaveEnded) {
  std::atomic<int> done = 0;
  std::string what;
  try {
    in_parallel(50, [&](std::size_t i) {
      ++done;
      if (i % 20 == 7) throw std::runtime_error(fmt::format("piece {}", i));
    });
  } catch (const std::runtime_error& error) {
    what = error.what();
  }
  EXPECT_EQ(what, "piece 7");
  EXPECT_EQ(done, 50);
}

TEST(InParallel, PiecesMayHavePieces) {
  std::vector<std::vector<int>> done(6, std::vector<int>(8));
  in_parallel(done.size(), [&](std::size_t i) {
    in_parallel(done[i].size(), [&](std::size_t j) { ++done[i][j]; });
  });
  EXPECT_EQ(done, std::vector(6, std::vector<int>(8, 1)));
}

}  // namespace
}  // namespace trireme::testing
