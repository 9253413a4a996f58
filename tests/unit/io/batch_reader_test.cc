// Samples that are read ahead of those who take them.
#include "trireme/io/batch_reader.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/token_shards.h"

namespace trireme {
namespace {

using testing::range;

class ReadingAhead : public testing::TokenShards {};

std::vector<std::uint64_t> plan(std::uint64_t step) {
  return range(step * 5, step * 5 + step % 6);
}

TEST_F(ReadingAhead, GivesWhatReadingGives) {
  const auto dataset = open({{shard("a.h5", {900, 90})}}, 7);
  for (const int ahead : {1, 2, 7}) {
    BatchReader reader(
        dataset,
        [](std::uint64_t step) { return step < 40 ? std::optional(plan(step)) : std::nullopt; },
        {3, ahead, true});
    for (std::uint64_t step = 3; step < 40; ++step) {
      const auto batch = reader.next();
      ASSERT_TRUE(batch.has_value());
      const TokenBatch direct = dataset->read(plan(step), true);
      EXPECT_EQ(batch->samples, direct.samples);
      EXPECT_EQ(batch->tokens, direct.tokens);
      EXPECT_EQ(batch->targets, direct.targets);
      EXPECT_EQ(batch->first_key, direct.first_key);
    }
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_GE(reader.wait_seconds(), 0.0);
  }
}

TEST_F(ReadingAhead, AReaderStopsWhereverItIs) {
  const auto dataset = open({{shard("a.h5", {900})}}, 7);
  for (int taken = 0; taken < 20; ++taken) {
    BatchReader reader(dataset, [](std::uint64_t step) { return std::optional(plan(step)); });
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(reader.next().has_value());
  }
}

TEST_F(ReadingAhead, AReadersFaultComesFromNextAtItsStep) {
  const auto dataset = open({{shard("a.h5", {900})}}, 7);
  BatchReader reader(dataset, [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
    if (step == 4) throw DataError("the plan ends here");
    return plan(step);
  });
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(reader.next().has_value());
  EXPECT_THROW(reader.next(), DataError);
  EXPECT_THROW(reader.next(), DataError);
}

TEST_F(ReadingAhead, WaitingIsCounted) {
  const auto dataset = open({{shard("a.h5", {900})}}, 7);
  std::atomic<bool> asked = false;
  BatchReader reader(dataset, [&](std::uint64_t step) {
    asked.wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until next() has come to wait
    return step == 0 ? std::optional(plan(step)) : std::nullopt;
  });
  asked = true;
  asked.notify_all();
  reader.next();
  EXPECT_GT(reader.wait_seconds(), 0.0);
}
}  // namespace
}  // namespace trireme
