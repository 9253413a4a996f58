// Where the elements of flat memory and of parameters lie: compared, element by element, with what
// a search for each element finds.
#include "trireme/nn/sharding.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/nn/placement.h"

namespace trireme::nn {
namespace {

constexpr std::int64_t kUnit = Sharding::kUnit;

TEST(Sharding, ShardsCoverEveryElementOnceAndAreCutAtUnits) {
  for (const std::int64_t elements : {0, 1, 255, 256, 257, 511, 512, 1000, 4096, 100'003}) {
    for (int count = 1; count <= 9; ++count) {
      SCOPED_TRACE(std::to_string(elements) + " elements in " + std::to_string(count));
      std::int64_t next = 0, memory = 0;
      for (int i = 0; i < count; ++i) {
        const Sharding sharding(elements, count, i);
        EXPECT_EQ(sharding.memory().begin, memory);
        EXPECT_EQ(sharding.memory().size(), sharding.shard_extent());
        memory = sharding.memory().end;
        const FlatRange range = sharding.range();
        EXPECT_EQ(range, sharding.range_of(i));
        EXPECT_LE(range.end, std::max(elements, range.begin));
        if (range.empty()) {
          EXPECT_EQ(next, elements);  // only shards behind the last element are empty
          continue;
        }
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.begin % kUnit, 0);
        next = range.end;
      }
      EXPECT_EQ(next, elements);
      const Sharding sharding(elements, count, 0);
      EXPECT_EQ(sharding.extent(), memory);
      EXPECT_EQ(sharding.elements(), elements);
      // No more padding than the cuts take.
      EXPECT_LE(sharding.shard_extent() * count, elements + count * kUnit);
      if (count > 1) {
        EXPECT_EQ(sharding.shard_extent() % kUnit, 0);
      }
    }
  }
}

TEST(Sharding, OneShardIsTheWholeWithoutPadding) {
  const Sharding sharding(1001, 1, 0);
  EXPECT_EQ(sharding.extent(), 1001);
  EXPECT_EQ(sharding.range(), (FlatRange{0, 1001}));
  EXPECT_EQ(Sharding().extent(), 0);
}

TEST(Sharding, TheLastShardsMayBeEmpty) {
  EXPECT_EQ(Sharding(257, 4, 0).range(), (FlatRange{0, 256}));
  EXPECT_EQ(Sharding(257, 4, 1).range(), (FlatRange{256, 257}));
  EXPECT_TRUE(Sharding(257, 4, 2).range().empty());
  EXPECT_TRUE(Sharding(257, 4, 3).range().empty());
  EXPECT_EQ(Sharding(257, 4, 3).memory(), (FlatRange{768, 1024}));
}

TEST(Sharding, AnIndexBeyondTheCountIsRefused) {
  EXPECT_THROW(Sharding(10, 2, 2), InternalError);
  EXPECT_THROW(Sharding(10, 2, -1), InternalError);
}

TEST(EvenShares, CoverEveryElementOnceAtCutsOfTheUnit) {
  for (const std::int64_t elements : {0, 1, 9, 10, 11, 99, 1000}) {
    for (const std::int64_t unit : {1, 10, 64}) {
      for (int count = 1; count <= 7; ++count) {
        std::int64_t next = 0;
        for (int i = 0; i < count; ++i) {
          const FlatRange share = even_share(elements, count, i, unit);
          EXPECT_EQ(share.begin, next);
          EXPECT_TRUE(share.begin % unit == 0 || share.empty());
          const std::int64_t units = (elements + unit - 1) / unit;
          EXPECT_LE(share.size(), (units + count - 1) / count * unit);
          next = share.end;
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

// Parameters cut in the middle, whole ones, some without elements, and ranges beyond all of them.
TEST(Parts, AreWhatLiesInTheRange) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{7, 1, 0, 12, 3}, {1}, {0, 0}, {}, {5, 5, 5, 5}}) {
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    for (std::int64_t begin = 0; begin <= total; ++begin) {
      for (std::int64_t end = begin; end <= total + 3; ++end) {
        std::int64_t next = begin;
        for (const PartOfParameter& part : parts_in({begin, end}, sizes)) {
          ASSERT_FALSE(part.elements.empty());
          ASSERT_LE(part.elements.end, sizes.at(part.parameter));
          const auto first = sizes.begin() + static_cast<std::ptrdiff_t>(part.parameter);
          const std::int64_t before = std::accumulate(sizes.begin(), first, std::int64_t{0});
          ASSERT_EQ(before + part.elements.begin, next);
          next = before + part.elements.end;
        }
        ASSERT_EQ(next, std::max(begin, std::min(end, total)));
      }
    }
  }
}

// The element of the global tensor at each place of the local memory; padding is left out.
std::map<std::int64_t, std::int64_t> global_of_local(const Placement& placement,
                                                     const FlatRange& range) {
  std::map<std::int64_t, std::int64_t> found;
  for (std::int64_t local = range.begin; local < range.end; ++local) {
    std::int64_t rest = local, global = 0, stride = 1;
    bool padding = false;
    for (int i = placement.global.rank() - 1; i >= 0; --i) {
      const std::int64_t index = rest % placement.local[i];
      rest /= placement.local[i];
      padding = padding || index >= placement.extent[i];
      global += (index + placement.offset[static_cast<std::size_t>(i)]) * stride;
      stride *= placement.global[i];
    }
    if (!padding) found[local] = global;
  }
  return found;
}

TEST(Slabs, OfARangeAreItsElementsInTheGlobalTensor) {
  std::vector<Placement> placements = {Placement::whole({13}), Placement::whole({5, 7}),
                                       Placement::whole({3, 4, 5})};
  for (int part = 0; part < 4; ++part) {
    placements.push_back(Placement::split({11, 6}, 0, 4, part));     // the last is shorter
    placements.push_back(Placement::split({11, 6}, 0, 4, part, 4));  // padding rows
    placements.push_back(Placement::split({4, 11}, 1, 4, part));     // padding columns
    placements.push_back(Placement::split({4, 5}, 1, 4, part, 3));   // the last is empty
    placements.push_back(Placement::split({9}, 0, 4, part, 5));
    placements.push_back(Placement::split({2, 5, 3}, 1, 4, part));
  }
  for (const Placement& placement : placements) {
    const std::int64_t elements = placement.local.elements();
    for (std::int64_t begin = 0; begin <= elements; ++begin) {
      for (std::int64_t end = begin; end <= elements; ++end) {
        const std::vector<Slab> slabs = slabs_of(placement, {begin, end});
        ASSERT_LE(std::ssize(slabs), 2 * placement.global.rank() - 1);
        std::map<std::int64_t, std::int64_t> found;
        std::int64_t last = begin;
        for (const Slab& slab : slabs) {
          ASSERT_GE(slab.memory().begin, last);
          ASSERT_LE(slab.memory().end, end);
          last = slab.memory().end;
          ASSERT_GT(slab.extent.elements(), 0);
          for (std::int64_t number = 0; number < slab.extent.rows(); ++number) {
            const SlabRow row = row_of(placement, slab, number);
            for (std::int64_t i = 0; i < row.count; ++i) found[row.local + i] = row.global + i;
          }
        }
        ASSERT_EQ(found, global_of_local(placement, {begin, end}))
            << placement.global.to_string() << " [" << begin << ", " << end << ")";
      }
    }
  }
}

TEST(Slabs, OfAWholeParameterAreOne) {
  const Placement placement = Placement::split({100, 30}, 0, 3, 1, 8);
  const std::vector<Slab> slabs = slabs_of(placement, {0, placement.local.elements()});
  ASSERT_EQ(slabs.size(), 1u);
  EXPECT_EQ(slabs[0].start, placement.offset);
  EXPECT_EQ(slabs[0].extent, placement.extent);
  EXPECT_EQ(slabs[0].local, placement.local);
  EXPECT_EQ(slabs[0].at, 0);
}

}  // namespace
}  // namespace trireme::nn
