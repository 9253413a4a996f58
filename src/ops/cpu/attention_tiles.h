// What the forward and the backward of attention share: rows of a head as fp32, and the scratch
// memory of a tile.
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "trireme/ops/attention.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/staging.h"

namespace trireme::ops::cpu {

inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kKeyTile = 64;

inline std::int64_t padded(std::int64_t n) {
  return (n + kLane - 1) / kLane * kLane;
}

// The rows of one head in a tensor: element (t, i) lies at begin + t * stride + i.
struct HeadRows {
  const Tensor& tensor;
  std::int64_t begin;
  std::int64_t stride;
  std::int64_t head_size;
};

// Rows in fp32 whose columns are padded to whole lanes.
struct Panel {
  const float* data;
  std::int64_t stride;
};

// Rows `first` to first + count of a head: where they lie, or converted (or padded with zeros) into
// `buffer` (count * padded(head_size)).
Panel read_rows(const HeadRows& rows, std::int64_t first, std::int64_t count, float* buffer);
// Writes row `row` of a head.
void write_row(const HeadRows& rows, std::int64_t row, const float* values);

// A tile of queries and the keys that each may see.
struct QueryTile {
  std::int64_t first;                 // query number within the sample
  std::int64_t count;                 // queries
  std::int64_t lanes;                 // count, padded
  std::int64_t keys_begin, keys_end;  // keys that any of them sees
  std::int64_t all_from, all_to;      // keys that all of them see: all_from <= key <= all_to
  std::array<std::int32_t, kQueryTile> from, to;
};

// first_key: that of the sample's first query, or null. `past` keys precede query 0.
QueryTile make_query_tile(std::int64_t first, std::int64_t length, std::int64_t past,
                          const std::int32_t* first_key);

// Scores of keys `first_key` on (count of them, rows of `keys`) x the tile's queries, masked:
// scores (count, lanes) from the scaled and transposed queries (head_size, lanes).
void score_tile(const QueryTile& tile, std::int64_t head_size, const float* queries,
                const Panel& keys, std::int64_t first_key, std::int64_t count, float* scores);

// Scratch memory for each thread, cut into pieces of given sizes.
class ThreadScratch {
 public:
  ThreadScratch(Context& ctx, std::initializer_list<std::int64_t> sizes);
  float* piece(std::size_t index) const { return rows_.mine() + offsets_[index]; }

 private:
  std::vector<std::int64_t> offsets_;
  ThreadRows rows_;
};

}  // namespace trireme::ops::cpu
