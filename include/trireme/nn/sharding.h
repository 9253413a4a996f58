// How the elements of flat memory are divided among ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/box.h"

namespace trireme::nn {

// Flat memory of `elements` elements, divided into `count` shards of equal extent. Each shard but
// the last ones is full: what is left over is padding, which only memory knows (checkpoints, norms
// and checksums do not) and which stays zero. A single shard is the whole memory, without padding.
class Sharding {
 public:
  // Shards are cut at multiples of this many elements. Sums that all layouts must agree on are
  // exact over blocks of this size.
  static constexpr std::int64_t kUnit = 256;

  Sharding() = default;
  Sharding(std::int64_t elements, int count, int index);

  std::int64_t elements() const { return elements_; }  // without padding
  int count() const { return count_; }
  int index() const { return index_; }  // of this rank's shard

  // Extents and ranges in memory count the padding.
  std::int64_t shard_extent() const { return each_; }
  std::int64_t extent() const { return each_ * count_; }
  FlatRange memory() const { return memory_of(index_); }
  FlatRange memory_of(int shard) const { return {each_ * shard, each_ * (shard + 1)}; }

  // The elements of a shard, without padding; empty if it holds nothing but padding.
  FlatRange range() const { return range_of(index_); }
  FlatRange range_of(int shard) const { return intersection(memory_of(shard), {0, elements_}); }

 private:
  std::int64_t elements_ = 0;
  int count_ = 1, index_ = 0;
  std::int64_t each_ = 0;
};

// A run of elements of one parameter.
struct PartOfParameter {
  std::size_t parameter = 0;  // its number among those that lie one after the other
  FlatRange elements;         // of the parameter's local memory
};

// Parameters of `sizes` elements lie one after the other. Returns what of them lies in `range`, in
// order. Parameters of which nothing lies there are left out.
std::vector<PartOfParameter> parts_in(const FlatRange& range, std::span<const std::int64_t> sizes);

// Divides [0, elements) among `count` ranks as evenly as cuts at multiples of `unit` allow, and
// returns the range of the index-th. Ranges may be empty.
FlatRange even_share(std::int64_t elements, int count, int index, std::int64_t unit);

}  // namespace trireme::nn
