// The shards behind DatasetOptions::data: their list, their headers, and both as one text that
// rank 0 can send.
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
  std::vector<TokenShardInfo> shards;  // agree in element type and tokenizer
};

// The weights in the largest power of ten that makes all of them whole numbers: 0.7 and 0.3 are 7
// and 3. Throws ConfigError for one outside of 1e-6 to 1e6.
std::vector<std::uint64_t> whole_weights(std::span<const WeightedPath> paths);

DatasetHeaders read_dataset_headers(const DatasetOptions& options);

// Headers, or the Error that stands in their place, which unpack throws.
std::string pack_headers(const DatasetOptions& options);
DatasetHeaders unpack_headers(const std::string& packed);

}  // namespace trireme
