// The protocol by which several jobs carry one run (io/ISLANDS.md), in simulated histories.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/interleavings.h"
#include "support/simulated_islands.h"
#include "support/whole_product.h"

namespace trireme::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSeeds = 150;  // each takes twenty times as long
#else
constexpr int kSeeds = 1500;
#endif
constexpr int kAllSeeds = 100'000;

TEST(SimulatedIslandsTest, KeepTheInvariants) {
  IslandHistory all;
  const std::string found = found_in(whole_product() ? kAllSeeds : kSeeds, [&](std::uint64_t seed) {
    const IslandHistory one = run_islands(seed);
    all.records += one.records;
    all.counted += one.counted;
    all.dropped += one.dropped;
    all.late += one.late;
    all.admissions += one.admissions;
    all.deaths += one.deaths;
    all.ended += one.ended;
    all.lies += one.lies;
    all.lost_races += one.lost_races;
    all.calls += one.calls;
  });
  EXPECT_EQ(found, "");
  if (std::getenv("TRIREME_SEED") || std::getenv("TRIREME_INTERLEAVINGS")) return;
  // The histories hold what they are for.
  EXPECT_GT(all.records, 5 * kSeeds);
  EXPECT_GT(all.counted, 7 * kSeeds);
  EXPECT_GT(all.late, kSeeds / 8);
  EXPECT_GT(all.dropped, kSeeds / 8);
  EXPECT_GT(all.admissions, kSeeds / 8);
  EXPECT_GT(all.deaths, kSeeds / 8);
  EXPECT_GT(all.ended, kSeeds / 4);
  EXPECT_GT(all.lies, kSeeds);
  EXPECT_GT(all.lost_races, kSeeds / 8);
  EXPECT_GT(all.calls, 200 * kSeeds);
}

// Whether a broken protocol ends one of some histories with a fault that holds this text. `first`
// is the seed that was found to; a change of the simulation moves it.
bool is_noticed(Broken broken, std::uint64_t first, const std::string& text) {
  for (std::uint64_t seed = first; seed < first + 3'000; ++seed) {
    try {
      run_islands(seed, broken);
    } catch (const Error& error) {
      if (std::string(error.what()).find(text) != std::string::npos) return true;
    }
  }
  return false;
}

TEST(SimulatedIslandsTest, ARenameInsteadOfALinkIsNoticed) {
  EXPECT_TRUE(is_noticed(Broken::kRename, 26, "does not follow from"));
  EXPECT_TRUE(is_noticed(Broken::kRename, 133, "was published twice"));
}
TEST(SimulatedIslandsTest, NamesThatComeBackAreNoticed) {
  EXPECT_TRUE(is_noticed(Broken::kNamesComeBack, 797, "was published twice"));
}
TEST(SimulatedIslandsTest, ADealThatOutlivesItsDeliveryIsNoticed) {
  EXPECT_TRUE(is_noticed(Broken::kSettledStays, 1, "has two owners"));
}
TEST(SimulatedIslandsTest, DealsOfTheDeadThatStayTheirsAreNoticed) {
  EXPECT_TRUE(is_noticed(Broken::kDeadKeepDeals, 2, "has two owners"));
}
TEST(SimulatedIslandsTest, AnAnswerThatTheNameExistsThatIsBelievedIsNoticed) {
  EXPECT_TRUE(is_noticed(Broken::kExistsIsLost, 1, "is removed and in use"));
}

}  // namespace
}  // namespace trireme::testing
