#include "io/shards/sample_places.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

std::vector<std::uint64_t> weights_of(const std::vector<DataPart>& parts) {
  std::vector<std::uint64_t> weights;
  for (const DataPart& part : parts) weights.push_back(part.weight);
  return weights;
}

}  // namespace

SamplePlaces::SamplePlaces(SampleOrder order, std::vector<DataPart> parts,
                           std::vector<std::uint64_t> samples, std::uint64_t seed)
    : order_(order),
      parts_(std::move(parts)),
      mixture_(weights_of(parts_)),
      samples_(std::move(samples)),
      key_(philox_key(seed, "data.order")) {
  for (const DataPart& part : parts_) {
    std::uint64_t count = 0;
    for (const std::size_t shard : part.shards) count += samples_[shard];
    part_samples_.push_back(count);
  }
}

SamplePlaces::Place SamplePlaces::place_of(std::uint64_t n) const {
  if (order_ == SampleOrder::kSequential) {
    std::uint64_t sample = n;
    for (std::size_t shard = 0; shard < samples_.size(); ++shard) {
      if (sample < samples_[shard]) return {shard, sample, 0, n};
      sample -= samples_[shard];
    }
    throw InternalError("a sample index past the end of a sequential dataset");
  }
  const Mixture::Draw draw = mixture_.draw(n);
  const std::uint64_t count = part_samples_[draw.part];
  const std::uint64_t key = epoch_key(draw.part, draw.count / count);
  const std::uint64_t of_part = permuted_index(key, count, draw.count % count);
  std::uint64_t sample = of_part;
  for (const std::size_t shard : parts_[draw.part].shards) {
    if (sample < samples_[shard]) return {shard, sample, key, of_part};
    sample -= samples_[shard];
  }
  throw InternalError("a permuted sample index past the end of its dataset");
}

std::uint64_t SamplePlaces::samples() const {
  std::uint64_t count = 0;
  for (const std::uint64_t samples : samples_) count += samples;
  return count;
}

std::uint64_t SamplePlaces::epoch_key(std::size_t part, std::uint64_t epoch) const {
  const Philox4 draw =
      philox4x32({static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32),
                  static_cast<std::uint32_t>(part), 0},
                 key_);
  return (std::uint64_t{draw[1]} << 32) | draw[0];
}

}  // namespace trireme
