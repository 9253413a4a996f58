// Shards as samples: what a sample holds, in which order samples come, and reading ahead.
#include "trireme/io/dataset.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "trireme/base/error.h"
#include "trireme/io/batch_reader.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kEnd = 256;

class Dataset : public ::testing::Test {
 protected:
  // A shard of documents whose bytes are 'first', 'first' + 1, ... (mod 200), of these lengths.
  std::string shard(const std::string& name, const std::vector<int>& lengths, int first = 0,
                    const std::string& split = "train") {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint64_t> starts;
    for (const int length : lengths) {
      starts.push_back(tokens.size());
      for (int i = 0; i < length; ++i) tokens.push_back(first++ % 200);
      tokens.push_back(kEnd);
    }
    return shard_of(name, tokens, starts, split);
  }
  std::string shard_of(const std::string& name, const std::vector<std::int32_t>& tokens,
                       const std::vector<std::uint64_t>& starts, const std::string& split) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    TokenShardWriter writer(path.string(), make_byte_tokenizer(), split, "test");
    writer.append(tokens, starts, tokens.size() - starts.size());
    writer.commit();
    return path.string();
  }
  static std::shared_ptr<const TokenDataset> open(const std::vector<WeightedPath>& data,
                                                  std::int64_t context,
                                                  SampleOrder order = SampleOrder::kShuffled,
                                                  std::uint64_t seed = 1) {
    return TokenDataset::open({data, "train", context, seed, order});
  }
  static std::vector<std::int32_t> tokens_of(const std::string& path) {
    const auto raw = hdf5::File::open(path).dataset("/tokens").read<std::uint16_t>();
    return {raw.begin(), raw.end()};
  }

  testing::TemporaryFolder folder_;
};

std::vector<std::uint64_t> range(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::uint64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

using Ints = std::vector<std::int32_t>;

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

// The shard as another program may write it: compressed, with tokens of any type, strings of
// variable length and no closing record. `missing` tokens before the others are claimed, but not
// there.
template <class T>
void rewrite(const std::string& path, const std::string& to, hdf5::ElementType type,
             const std::vector<T>& tokens, std::int64_t version = 1, std::int64_t missing = 0,
             std::size_t tokenizer_bytes = 0) {
  hdf5::File file = hdf5::File::create(to);
  const hdf5::File from = hdf5::File::open(path);
  file.create_dataset("/tokens", type, {missing}, {100, 4}).append(std::span<const T>(tokens));
  const std::vector<std::uint64_t> starts = {0};
  file.create_dataset("/documents", hdf5::ElementType::kU64, {1})
      .write(0, std::span<const std::uint64_t>(starts));
  if (tokenizer_bytes == 0) {
    file.create_dataset("/tokenizer", hdf5::ElementType::kU8, {0});
  } else {
    const std::vector<std::uint8_t> tokenizer(tokenizer_bytes);
    file.create_dataset("/tokenizer", hdf5::ElementType::kU8, {0}, {1 << 20, 4})
        .append(std::span<const std::uint8_t>(tokenizer));
  }
  for (const std::string& name : from.attributes("/")) {
    if (name == "tokenizer" || name == "source" || name == "split" || name == "checksum") {
      file.set_attribute("/", name, from.string_attribute("/", name));
    } else {
      file.set_attribute("/", name, from.integer_attribute("/", name));
    }
  }
  file.set_attribute("/", "format_version", version);
  if (version >= 2) {
    const auto checksums = from.dataset("/token_checksums").read<std::uint64_t>();
    file.create_dataset("/token_checksums", hdf5::ElementType::kU64, {0}, {64, 4})
        .append(std::span<const std::uint64_t>(checksums));
    file.set_attribute("/token_checksums", "block_bytes", std::int64_t{4096});
  }
  file.close();
}

TEST_F(Dataset, ChunkedAndCompressedTokensReadTheSame) {
  const std::string path = shard("a.h5", {5000});
  const Ints tokens = tokens_of(path);
  const std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  const std::string other = (folder_.path() / "b.h5").string();
  for (const std::int64_t version : {1, 2}) {
    rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, version);
    const TokenShardInfo info = verify_token_shard(other);
    EXPECT_EQ(info.data_offset, -1);
    EXPECT_EQ(info.format_version, version);
    EXPECT_FALSE(info.has_record);
    const auto a = open({{path}}, 16), b = open({{other}}, 16);
    EXPECT_EQ(a->read(range(0, 300)).tokens, b->read(range(0, 300)).tokens);
  }
}

