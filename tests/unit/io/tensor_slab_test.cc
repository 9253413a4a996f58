#include "io/checkpoints/tensor_slab.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/tensor_checksum.h"

namespace trireme {
namespace {

// The row-major positions of a box's elements, in order.
std::vector<std::int64_t> positions(const Shape& shape, const hdf5::Box& box) {
  std::vector<std::int64_t> found = {0};
  for (int d = 0; d < shape.rank(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t before : found) {
      for (std::int64_t i = 0; i < box.count[static_cast<std::size_t>(d)]; ++i) {
        next.push_back(before * shape[d] + box.start[static_cast<std::size_t>(d)] + i);
      }
    }
    found = next;
  }
  return found;
}

TEST(TensorSlab, FlatRangesAreFewBoxesInOrder) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5}, Shape{4, 1, 6}, Shape{2, 3, 2, 3}}) {
    const std::int64_t elements = shape.elements();
    for (std::int64_t begin = 0; begin <= elements; ++begin) {
      for (std::int64_t end = begin; end <= elements; ++end) {
        const auto boxes = decompose(shape, begin, end);
        EXPECT_LE(std::ssize(boxes), std::max(1, 2 * shape.rank() - 1));
        std::int64_t next = begin;
        for (const hdf5::Box& box : boxes) {
          for (const std::int64_t position : positions(shape, box)) ASSERT_EQ(position, next++);
        }
        ASSERT_EQ(next, end) << shape.to_string();
      }
    }
  }
}

TEST(TensorSlab, CutPartsAreSmallAndKeepTheOrder) {
  const Shape shape{5, 4, 6};
  const hdf5::Box box{{1, 0, 2}, {4, 3, 4}};
  for (const std::int64_t limit : {1, 5, 7, 13, 100}) {
    std::vector<std::int64_t> all;
    for (const hdf5::Box& part : cut(box, limit)) {
      EXPECT_LE(part.elements(), limit);
      const auto some = positions(shape, part);
      all.insert(all.end(), some.begin(), some.end());
    }
    EXPECT_EQ(all, positions(shape, box));
  }
}

TEST(TensorSlab, RunsJoinWhatIsWholeInTensorAndMemory) {
  std::vector<float> memory(4 * 6);
  TensorSlice slice;
  slice.global = {9, 6};
  slice.start = {3, 0};
  slice.extent = {3, 6};
  slice.local = Tensor::wrap(memory.data(), {4, 6}, DType::kF32);  // a padding row
  std::vector<trireme::Run> runs;
  for_each_run(slice, boxes_of(slice).at(0), [&](const trireme::Run& run) { runs.push_back(run); });
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].global, 18);
  EXPECT_EQ(runs[0].count, 18);
  slice.extent = {3, 4};  // and padding columns
  runs.clear();
  for_each_run(slice, boxes_of(slice).at(0), [&](const trireme::Run& run) { runs.push_back(run); });
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[2].global, 30);
  EXPECT_EQ(runs[2].memory, 12);
  EXPECT_EQ(runs[2].count, 4);
}

// Every part of a tensor gives the same elements as the whole, cut at the part's ends.
TEST(TensorSlab, RunsWithinAPartAreThoseOfTheWholeCutThere) {
  std::vector<float> memory(6 * 5 * 7);
  TensorSlice columns;
  columns.global = {3, 5, 11};
  columns.start = {1, 0, 2};
  columns.extent = {2, 5, 7};
  columns.local = Tensor::wrap(memory.data(), {2, 6, 7}, DType::kF32);
  TensorSlice flat = columns;
  flat.range = FlatRange{4, 61};
  for (const TensorSlice& slice : {columns, flat}) {
    std::map<std::int64_t, std::int64_t> all;  // from the tensor to memory, element by element
    const auto add_to = [](std::map<std::int64_t, std::int64_t>& to) {
      return [&to](const trireme::Run& run) {
        for (std::int64_t i = 0; i < run.count; ++i) to[run.global + i] = run.memory + i;
      };
    };
    for (const hdf5::Box& box : boxes_of(slice)) for_each_run(slice, box, add_to(all));
    ASSERT_EQ(std::ssize(all), slice.elements());
    for (std::int64_t begin = 0; begin <= 165; begin += 4) {
      for (const std::int64_t end : {begin, begin + 1, begin + 9, begin + 60}) {
        std::map<std::int64_t, std::int64_t> some;
        for (const hdf5::Box& box : boxes_of(slice)) {
          for_each_run(slice, box, {begin, end}, add_to(some));
        }
        const std::map<std::int64_t, std::int64_t> expected(all.lower_bound(begin),
                                                            all.lower_bound(end));
        EXPECT_EQ(some, expected) << begin << " to " << end;
      }
    }
  }
}

TEST(TensorSlab, SlicesBeyondTheTensorOrTheirMemoryAreRefused) {
  std::vector<float> memory(12);
  const auto with = [&](const Shape& global, std::vector<std::int64_t> start, const Shape& extent,
                        std::optional<FlatRange> range, const Shape& local) {
    check_slice({"state/x", global, std::move(start), extent, range,
                 Tensor::wrap(memory.data(), local, DType::kF32)});
  };
  EXPECT_NO_THROW(with({4, 3}, {1, 0}, {3, 3}, {}, {4, 3}));
  EXPECT_NO_THROW(with({4, 3}, {1, 0}, {3, 3}, FlatRange{2, 9}, {7}));
  EXPECT_THROW(with({4, 3}, {2, 0}, {3, 3}, {}, {4, 3}), InternalError);
  EXPECT_THROW(with({4, 3}, {-1, 0}, {3, 3}, {}, {4, 3}), InternalError);
  EXPECT_THROW(with({4, 3}, {0}, {3, 3}, {}, {4, 3}), InternalError);
  EXPECT_THROW(with({4, 3}, {1, 0}, {3, 3}, {}, {2, 3}), InternalError);
  EXPECT_THROW(with({4, 3}, {1, 0}, {3, 3}, FlatRange{2, 10}, {12}), InternalError);
  EXPECT_THROW(with({4, 3}, {1, 0}, {3, 3}, FlatRange{2, 9}, {6}), InternalError);
}

TEST(TensorChecksum, PartsAddUpWhereverTheyAreCut) {
  std::vector<std::uint32_t> words(10'000);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * i + 1);
  const std::span<const std::uint32_t> all(words);
  const std::uint64_t whole = tensor_checksum(all, 0);
  for (const std::size_t at : {0u, 1u, 4095u, 4096u, 4097u, 8192u, 9999u, 10000u}) {
    EXPECT_EQ(tensor_checksum(all.subspan(at), at) + tensor_checksum(all.first(at), 0), whole);
  }
  EXPECT_NE(tensor_checksum(all, 1), whole);
  // What the formula in io/CHECKPOINTS.md gives, computed elsewhere.
  const std::vector<std::uint32_t> two = {3, 5};
  EXPECT_EQ(tensor_checksum(two, 4095), 0x2b61bcbb9d3deb66u);
}

}  // namespace
}  // namespace trireme
