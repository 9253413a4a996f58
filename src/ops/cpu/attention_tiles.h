// Code that the forward and the backward of attention share: access to the rows of a head in fp32,
// and the scratch memory of a tile.
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

// Rows in fp32. Columns are padded to a multiple of kLane.
struct Panel {
  const float* data;
  std::int64_t stride;
};

// Rows [first, first + count) of a head. They are read in place if they are fp32 and need no
// padding; otherwise they are converted and padded with zeros into `buffer` (count *
// padded(head_size)).
Panel read_rows(const HeadRows& rows, std::int64_t first, std::int64_t count, float* buffer);
// Writes row `row` of a head.
void write_row(const HeadRows& rows, std::int64_t row, const float* values);

// A tile of queries and the keys that each may see.
struct QueryTile {
  std::int64_t first;                 // query number within the sample
  std::int64_t count;                 // queries
  std::int64_t lanes;                 // count, padded
  std::int64_t keys_begin, keys_end;  // keys that at least one of them sees
  std::int64_t all_from, all_to;      // keys that all of them see: all_from <= key <= all_to
  std::array<std::int32_t, kQueryTile> from, to;
};

// The queries of a sample, and what KeyRanges says of each.
struct SampleQueries {
  std::int64_t length;       // queries
  std::int64_t past;         // keys before query 0
  bool causal;               // AttentionShape::causal
  std::int64_t window;       // AttentionShape::window
  const std::int32_t* from;  // the first key of each query, or null
  const std::int32_t* end;   // the end of each query's keys, or null
};

// The tile of the queries from number `first` on.
QueryTile make_query_tile(std::int64_t first, const SampleQueries& queries);

// Computes the masked scores (count, lanes) of `count` keys from key `first_key` on, the rows of
// `keys`, with the tile's queries. `queries` (head_size, lanes) are scaled and transposed. cap:
// AttentionShape::cap.
void score_tile(const QueryTile& tile, float cap, std::int64_t head_size, const float* queries,
                const Panel& keys, std::int64_t first_key, std::int64_t count, float* scores);

// Scratch memory for each thread, divided into pieces of the given sizes.
class ThreadScratch {
 public:
  ThreadScratch(Context& ctx, std::initializer_list<std::int64_t> sizes);
  float* piece(std::size_t index) const { return rows_.mine() + offsets_[index]; }

 private:
  std::vector<std::int64_t> offsets_;
  ThreadRows rows_;
};

}  // namespace trireme::ops::cpu
