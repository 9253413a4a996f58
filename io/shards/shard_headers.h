// The shards that a dataset names: their list, their headers, and both as one text that rank 0 can
// send. Info is TokenShardInfo or ImageShardInfo.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/dataset.h"
#include "trireme/io/image_shard.h"

#include "io/shards/sample_places.h"

namespace trireme {

template <class Info>
struct ShardHeaders {
  std::vector<DataPart> parts;
  std::vector<Info> shards;  // all alike: of one tokenizer; of one size and the same classes
};

// Returns the weights times the smallest power of ten, from 1 to 1e6, that makes them whole
// numbers: 0.7 and 0.3 become 7 and 3. If none does, the weights times 1e6 are rounded. Throws
// ConfigError for a weight outside 1e-6 to 1e6.
std::vector<std::uint64_t> whole_weights(std::span<const WeightedPath> paths);

// Reads the headers. Of a folder only the shards of this split are taken; empty: all.
template <class Info>
ShardHeaders<Info> read_shard_headers(const std::vector<WeightedPath>& data,
                                      const std::string& split);

// Packs the headers, or, if they cannot be read, the Error; then unpack_shard_headers throws it.
template <class Info>
std::string pack_shard_headers(const std::vector<WeightedPath>& data, const std::string& split);
template <class Info>
ShardHeaders<Info> unpack_shard_headers(const std::string& packed);

// Describes the data without their paths: a line for each part, with its weight, its numbers, and
// the XXH64 of the counts and checksums in its shards' headers.
template <class Info>
std::string contents_of(const ShardHeaders<Info>& headers);

}  // namespace trireme
