// Shards as samples: what a sample holds, and in which order samples come.
#include "trireme/io/dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "support/token_shards.h"

namespace trireme {
namespace {

using testing::Ints;
using testing::kEnd;
using testing::message_of;
using testing::range;

class Dataset : public testing::TokenShards {};

TEST_F(Dataset, ASampleIsARunOfTokensAndTheOneBehindIt) {
  // 13 tokens at a context of 4: samples at 0, 4, 8; the last one's last target is token 12.
  const std::string path = shard("a.h5", {5, 6});
  const Ints all = tokens_of(path);
  ASSERT_EQ(all.size(), 13u);
  const auto dataset = open({{path}}, 4);
  EXPECT_EQ(dataset->samples(), 3u);
  EXPECT_EQ(dataset->tokens(), 13);
  EXPECT_EQ(dataset->original_bytes(), 11);
  EXPECT_EQ(dataset->vocabulary(), 257);
  std::set<std::uint64_t> seen;
  for (std::uint64_t n = 0; n < 3; ++n) {
    const auto place = dataset->place_of(n);
    seen.insert(place.sample);
    const TokenBatch batch = dataset->read(std::vector{n});
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(4 * place.sample);
    EXPECT_EQ(batch.tokens, Ints(begin, begin + 4));
    EXPECT_EQ(batch.targets, Ints(begin + 1, begin + 5));
    EXPECT_TRUE(batch.first_key.empty());
  }
  EXPECT_EQ(seen.size(), 3u);
  // One token less, and the third sample would lack its last target.
  EXPECT_EQ(open({{shard("b.h5", {5, 5})}}, 4)->samples(), 2u);
  EXPECT_EQ(open({{shard("c.h5", {4})}}, 4)->samples(), 1u);
}

TEST_F(Dataset, FirstKeyIsTheDocumentsStart) {
  // Tokens: 0 1 E 2 3 4 E E 5; the second E ends an empty document.
  const std::string path =
      shard_of("a.h5", {0, 1, kEnd, 2, 3, 4, kEnd, kEnd, 5, 6, kEnd}, {0, 3, 7, 8}, "train");
  const TokenBatch batch = open({{path}}, 10)->read(std::vector<std::uint64_t>{0}, true);
  EXPECT_EQ(batch.first_key, (Ints{0, 0, 0, 3, 3, 3, 3, 7, 8, 8}));
  EXPECT_EQ(batch.targets, (Ints{1, kEnd, 2, 3, 4, kEnd, kEnd, 5, 6, kEnd}));
}

TEST_F(Dataset, SequentialSamplesPredictEveryTokenOnce) {
  const std::string a = shard("a.h5", {5, 6}), b = shard("b.h5", {7}, 100);
  for (const std::int64_t context : {1, 3, 4, 13, 50}) {
    const auto dataset = open({{a}, {b}}, context, SampleOrder::kSequential);
    const TokenBatch batch = dataset->read(range(0, dataset->samples()));
    Ints targets = batch.targets;
    targets.erase(std::remove(targets.begin(), targets.end(), -1), targets.end());
    Ints expected = tokens_of(a);
    const Ints second = tokens_of(b);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(targets, expected) << context;
    EXPECT_EQ(static_cast<std::int64_t>(targets.size()), dataset->tokens());
    EXPECT_THROW(dataset->read(range(dataset->samples(), dataset->samples() + 1)), InternalError);
  }
  const auto dataset = open({{b}}, 3, SampleOrder::kSequential);
  EXPECT_EQ(dataset->samples(), 3u);
  const TokenBatch batch = dataset->read(range(0, 3));
  EXPECT_EQ(batch.tokens, (Ints{kEnd, 100, 101, 102, 103, 104, 105, 106, kEnd}));
  EXPECT_EQ(batch.targets, (Ints{100, 101, 102, 103, 104, 105, 106, kEnd, -1}));
}

// B before each text: no window predicts it, and each begins with it.
TEST_F(Dataset, WindowsBeginWhereTextsDo) {
  constexpr std::int32_t kBegin = 200;
  const TokenizerPtr tokenizer = make_tokenizer("byte", "", kBegin);
  const std::string path = shard_of("a.h5", {kBegin, 0, 1, kEnd, kBegin, 2, 3, 4, kEnd}, {0, 4},
                                    "validation", tokenizer);
  EXPECT_EQ(read_token_shard_info(path).begin_of_text, kBegin);
  DatasetOptions options{.data = {{path}}, .context = 4, .order = SampleOrder::kSequential};
  const auto plain = TokenDataset::open(options)->read(range(0, 3));
  EXPECT_EQ(plain.tokens, (Ints{kEnd, kBegin, 0, 1, kEnd, kBegin, 2, 3, 4, kEnd, kEnd, kEnd}));
  options.begins_windows = true;
  const auto dataset = TokenDataset::open(options);
  EXPECT_EQ(dataset->tokenizer()->begin_of_text(), kBegin);
  const TokenBatch batch = dataset->read(range(0, 3));
  EXPECT_EQ(batch.tokens,
            (Ints{kBegin, kBegin, 0, 1, kBegin, kBegin, 2, 3, kBegin, kEnd, kEnd, kEnd}));
  EXPECT_EQ(batch.targets, (Ints{-1, 0, 1, kEnd, -1, 2, 3, 4, kEnd, -1, -1, -1}));
  // The same tokenizer without it is another one, and its shards do not go together.
  options.tokenizer = make_byte_tokenizer();
  EXPECT_EQ(TokenDataset::open(options)->tokenizer()->begin_of_text(), kBegin);
  const std::string other = shard_of("b.h5", {0, 1, 2, 3, kEnd}, {0}, "validation");
  // bad input: `data.train`: shards that begin texts in two ways | ... cannot be used together:
  // begin of text is 200 and none | 3
  options.data = {{path}, {other}};
  EXPECT_NE(message_of<DataError>([&] {
              TokenDataset::open(options);
            }).find("begin of text is 200 and none"),
            std::string::npos);
}

// Where one token begins and ends texts, it is predicted as the end.
TEST_F(Dataset, AnEndThatAlsoBeginsIsATarget) {
  const std::string path = shard_of("a.h5", {0, 1, kEnd, 2, 3, kEnd}, {0, 3}, "validation",
                                    make_tokenizer("byte", "", kEnd));
  const TokenBatch batch = TokenDataset::open({.data = {{path}},
                                               .context = 3,
                                               .order = SampleOrder::kSequential,
                                               .begins_windows = true})
                               ->read(range(0, 2));
  EXPECT_EQ(batch.tokens, (Ints{kEnd, 0, 1, kEnd, 2, 3}));
  EXPECT_EQ(batch.targets, (Ints{0, 1, kEnd, 2, 3, kEnd}));
}

TEST_F(Dataset, EveryEpochVisitsEverySampleOnceInItsOwnOrder) {
  const std::vector<WeightedPath> data = {
      {shard("a.h5", {400})}, {shard("b.h5", {230})}, {shard("c.h5", {7})}};
  const auto dataset = open(data, 6);
  const std::uint64_t count = dataset->samples();
  EXPECT_EQ(count, 66u + 38u + 1u);
  std::vector<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::pair<std::size_t, std::uint64_t>> seen;
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto place = dataset->place_of(epoch * count + i);
      seen.emplace(place.shard, place.sample);
      order.push_back(place.shard * 1000 + place.sample);
    }
    EXPECT_EQ(seen.size(), count);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  const auto again = open(data, 6), other = open(data, 6, SampleOrder::kShuffled, 2);
  EXPECT_EQ(again->place_of(17), dataset->place_of(17));
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < count; ++i) {
    order.push_back(other->place_of(i).shard * 1000 + other->place_of(i).sample);
  }
  EXPECT_NE(order, orders[0]);
}

