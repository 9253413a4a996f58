// The shape of the grid of ranks: places, groups, what users ask for.
#include "trireme/comm/grid_shape.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::nullopt_t kAny = std::nullopt;

std::string grid_error(const GridRequest& request, int ranks) {
  try {
    return resolve_grid(request, ranks).to_string();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

static_assert(kDataAxes.contains(Axis::kShard) && !kModelAxes.contains(Axis::kShard));
static_assert(kAllAxes.without(kModelAxes) == kDataAxes && kAllAxes.contains({}));
static_assert(kDataAxes.without(Axis::kReplicate) == Axis::kShard);

TEST(Grid, SetsOfAxesAreNamed) {
  EXPECT_EQ((Axis::kTensor | Axis::kReplicate).to_string(), "replicate x tensor");
  EXPECT_EQ(Axes().to_string(), "none");
  EXPECT_EQ(dimension_names(","), "data,pipeline,tensor");
  EXPECT_EQ(dimension_names(" x ", kModelAxes), "pipeline x tensor");
  // Each axis belongs to one dimension.
  for (const Axis axis : kAxes) {
    for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
      EXPECT_EQ(kGridDimensions[i].axes.contains(axis), i == dimension_of(axis));
    }
  }
}

TEST(Grid, PlacesAndIndicesFollowFromEachOther) {
  GridShape shape(3, 2, 5);
  shape[Axis::kShard] = 4;
  EXPECT_EQ(shape.ranks(), 120);
  EXPECT_EQ(shape.extent(kDataAxes), 12);
  EXPECT_EQ(shape.to_string(), "12 x 2 x 5 (data x pipeline x tensor)");
  int place = 0;
  for (int r = 0; r < 3; ++r) {
    for (int s = 0; s < 4; ++s) {
      for (int p = 0; p < 2; ++p) {
        for (int t = 0; t < 5; ++t, ++place) {
          EXPECT_EQ(shape.index(place, Axis::kReplicate), r);
          EXPECT_EQ(shape.index(place, Axis::kShard), s);
          EXPECT_EQ(shape.index(place, Axis::kPipeline), p);
          EXPECT_EQ(shape.index(place, Axis::kTensor), t);
          EXPECT_EQ(shape.index(place, kDataAxes), 4 * r + s);
          EXPECT_EQ(shape.index(place, kModelAxes), 5 * p + t);
          EXPECT_EQ(shape.index(place, Axis::kReplicate | Axis::kTensor), 5 * r + t);
          EXPECT_EQ(shape.index(place, kAllAxes), place);
          EXPECT_EQ(shape.index(place, Axes()), 0);
          int back = 0;
          for (const Axis axis : kAxes) back += shape.index(place, axis) * shape.stride(axis);
          EXPECT_EQ(back, place);
        }
      }
    }
  }
}

TEST(Grid, MoreRanksThanAnIntHoldsAreTheLargestInt) {
  EXPECT_EQ(GridShape(1 << 20, 1 << 20, 1 << 20).ranks(), std::numeric_limits<int>::max());
}

TEST(Grid, GroupsOfReplicateByShard) {
  using Groups = std::vector<std::vector<int>>;
  GridShape shape(2, 2, 1);
  shape[Axis::kShard] = 2;
  EXPECT_EQ(shape.groups(Axis::kReplicate), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(shape.groups(Axis::kShard), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(shape.groups(kDataAxes), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(shape.groups(Axis::kPipeline), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(shape.groups(Axis::kReplicate | Axis::kPipeline), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(shape.groups(kModelAxes), shape.groups(Axis::kPipeline));
  EXPECT_EQ(shape.groups(kAllAxes), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(shape.groups({}).size(), 8u);
  EXPECT_EQ(shape.group(6, kDataAxes), (std::vector{0, 2, 4, 6}));
}

TEST(Grid, ExtentsAreReadAndWritten) {
  EXPECT_EQ(read_extents("4x1x2"), GridShape(4, 1, 2));
  EXPECT_EQ(read_extents("3x2", kModelAxes), GridShape(1, 3, 2));
  EXPECT_EQ(GridShape(4, 3, 2).extents_text("x"), "4x3x2");
  EXPECT_EQ(GridShape(4, 3, 2).extents_text(",", kModelAxes), "3,2");
  for (const char* text : {"", "x", "4", "4x1", "4x1x", "4x1x2x", "4x1x2x1", "4x0x2", "-4x1x2", "a",
                           "4 x 1 x 2", "1024x1024x2", "99999999999x1x1"}) {
    EXPECT_EQ(read_extents(text), std::nullopt) << text;
  }
  EXPECT_EQ(read_extents("1024x1024x1")->ranks(), kMostGridRanks);
}

TEST(Grid, ARequestTakesExtentsOfAShape) {
  GridRequest request;
  EXPECT_EQ(request.takes_rest(), &kGridDimensions[0]);
  request.ask_for({4, 3, 2}, kModelAxes);
  EXPECT_EQ(request, (GridRequest{kAny, 3, 2}));
  EXPECT_EQ(request.shape(), GridShape(1, 3, 2));
  request.ask_for({4, 3, 2});
  EXPECT_EQ(request, (GridRequest{4, 3, 2}));
  EXPECT_EQ(request.takes_rest(), nullptr);
  request[Axis::kTensor].reset();
  EXPECT_EQ(std::string(request.takes_rest()->name), "tensor");
}

TEST(Grid, WhatIsLeftOutFollows) {
  EXPECT_EQ(resolve_grid({}, 6), (GridShape{6, 1, 1}));
  EXPECT_EQ(resolve_grid({kAny, kAny, 2}, 8), (GridShape{4, 1, 2}));
  EXPECT_EQ(resolve_grid({2, kAny, 2}, 8), (GridShape{2, 2, 2}));
  EXPECT_EQ(resolve_grid({2, 2, kAny}, 8), (GridShape{2, 2, 2}));
  EXPECT_EQ(resolve_grid({2, kAny, kAny}, 8), (GridShape{2, 4, 1}));
  EXPECT_EQ(resolve_grid({1, 1, 1}, 1), (GridShape{1, 1, 1}));
  EXPECT_EQ((GridShape{2, 1, 2}.to_string()), "2 x 1 x 2 (data x pipeline x tensor)");
}

TEST(Grid, WhatDoesNotFitIsToldWhatWould) {
  EXPECT_EQ(grid_error({2, 1, 3}, 4),
            "grid 2 x 1 x 3 needs 6 ranks, and there are 4: take 6, or with pipeline=1 and "
            "tensor=3 left as they are 3 or 6 ranks would fit");
  EXPECT_EQ(grid_error({2, 1, 2}, 6),
            "grid 2 x 1 x 2 needs 4 ranks, and there are 6: take 4, or set grid.data=3");
  EXPECT_EQ(grid_error({kAny, kAny, 3}, 4),
            "a grid with tensor=3 needs a multiple of 3 ranks, and there are 4: 3 or 6 would fit");
  EXPECT_EQ(grid_error({kAny, 2, 2}, 1),
            "a grid with pipeline=2 and tensor=2 needs a multiple of 4 ranks, and there is 1: 4 "
            "would fit");
  EXPECT_EQ(grid_error({kAny, kAny, 0}, 4), "grid.tensor is 0: it must be at least 1");
  EXPECT_EQ(grid_error({-2, kAny, kAny}, 4), "grid.data is -2: it must be at least 1");
  EXPECT_NE(grid_error({2'000'000'000, 2'000'000'000, 9}, 4).find("and there are 4"),
            std::string::npos);
}

TEST(GridShape, SpansNameSomeOfAGroup) {
  const GridShape shape(2, 2, 4);
  const int place = 13;  // (1, 1, 1)
  const auto group = [&](const Span& span) { return shape.group(place, span); };
  EXPECT_EQ(group({Axis::kTensor}), (std::vector{12, 13, 14, 15}));
  EXPECT_EQ(group({Axis::kTensor, 2}), (std::vector{12, 13}));
  EXPECT_EQ(shape.group(14, Span(Axis::kTensor, 2)), (std::vector{14, 15}));
  EXPECT_EQ(group({Axis::kPipeline, 0, {1}}), (std::vector{13}));
  EXPECT_EQ(group({Axis::kPipeline | Axis::kTensor, 0, {5, 0}}), (std::vector{13, 8}));
  EXPECT_EQ(group({}), (std::vector{13}));
  EXPECT_EQ(shape.index(place, Span(Axis::kTensor, 2)), 1);
  EXPECT_EQ(shape.index(place, Span(Axis::kPipeline, 0, {0})), -1);
  EXPECT_EQ(shape.extent(Span(Axis::kTensor, 2)), 2);
  EXPECT_EQ(shape.extent(Span()), 1);
  EXPECT_THROW(group({Axis::kPipeline, 0, {0}}), InternalError);
  EXPECT_THROW(group({Axis::kTensor, 3}), InternalError);
}

}  // namespace
}  // namespace trireme