// Changes one byte of a file.
void flip(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

template <class Read>
std::string fault_of(const Read& read) {
  try {
    read();
    return "no fault";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST_F(Dataset, AFlippedTokenIsFoundByWhoReadsIt) {
  const std::string whole = shard("a.h5", {9000});  // 9001 tokens: blocks of 2048, the last of 809
  const TokenShardInfo info = read_token_shard_info(whole);
  EXPECT_EQ(info.format_version, 2);
  EXPECT_TRUE(info.has_record);
  for (const std::int64_t token : {0, 2047, 2048, 5000, 8192, 9000}) {
    const std::string path = (folder_.path() / "b.h5").string();
    fs::copy_file(whole, path, fs::copy_options::overwrite_existing);
    flip(path, info.data_offset + 2 * token);
    const std::int64_t block = token / 2048;
    // bad input: a shard with a flipped token | ...: damaged: tokens 2048 to 4095 (block 1) do not
    // match their checksum | 3
    const std::string words =
        fmt::format("b.h5: damaged: tokens {} to {} (block {}) do not match their checksum",
                    block * 2048, std::min<std::int64_t>(block * 2048 + 2047, 9000), block);
    const auto dataset = open({{path}}, 100, SampleOrder::kSequential);
    for (std::uint64_t n = 0; n < dataset->samples(); ++n) {
      const std::int64_t begin = std::max<std::int64_t>(100 * static_cast<std::int64_t>(n) - 1, 0);
      const std::int64_t end =
          std::min<std::int64_t>(100 * static_cast<std::int64_t>(n) + 99, 9000);
      const bool touched = begin / 2048 <= block && block <= end / 2048;
      const std::string what = fault_of([&] { dataset->read(std::vector{n}); });
      if (touched) {
        EXPECT_NE(what.find(words), std::string::npos) << what;
      } else {
        EXPECT_EQ(what, "no fault") << "token " << token << ", sample " << n;
      }
    }
    EXPECT_NE(fault_of([&] { verify_token_shard(path); }).find(words), std::string::npos);
  }
}

TEST_F(Dataset, AFlippedTokenIsFoundInOtherFormsOfAShard) {
  const std::string path = shard("a.h5", {5000});
  const Ints tokens = tokens_of(path);
  std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  raw[3000] ^= 1;
  const std::string other = (folder_.path() / "b.h5").string();
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 2);  // compressed
  const auto row = std::vector<std::uint64_t>{187};                      // tokens 2992 to 3007
  EXPECT_NE(fault_of([&] {
              open({{other}}, 16, SampleOrder::kSequential)->read(row);
            }).find("tokens 2048 to 4095 (block 1)"),
            std::string::npos);
  // Version 1 has no checksums of blocks: that of the whole finds it.
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 1);
  EXPECT_NO_THROW(open({{other}}, 16, SampleOrder::kSequential)->read(row));
  EXPECT_NE(fault_of([&] {
              verify_token_shard(other);
            }).find("the tokens are damaged: their checksum is"),
            std::string::npos);
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
  const std::string fault = fault_of([&] {
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
  EXPECT_EQ(fault, "no fault");
  ASSERT_EQ(rows.size(), 2u * 400u);  // 21 tokens: two samples each
  EXPECT_EQ(rows[0][0], 0);
  EXPECT_EQ(rows[2 * 150][0], 150);
  EXPECT_EQ(rows[400 + 2 * 150][0], 150);
}

TEST_F(Dataset, DocumentsThatDoNotRiseAreRefused) {
  const auto with = [&](const std::vector<std::uint64_t>& starts) {
    const std::string path = shard("a.h5", {10, 10, 10});
    hdf5::File file = hdf5::File::open_to_write(path);
    file.dataset("/documents").write(0, std::span<const std::uint64_t>(starts));
    file.close();
    return fault_of([&] { open({{path}}, 4); });
  };
  EXPECT_EQ(with({0, 11, 22}), "no fault");
  // bad input: a shard whose `/documents` do not begin at 0, rise, or end before the tokens | ...:
  // /documents is damaged: number 2 starts at token 11; expected 23 to 32 | 3
  EXPECT_NE(with({1, 11, 22}).find("/documents is damaged: the first one starts at token 1"),
            std::string::npos);
  EXPECT_NE(with({0, 22, 11}).find("number 2 starts at token 11; expected 23 to 32"),
            std::string::npos);
  EXPECT_NE(with({0, 0, 22}).find("number 1 starts at token 0"), std::string::npos);
  EXPECT_NE(with({0, 11, 33}).find("number 2 starts at token 33"), std::string::npos);
  EXPECT_NE(with({0, 11, std::uint64_t{1} << 63}).find("number 2 starts at token"),
            std::string::npos);
}

TEST_F(Dataset, SizesThatTheFileCannotHoldAreRefused) {
  const std::string path = shard("a.h5", {50});
  const std::string other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  const std::int64_t many = std::int64_t{1} << 50;
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, {tokens.begin(), tokens.end()}, 1,
                         many - std::ssize(tokens));
  {
    hdf5::File file = hdf5::File::open_to_write(other);
    file.set_attribute("/", "tokens", many);
    file.close();
  }
  const std::string what = fault_of([&] { open({{other}}, 4); });
  // bad input: a shard that claims more tokens than its file can hold | ...: /tokens claims
  // 2251799813685248 bytes, of which the file holds 118 | 3
  EXPECT_NE(what.find("/tokens claims 2251799813685248 bytes"), std::string::npos) << what;
}

template <class Fault>
void expect_fault(const DatasetOptions& options, const std::string& words) {
  try {
    TokenDataset::open(options);
    FAIL() << "accepted, expected: " << words;
  } catch (const Fault& fault) {
    const std::string what = fault.what();
    EXPECT_NE(what.find(words), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST_F(Dataset, RefusesBadFiles) {
  const std::string path = shard("a.h5", {50});
  const auto with = [](const std::string& data) { return DatasetOptions{{{data}}, "train", 4}; };
  expect_fault<DataError>(with((folder_.path() / "no.h5").string()), "no.h5");
  const std::string text = (folder_.path() / "text.h5").string();
  std::ofstream(text) << "this is not HDF5, but text";
  expect_fault<DataError>(with(text), "not an HDF5 file");
  const std::string foreign = (folder_.path() / "foreign.h5").string();
  hdf5::File::create(foreign).close();
  expect_fault<DataError>(with(foreign), "not a token shard");
  for (const double part : {0.1, 0.5, 0.9, 0.99}) {
    const std::string cut = (folder_.path() / "cut.h5").string();
    fs::copy_file(path, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut,
                    static_cast<std::uintmax_t>(part * static_cast<double>(fs::file_size(path))));
    expect_fault<DataError>(with(cut), "cut.h5");
  }
  const std::string real = (folder_.path() / "real.h5").string();
  rewrite<float>(path, real, hdf5::ElementType::kF32, std::vector<float>(51, 1.0f));
  // bad input: `train`: a shard of another dtype | ...: /tokens is float32, not uint16 or uint32 |
  // 3
  expect_fault<DataError>(with(real), "/tokens is float32, not uint16 or uint32");
  expect_fault<DataError>({{{path}}, "train", 51}, "less than one sample");
  fs::create_directories(folder_.path() / "none");
  expect_fault<DataError>(with((folder_.path() / "none").string()), "no shards");
}

TEST_F(Dataset, RefusesHeadersThatContradictTheFile) {
  const auto altered = [&](const std::string& name, std::int64_t value) {
    const std::string path = shard("a.h5", {50});
    hdf5::File file = hdf5::File::open_to_write(path);
    file.set_attribute("/", name, value);
    file.close();
    return DatasetOptions{{{path}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(altered("tokens", 51)));
  expect_fault<DataError>(altered("tokens", 52), "51");
  expect_fault<DataError>(altered("tokens", -1), "tokens");
  expect_fault<DataError>(altered("documents", 2), "documents");
  expect_fault<DataError>(altered("vocabulary", 0), "vocabulary");
  expect_fault<DataError>(altered("vocabulary", 300), "vocabulary");
  expect_fault<DataError>(altered("end_of_text", 257), "end of text");
  // bad input: a shard whose end of text is not its tokenizer's | ...: the header says that end of
  // text is token 65, its tokenizer says 256 | 3
  expect_fault<DataError>(altered("end_of_text", 65), "its tokenizer says 256");
  expect_fault<DataError>(altered("original_bytes", -3), "original bytes");
  expect_fault<DataError>(altered("format_version", 9), "version 9");
}

TEST_F(Dataset, RefusesATokenizerBeyondItsLimitBeforeItIsRead) {
  const std::string path = shard("a.h5", {50}), other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  const auto with = [&](std::size_t tokenizer_bytes) {
    rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, {tokens.begin(), tokens.end()}, 1,
                           0, tokenizer_bytes);
    return DatasetOptions{{{other}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(with(0)));
  // bad input: a shard with a tokenizer of more than 64 MiB | ...: a tokenizer of 67108865 bytes;
  // at most 67108864 are read | 3
  expect_fault<DataError>(with(Tokenizer::kMaxModelBytes + 1),
                          "a tokenizer of 67108865 bytes; at most 67108864 are read");
}

// Stands for another tokenizer: only its header is read.
class OtherTokenizer final : public Tokenizer {
 public:
  OtherTokenizer(std::string kind, std::size_t vocabulary, std::int32_t end, std::string model)
      : kind_(std::move(kind)), model_(std::move(model)) {
    set_vocabulary(std::vector<std::string>(vocabulary, "x"), end, {});
  }
  std::string_view kind() const override { return kind_; }
  std::string description() const override { return kind_; }
  const std::string& model() const override { return model_; }
  void encode(std::string_view, std::vector<std::int32_t>&) const override {}

 private:
  std::string kind_, model_;
};

TEST_F(Dataset, RefusesShardsThatDoNotBelongTogether) {
  const std::string bytes = shard("a.h5", {50});
  const auto with = [&](const OtherTokenizer& other) {
    const std::string path = (folder_.path() / "b.h5").string();
    TokenShardWriter writer(path, std::make_shared<OtherTokenizer>(other), "train", "test");
    writer.append(std::vector<std::int32_t>(50, 1), std::vector<std::uint64_t>{0}, 50);
    writer.commit();
    return DatasetOptions{{{bytes}, {path}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(with({"byte", 257, 256, ""})));
  expect_fault<DataError>(with({"byte", 300, 256, ""}), "vocabularies of 257 and 300");
  expect_fault<DataError>(with({"byte", 70000, 256, ""}), "257 and 70000");
  expect_fault<DataError>(with({"byte", 257, 3, ""}), "end of text is 256 and 3");
  expect_fault<DataError>(with({"sentencepiece", 257, 256, ""}), "byte and sentencepiece");
  expect_fault<DataError>(with({"byte", 257, 256, "a model"}), "two models");
}

TEST_F(Dataset, TakesAnOpenTokenizerIfItIsTheSame) {
  const std::string path = shard("a.h5", {20});
  const auto train = TokenDataset::open({{{path}}, "train", 4});
  const auto with = [&](TokenizerPtr open) {
    return TokenDataset::open({.data = {{path}}, .context = 4, .tokenizer = std::move(open)})
        ->tokenizer();
  };
  EXPECT_EQ(with(train->tokenizer()), train->tokenizer());
  EXPECT_NE(with(nullptr), train->tokenizer());
  for (const OtherTokenizer& differs : {OtherTokenizer{"sentencepiece", 257, 256, ""},
                                        OtherTokenizer{"byte", 257, 256, "a model"}}) {
    const auto other = std::make_shared<OtherTokenizer>(differs);
    EXPECT_NE(with(other), other);
    EXPECT_EQ(with(other)->kind(), "byte");
  }
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

TEST_F(Dataset, RefusesTokensOutsideTheVocabulary) {
  const std::string path = shard("a.h5", {50}), other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  raw[17] = 257;
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 1);
  const std::string what =
      fault_of([&] { open({{other}}, 50)->read(std::vector<std::uint64_t>{0}); });
  EXPECT_NE(what.find("token 17 is 257, outside the vocabulary of 257"), std::string::npos) << what;
}

// Reading ahead.

std::vector<std::uint64_t> plan(std::uint64_t step) {
  return range(step * 5, step * 5 + step % 6);
}

TEST_F(Dataset, ReadingAheadGivesWhatReadingGives) {
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

TEST_F(Dataset, AReaderStopsWhereverItIs) {
  const auto dataset = open({{shard("a.h5", {900})}}, 7);
  for (int taken = 0; taken < 20; ++taken) {
    BatchReader reader(dataset, [](std::uint64_t step) { return std::optional(plan(step)); });
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(reader.next().has_value());
  }
}

TEST_F(Dataset, AReadersFaultComesFromNextAtItsStep) {
  const auto dataset = open({{shard("a.h5", {900})}}, 7);
  BatchReader reader(dataset, [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
    if (step == 4) throw DataError("the plan ends here");
    return plan(step);
  });
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(reader.next().has_value());
  EXPECT_THROW(reader.next(), DataError);
  EXPECT_THROW(reader.next(), DataError);
}

TEST_F(Dataset, WaitingIsCounted) {
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
