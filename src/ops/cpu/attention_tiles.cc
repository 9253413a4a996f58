#include "ops/cpu/attention_tiles.h"

#include <algorithm>
#include <numeric>

namespace trireme::ops::cpu {

Panel read_rows(const HeadRows& rows, std::int64_t first, std::int64_t count, float* buffer) {
  const std::int64_t size = rows.head_size;
  const std::int64_t begin = rows.begin + first * rows.stride;
  if (rows.tensor.dtype() == DType::kF32 && size % kLane == 0) {
    return {rows.tensor.data<float>() + begin, rows.stride};
  }
  const std::int64_t width = padded(size);
  for (std::int64_t i = 0; i < count; ++i) {
    float* to = buffer + i * width;
    const float* from = read_fp32(rows.tensor, begin + i * rows.stride, size, to);
    if (from != to) std::copy_n(from, size, to);
    std::fill_n(to + size, width - size, 0.0f);
  }
  return {buffer, width};
}

void write_row(const HeadRows& rows, std::int64_t row, const float* values) {
  const std::int64_t at = rows.begin + row * rows.stride;
  if (rows.tensor.dtype() == DType::kF32) {
    std::copy_n(values, rows.head_size, rows.tensor.data<float>() + at);
  } else {
    write_back(rows.tensor, at, rows.head_size, values);
  }
}

QueryTile make_query_tile(std::int64_t first, const SampleQueries& queries) {
  const std::int64_t keys = queries.past + queries.length;
  QueryTile tile{};
  tile.first = first;
  tile.count = std::min(kQueryTile, queries.length - first);
  tile.lanes = padded(tile.count);
  tile.keys_begin = tile.all_to = keys;
  for (std::int64_t j = 0; j < tile.lanes; ++j) {
    const auto lane = static_cast<std::size_t>(j);
    tile.to[lane] = -1;  // padding sees none
    if (j >= tile.count) continue;
    const std::int64_t query = first + j;
    std::int64_t end = queries.causal ? queries.past + query + 1 : keys;
    if (queries.end != nullptr) end = std::min<std::int64_t>(end, queries.end[query]);
    std::int64_t from = queries.from != nullptr ? queries.from[query] : 0;
    if (queries.window > 0) from = std::max(from, queries.past + query + 1 - queries.window);
    tile.from[lane] = static_cast<std::int32_t>(from);
    tile.to[lane] = static_cast<std::int32_t>(end - 1);
    tile.keys_begin = std::min<std::int64_t>(tile.keys_begin, tile.from[lane]);
    tile.keys_end = std::max(tile.keys_end, end);
    tile.all_from = std::max<std::int64_t>(tile.all_from, tile.from[lane]);
    tile.all_to = std::min(tile.all_to, end - 1);
  }
  tile.keys_begin = std::max<std::int64_t>(0, tile.keys_begin) / kKeyTile * kKeyTile;
  return tile;
}

void score_tile(const QueryTile& tile, float cap, std::int64_t head_size, const float* queries,
                const Panel& keys, std::int64_t first_key, std::int64_t count, float* scores) {
  const AttentionKernels& k = kernels().attention;
  k.product({.m = count,
             .n = tile.lanes,
             .k = head_size,
             .a = keys.data,
             .a_row = keys.stride,
             .a_column = 1,
             .b = queries,
             .b_row = tile.lanes,
             .c = scores,
             .c_row = tile.lanes,
             .accumulate = false});
  if (cap > 0.0f) kernels().elementwise.bend(scores, count * tile.lanes, 1.0f, cap);
  if (first_key < tile.all_from || first_key + count - 1 > tile.all_to) {
    k.mask({first_key, tile.from.data(), tile.to.data()}, scores, count, tile.lanes);
  }
}

namespace {

std::vector<std::int64_t> offsets_of(std::initializer_list<std::int64_t> sizes) {
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t size : sizes) offsets.push_back(offsets.back() + padded(size));
  return offsets;
}

}  // namespace

ThreadScratch::ThreadScratch(Context& ctx, std::initializer_list<std::int64_t> sizes)
    : offsets_(offsets_of(sizes)), rows_(ctx, offsets_.back()) {}

}  // namespace trireme::ops::cpu
