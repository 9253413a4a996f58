// Token shards as the samples of a training run. A position in the data is one number, the global
// sample index. The dataset, the epoch and the place in it follow from that index and the seed.
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
  // For training. Sample i of a shard is the T+1 tokens [iT, iT+T]: the first T are its inputs, the
  // last T its targets. Each epoch visits every sample of a dataset once, in an order of its own. A
  // sample index has no upper limit.
  kShuffled,
  // For evaluation. The samples of the shards follow each other. Sample i of a shard predicts its
  // tokens [iT, iT+T) from the tokens before them, with an end of text before the shard's first
  // token. So every token is predicted once. A shard's last sample is padded with end-of-text
  // inputs and targets of -1. With begins_windows, and shards of a tokenizer that has a begin of
  // text, each sample has it as its first input, and as no target.
  kSequential,
};

// A path and its weight in a mixture, relative to the other weights. Where one of several paths has
// a weight, those without one weigh 1.
struct WeightedPath {
  std::string path;
  std::optional<double> weight = {};

  bool operator==(const WeightedPath&) const = default;
};

struct DatasetOptions {
  // Shard files and folders of them. Without any weight the shards form one dataset; otherwise each
  // path is a part of a mixture.
  std::vector<WeightedPath> data;
  // Only the shards of this split are taken from a folder; empty: all shards.
  std::string split = "train";
  std::int64_t context = 0;  // T, the tokens per sample
  std::uint64_t seed = 1;    // for the shuffled order
  SampleOrder order = SampleOrder::kShuffled;
  bool begins_windows = false;  // kSequential
  // The tokenizer of other data that are open. If the shards have the same one, it is used and not
  // made again.
  TokenizerPtr tokenizer = {};
};

struct TokenBatch {
  std::vector<std::uint64_t> samples;   // (n)
  std::vector<std::int32_t> tokens;     // (n, T)
  std::vector<std::int32_t> targets;    // (n, T); -1: no target
  std::vector<std::int32_t> first_key;  // (n, T) if asked for, else empty: the position in the
                                        // sample where the token's document starts, or 0
};

// Thread-safe.
class TokenDataset {
 public:
  // Collective over comm. Only rank 0 reads the headers. Throws the same error on every rank:
  // DataError if a file is missing, foreign, truncated, shorter than a sample, or differs from the
  // others in element type or tokenizer; ConfigError for an empty list, a weight outside 1e-6 to
  // 1e6, or a context that is not positive.
  static std::shared_ptr<const TokenDataset> open(const DatasetOptions& options,
                                                  Communicator& comm);
  // The same for a single process.
  static std::shared_ptr<const TokenDataset> open(const DatasetOptions& options);
  ~TokenDataset();

  // The number of samples in one pass over all shards, whatever the weights. Sequential sample
  // indices are below it.
  std::uint64_t samples() const;
  std::int64_t context() const;
  std::int64_t tokens() const;          // of all shards
  std::int64_t original_bytes() const;  // of the text of all shards: the divisor of bits per byte
  std::int32_t vocabulary() const;
  std::int32_t end_of_text() const;
  TokenizerPtr tokenizer() const;
  const std::vector<TokenShardInfo>& shards() const;
  // Describes the data without their paths. Each part of the mixture has one line: its weight,
  // shards, tokens, documents, and a checksum of the token counts and checksums in the shards'
  // headers.
  std::string contents() const;
  // Where a sample is: the shard's index and the sample's number in that shard.
  struct Place {
    std::size_t shard;
    std::uint64_t sample;
    bool operator==(const Place&) const = default;
  };
  Place place_of(std::uint64_t sample) const;

  // Reads only these samples. Throws DataError if the file cannot be read any more, or does not
  // match its checksums and vocabulary.
  TokenBatch read(std::span<const std::uint64_t> samples, bool with_first_key = false) const;

  class Impl;

 private:
  explicit TokenDataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Tells which part of a mixture gives sample n, and how many samples before n that part gave. Any
// contiguous range of samples holds each part's share to within one sample per part, however far
// the run goes.
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
