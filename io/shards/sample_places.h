// Where the samples of a training run or an evaluation are: a position in the data is one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/io/dataset.h"

namespace trireme {

struct DataPart {
  std::uint64_t weight = 1;
  std::vector<std::size_t> shards;
};

class SamplePlaces {
 public:
  // `samples` has the number of samples of each shard.
  SamplePlaces(SampleOrder order, std::vector<DataPart> parts, std::vector<std::uint64_t> samples,
               std::uint64_t seed);

  struct Place {
    std::size_t shard = 0;
    std::uint64_t sample = 0;   // in the shard
    std::uint64_t visit = 0;    // a key of the part and the epoch; 0 in sequential order
    std::uint64_t of_part = 0;  // the sample's number in its part
  };
  Place place_of(std::uint64_t n) const;
  std::uint64_t samples() const;  // in one pass over all shards

 private:
  std::uint64_t epoch_key(std::size_t part, std::uint64_t epoch) const;

  SampleOrder order_;
  std::vector<DataPart> parts_;
  Mixture mixture_;
  std::vector<std::uint64_t> samples_, part_samples_;
  std::uint64_t key_;
};

}  // namespace trireme