TEST(Mixture, KeepsTheWeightsExactly) {
  const Mixture mixture({7, 3});
  const Mixture three({5, 1, 4});
  std::map<std::size_t, std::uint64_t> given, given3;
  for (std::uint64_t n = 0; n < 100000; ++n) {
    const auto draw = mixture.draw(n);
    EXPECT_EQ(draw.count, given[draw.part]++);
    const auto draw3 = three.draw(n);
    EXPECT_EQ(draw3.count, given3[draw3.part]++);
    EXPECT_NEAR(static_cast<double>(given3[2]), 0.4 * static_cast<double>(n + 1), 2.0);
  }
  EXPECT_EQ(given[0], 70000u);
  EXPECT_EQ(given3[0], 50000u);
  EXPECT_EQ(given3[1], 10000u);
  // Far out, too: 10^18 samples further the next ten still hold seven and three.
  given.clear();
  for (std::uint64_t n = 0; n < 10; ++n) ++given[mixture.draw(1000000000000000000u + n).part];
  EXPECT_EQ(given[0], 7u);
  EXPECT_EQ(mixture.draw(1000000000000000000u).count % 100000000000000000u, 0u);
}

TEST_F(Dataset, MixesByWeightAndEachPartHasItsOwnEpochs) {
  const auto dataset = open({{shard("a.h5", {40}), 0.75}, {shard("b.h5", {400}), 0.25}}, 4);
  std::map<std::size_t, std::vector<std::uint64_t>> seen;
  for (std::uint64_t n = 0; n < 400; ++n) {
    const auto place = dataset->place_of(n);
    seen[place.shard].push_back(place.sample);
  }
  EXPECT_EQ(seen[0].size(), 300u);  // 30 epochs of its 10 samples
  EXPECT_EQ(seen[1].size(), 100u);  // the first of its 100
  for (std::size_t epoch = 0; epoch < 30; ++epoch) {
    const auto begin = seen[0].begin() + static_cast<std::ptrdiff_t>(epoch * 10);
    EXPECT_EQ(std::set<std::uint64_t>(begin, begin + 10).size(), 10u);
  }
  EXPECT_EQ(std::set<std::uint64_t>(seen[1].begin(), seen[1].end()).size(), 100u);
}

