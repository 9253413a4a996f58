// Shards of tokens that tests write and read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/io/dataset.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "support/temporary_folder.h"

namespace trireme::testing {

inline constexpr std::int32_t kEnd = 256;  // of text, of the byte tokenizer

class TokenShards : public ::testing::Test {
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
                       const std::vector<std::uint64_t>& starts, const std::string& split,
                       const TokenizerPtr& tokenizer = make_byte_tokenizer()) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    TokenShardWriter writer(path.string(), tokenizer, split, "test");
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

  TemporaryFolder folder_;
};

inline std::vector<std::uint64_t> range(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::uint64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

using Ints = std::vector<std::int32_t>;

}  // namespace trireme::testing
