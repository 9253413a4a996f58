// Shares by speed against all shares that there can be.
#include "trireme/base/shares.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Shares = std::vector<int>;
using Speeds = std::vector<double>;

// The shortest time of all shares of so many pieces.
double best(int pieces, std::span<const double> speeds, int most) {
  if (speeds.size() == 1) return pieces <= most ? pieces / speeds[0] : 1e300;
  double least = 1e300;
  for (int mine = 1; mine <= std::min(most, pieces - 1); ++mine) {
    const double rest = best(pieces - mine, speeds.subspan(1), most);
    least = std::min(least, std::max(mine / speeds[0], rest));
  }
  return least;
}

TEST(Shares, NoOthersEndEarlier) {
  const std::vector<Speeds> all = {{1, 0.5},        {1, 0.5, 0.5}, {3, 1},        {0.1, 0.7, 1.3},
                                   {5, 1, 1, 0.01}, {1, 1, 0.9},   {1e-6, 1, 1e6}};
  for (const Speeds& speeds : all) {
    const auto workers = static_cast<int>(speeds.size());
    for (int pieces = workers; pieces <= 17; ++pieces) {
      for (int most = (pieces + workers - 1) / workers; most <= pieces; ++most) {
        const Shares shares = shares_by_speed(pieces, speeds, most);
        EXPECT_EQ(std::reduce(shares.begin(), shares.end()), pieces);
        EXPECT_GE(std::ranges::min(shares), 1);
        EXPECT_LE(std::ranges::max(shares), most);
        EXPECT_EQ(longest_share(shares, speeds), best(pieces, speeds, most))
            << shares_text(shares) << " of at most " << most;
      }
    }
  }
}

TEST(Shares, FollowTheSpeed) {
  EXPECT_EQ(shares_by_speed(8, Speeds{1, 0.5, 0.5}), (Shares{4, 2, 2}));
  EXPECT_EQ(shares_by_speed(16, Speeds{30, 10}), (Shares{12, 4}));
  EXPECT_EQ(shares_by_speed(16, Speeds{30, 10}, 10), (Shares{10, 6}));
  EXPECT_EQ(shares_by_speed(3, Speeds{9, 1, 1}), (Shares{1, 1, 1}));
  const Shares many = shares_by_speed(1 << 24, Speeds(1000, 0.25));
  EXPECT_EQ(many, even_shares(1 << 24, 1000));
  EXPECT_EQ(even_shares(8, 3), (Shares{2, 3, 3}));
  EXPECT_EQ(shares_text(many), "16777 to 16778");
  EXPECT_THROW(shares_by_speed(2, Speeds{1, 1, 1}), InternalError);
}

}  // namespace
}  // namespace trireme
