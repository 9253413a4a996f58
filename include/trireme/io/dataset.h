// Token shards as the samples of a training run. A position in the data is one number, the global
// sample index: which dataset, which epoch, which place follow from it and from the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/token_shard.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

class Communicator;

enum class SampleOrder {
  // For training. Sample i of a shard is tokens [iT, iT+T], its inputs the first T of them and its
  // targets the last. Each epoch visits every sample of a dataset once, in an order of its own; a
  // sample index has no upper end.
  kShuffled,
  // For evaluation. Sample i predicts tokens [iT, iT+T) of the shards one behind the other, from
  // the tokens before them; an end of text stands before each shard. So every token is predicted
  // once. A shard's last sample is padded by inputs of end of text and targets of -1.
  kSequential,
};

// A path and its share in a mixture, relative to the other weights.
struct WeightedPath {
  std::string path;
  double weight = 1;

  bool operator==(const WeightedPath&) const = default;
};

struct DatasetOptions {
  // Shard files and folders of them. Where all weights are 1 the shards are one dataset; otherwise
  // each path is a part of a mixture.
  std::vector<WeightedPath> data;
  // Of a folder, only the shards of this split; empty: all.
  std::string split = "train";
  std::int64_t context = 0;  // T, tokens of a sample
  std::uint64_t seed = 1;    // of the shuffled order
  SampleOrder order = SampleOrder::kShuffled;
};

struct TokenBatch {
  std::vector<std::uint64_t> samples;   // (n)
  std::vector<std::int32_t> tokens;     // (n, T)
  std::vector<std::int32_t> targets;    // (n, T); -1: none
  std::vector<std::int32_t> first_key;  // (n, T) where asked for, else empty: the place in the
                                        // sample where the token's document starts, or 0
};

// Thread-safe.
class TokenDataset {
 public:
  // Collective over comm: rank 0 alone reads the headers. Throws on every rank alike: DataError
  // where a file is missing, foreign, truncated, shorter than a sample, or unlike the others in
  // element type or tokenizer; ConfigError for an empty list, a weight outside of 1e-6 to 1e6, or
  // a context that is not positive.
  static std::shared_ptr<const TokenDataset> open(const DatasetOptions& options,
                                                  Communicator& comm);
  // The same for a process alone.
  static std::shared_ptr<const TokenDataset> open(const DatasetOptions& options);
  ~TokenDataset();

  // Samples of one pass over all shards, whatever the weights. Sequential indices end here.
  std::uint64_t samples() const;
  std::int64_t context() const;
  std::int64_t tokens() const;          // of all shards
  std::int64_t original_bytes() const;  // of the text behind them: bits per byte divide by it
  std::int32_t vocabulary() const;
  std::int32_t end_of_text() const;
  TokenizerPtr tokenizer() const;
  const std::vector<TokenShardInfo>& shards() const;
  // What the data are, wherever they lie: for each part of the mixture a line of its weight,
  // shards, tokens, documents, and a checksum of the checksums in the shards' headers.
  std::string contents() const;
  // Where a sample lies: the shard's index and the sample's number in it.
  struct Place {
    std::size_t shard;
    std::uint64_t sample;
    bool operator==(const Place&) const = default;
  };
  Place place_of(std::uint64_t sample) const;

  // Reads these samples and nothing else. Throws DataError where the file no longer gives them.
  TokenBatch read(std::span<const std::uint64_t> samples, bool with_first_key = false) const;

  class Impl;

 private:
  explicit TokenDataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Which part of a mixture gives sample n, and how many samples before n that part gave. Every
// stretch of samples holds each part's share of it to within one sample per part, for ever.
class Mixture {
 public:
  struct Draw {
    std::size_t part;
    std::uint64_t count;
  };
  explicit Mixture(std::vector<std::uint64_t> weights);  // > 0
  Draw draw(std::uint64_t n) const;

 private:
  std::vector<std::uint64_t> weights_;
  std::uint64_t total_ = 0;
};

}  // namespace trireme
