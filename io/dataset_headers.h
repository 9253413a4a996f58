// The shards in DatasetOptions::data: their list, their headers, and both as one text that rank 0
// can send.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/dataset.h"

namespace trireme {

struct DatasetHeaders {
  struct Part {
    std::uint64_t weight;
    std::vector<std::size_t> shards;  // indices into `shards`
  };
  std::vector<Part> parts;
  std::vector<TokenShardInfo> shards;  // all of the same element type and tokenizer
};

// Returns the weights times the smallest power of ten, from 1 to 1e6, that makes them whole
// numbers: 0.7 and 0.3 become 7 and 3. If none does, the weights times 1e6 are rounded. Throws
// ConfigError for a weight outside 1e-6 to 1e6.
std::vector<std::uint64_t> whole_weights(std::span<const WeightedPath> paths);

DatasetHeaders read_dataset_headers(const DatasetOptions& options);

// Packs the headers, or, if they cannot be read, the Error; then unpack_headers throws it.
std::string pack_headers(const DatasetOptions& options);
DatasetHeaders unpack_headers(const std::string& packed);

}  // namespace trireme