// Without weights a small shard gives few samples.
TEST_F(Dataset, EqualWeightsThatAreWrittenCount) {
  const std::string large = shard("a.h5", {400}), small = shard("b.h5", {7});
  const auto from_small = [&](const std::vector<WeightedPath>& data) {
    const auto dataset = open(data, 6);
    int count = 0;
    for (std::uint64_t i = 0; i < 20; ++i) count += dataset->place_of(i).shard == 1 ? 1 : 0;
    return count;
  };
  EXPECT_LE(from_small({{large}, {small}}), 1);
  EXPECT_EQ(from_small({{large, 1.0}, {small, 1.0}}), 10);
  EXPECT_EQ(from_small({{large, 1.0}, {small}}), 10);
  EXPECT_EQ(from_small({{large, 0.5}, {small, 0.5}}), 10);
}

TEST_F(Dataset, FoldersGiveTheShardsOfTheSplit) {
  shard("in/b.h5", {20}, 20);
  shard("in/a.h5", {10}, 10);
  shard("in/v.h5", {30}, 30, "validation");
  std::ofstream(folder_.path() / "in" / "readme.txt") << "not a shard";
  const std::string folder = (folder_.path() / "in").string();
  const auto train = open({{folder}}, 4);
  ASSERT_EQ(train->shards().size(), 2u);
  EXPECT_EQ(train->shards()[0].path, folder + "/a.h5");
  EXPECT_EQ(TokenDataset::open({{{folder}}, "validation", 4})->tokens(), 31);
  EXPECT_EQ(TokenDataset::open({{{folder}}, "", 4})->tokens(), 31 + 21 + 11);
  EXPECT_THROW(TokenDataset::open({{{folder}}, "test", 4}), DataError);
}
TEST_F(Dataset, MoreShardsThanFilesMayBeOpen) {
  std::vector<WeightedPath> paths;
  for (int i = 0; i < 200; ++i) {
    paths.push_back({shard(fmt::format("many/{:03}.h5", i), {20}, i)});
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Ints> rows;
  const std::string fault = message_of<DataError>([&] {
    const auto dataset = open(paths, 20, SampleOrder::kSequential);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::uint64_t n = 0; n < dataset->samples(); ++n) {
        rows.push_back(dataset->read(std::vector{n}).targets);
      }
    }
    // Whoever else opens files still can.
    std::vector<std::ifstream> others;
    for (int i = 0; i < 32; ++i) {
      others.emplace_back(paths[0].path);
      EXPECT_TRUE(others.back().is_open()) << i;
    }
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(fault, "no error");
  ASSERT_EQ(rows.size(), 2u * 400u);  // 21 tokens: two samples each
  EXPECT_EQ(rows[0][0], 0);
  EXPECT_EQ(rows[2 * 150][0], 150);
  EXPECT_EQ(rows[400 + 2 * 150][0], 150);
}
TEST_F(Dataset, RefusesBadOptions) {
  const std::string path = shard("a.h5", {50});
  EXPECT_THROW(TokenDataset::open({{}, "train", 4}), ConfigError);
  for (const double weight : {0.0, -1.0, 1e-7, 2e6, std::nan("")}) {
    EXPECT_THROW(TokenDataset::open({{{path}, {path, weight}}, "train", 4}), ConfigError) << weight;
  }
  EXPECT_THROW(TokenDataset::open({{{path}}, "train", 0}), ConfigError);
  EXPECT_THROW(TokenDataset::open({{{path}}, "train", -4}), ConfigError);
}
TEST_F(Dataset, SeveralThreadsReadAtOnce) {
  const auto dataset = open({{shard("a.h5", {3000})}}, 7);
  const TokenBatch expected = dataset->read(range(0, 400));
  std::vector<std::thread> threads;
  std::vector<TokenBatch> got(4);
  for (TokenBatch& batch : got) {
    threads.emplace_back([&] {
      batch = dataset->read(range(0, 400));
      if (open({{dataset->shards()[0].path}}, 7)->samples() != dataset->samples()) batch = {};
    });
  }
  const TokenBatch shared = dataset->read(range(0, 400));
  for (std::thread& thread : threads) thread.join();
  for (const TokenBatch& batch : got) EXPECT_EQ(batch.tokens, expected.tokens);
  EXPECT_EQ(shared.tokens, expected.tokens);
}

}  // namespace
}  // namespace trireme
