#include "weights/foreign_pieces.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/nn/sharding.h"

namespace trireme {
namespace {

constexpr std::int64_t kSmallPart = std::int64_t{1} << 16;  // elements; not worth dividing

std::vector<std::int64_t> memory_strides(const Shape& extent) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(extent.rank()), 1);
  for (std::size_t d = strides.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * extent[static_cast<int>(d)];
  }
  return strides;
}

// The dimensions of a box in the order of the foreign tensor. Those of one element are left out.
std::vector<std::size_t> foreign_order(const Shape& extent,
                                       const std::vector<std::int64_t>& strides) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (extent[static_cast<int>(d)] != 1) order.push_back(d);
  }
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t d) { return strides[d]; });
  return order;
}

// Visits every element of a run with its place in memory.
template <class Visit>
void for_each_element(const ForeignRun& run, const Visit& visit) {
  const auto& dimensions = run.dimensions;
  if (dimensions.empty()) return visit(std::int64_t{0}, run.memory);
  std::vector<std::int64_t> at(dimensions.size(), 0);
  const ForeignRun::Dimension& inner = dimensions.back();
  std::int64_t memory = run.memory, number = 0;
  while (number < run.count) {
    for (std::int64_t i = 0; i < inner.extent; ++i) visit(number++, memory + i * inner.stride);
    for (std::size_t d = dimensions.size() - 1; d-- > 0;) {
      memory += dimensions[d].stride;
      if (++at[d] < dimensions[d].extent) break;
      memory -= at[d] * dimensions[d].stride;
      at[d] = 0;
    }
  }
}

}  // namespace

void ForeignPiece::allocate() {
  memory.resize(static_cast<std::size_t>(slice.extent.elements()));
  slice.local = Tensor::wrap(memory.data(), slice.extent, DType::kF32);
}

std::vector<ForeignPiece> foreign_pieces(const models::ForeignModel& model, std::size_t first,
                                         std::size_t last, int rank, int ranks) {
  std::vector<ForeignPiece> pieces;
  std::int64_t small = 0;  // parts so far, which the ranks take in turn
  for (std::size_t i = first; i < last; ++i) {
    for (const models::ForeignPart& part : model.tensors[i].parts) {
      ForeignPiece piece{.tensor = i,
                         .slice = {.name = part.ours,
                                   .global = part.shape,
                                   .start = part.start,
                                   .extent = part.extent,
                                   .range = {},
                                   .local = {}},
                         .offset = part.offset,
                         .strides = part.strides};
      if (part.extent.elements() < kSmallPart) {
        if (small++ % ranks == rank) pieces.push_back(std::move(piece));
        continue;
      }
      const std::size_t along = foreign_order(part.extent, part.strides).front();
      const int dimension = static_cast<int>(along);
      const FlatRange share = nn::even_share(part.extent[dimension], ranks, rank, 1);
      if (share.empty()) continue;
      piece.slice.start[along] += share.begin;
      piece.slice.extent = part.extent.with(dimension, share.size());
      piece.offset += share.begin * part.strides[along];
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

void for_each_run(const ForeignPiece& piece, std::int64_t most,
                  const std::function<void(const ForeignRun&)>& visit) {
  const Shape& extent = piece.slice.extent;
  if (extent.elements() == 0) return;
  const std::vector<std::int64_t> in_memory = memory_strides(extent);
  const std::vector<std::size_t> order = foreign_order(extent, piece.strides);
  const auto extent_of = [&](std::size_t i) { return extent[static_cast<int>(order[i])]; };
  // Dimensions order[inner] and later are contiguous, and so are up to `rows` of the one before.
  std::size_t inner = order.size();
  std::int64_t count = 1;
  const auto contiguous = [&] { return inner > 0 && piece.strides[order[inner - 1]] == count; };
  while (contiguous() && count * extent_of(inner - 1) <= most) count *= extent_of(--inner);
  const std::int64_t rows = contiguous() ? std::max<std::int64_t>(most / count, 1) : 1;

  std::vector<std::int64_t> at(inner, 0);
  const auto step = [&](std::size_t i) { return i + 1 == inner ? rows : 1; };
  while (true) {
    ForeignRun run{.foreign = piece.offset, .count = count, .memory = 0, .dimensions = {}};
    for (std::size_t i = 0; i < inner; ++i) {
      run.foreign += at[i] * piece.strides[order[i]];
      run.memory += at[i] * in_memory[order[i]];
    }
    if (inner > 0) {
      const std::int64_t now = std::min(rows, extent_of(inner - 1) - at[inner - 1]);
      run.dimensions.push_back({now, in_memory[order[inner - 1]]});
      run.count *= now;
    }
    for (std::size_t i = inner; i < order.size(); ++i) {
      run.dimensions.push_back({extent_of(i), in_memory[order[i]]});
    }
    visit(run);
    std::size_t i = inner;
    while (i > 0) {
      at[i - 1] += step(i - 1);
      if (at[i - 1] < extent_of(i - 1)) break;
      at[--i] = 0;
    }
    if (i == 0) return;
  }
}

void take_run(ForeignPiece& piece, const ForeignRun& run, std::span<const float> values) {
  TRIREME_CHECK(std::ssize(values) == run.count, "values for another run");
  for_each_element(run, [&](std::int64_t i, std::int64_t place) {
    piece.memory[static_cast<std::size_t>(place)] = values[static_cast<std::size_t>(i)];
  });
}

void give_run(const ForeignPiece& piece, const ForeignRun& run, std::span<float> values) {
  TRIREME_CHECK(std::ssize(values) == run.count, "room for another run");
  for_each_element(run, [&](std::int64_t i, std::int64_t place) {
    values[static_cast<std::size_t>(i)] = piece.memory[static_cast<std::size_t>(place)];
  });
}

}  // namespace trireme
