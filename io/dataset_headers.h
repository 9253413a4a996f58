// The shards behind DatasetOptions::data: their list, their headers, and both as one text that
// rank 0 can send.
#pragma once

#include <cstdint>
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

struct DatasetEntry {
  std::string path;
  std::uint64_t weight = 0;  // in a unit common to all entries; 0: none given
};
// "a.h5:0.7,b.h5:0.3" -> {a.h5, 7}, {b.h5, 3}. Throws ConfigError.
std::vector<DatasetEntry> parse_dataset_list(const std::string& data);

DatasetHeaders read_dataset_headers(const DatasetOptions& options);

// Headers, or the Error that stands in their place, which unpack throws.
std::string pack_headers(const DatasetOptions& options);
DatasetHeaders unpack_headers(const std::string& packed);

}  // namespace trireme
