#include "parallel/gradient_pieces.h"

#include <algorithm>

#include "trireme/base/rounding.h"
#include "trireme/nn/parameter.h"

namespace trireme::parallel {
namespace {

constexpr std::int64_t kBlock = ops::kQuantizedBlock;
static_assert(kBlock == nn::Sharding::kUnit);

std::int64_t end_of_block(std::int64_t element) {
  return (element / kBlock + 1) * kBlock;
}

// The elements of the parameters that a shard has, in the group's memory.
std::vector<FlatRange> parts_of_shard(const nn::FlatGroup& group, int shard) {
  std::vector<std::int64_t> sizes;
  for (const nn::Parameter* one : group.parameters()) {
    sizes.push_back(one->placement().local.elements());
  }
  std::vector<FlatRange> parts;
  for (const auto& [number, elements] : nn::parts_in(group.sharding().range_of(shard), sizes)) {
    const std::int64_t at = group.parameters()[number]->offset_in_group();
    parts.push_back({at + elements.begin, at + elements.end});
  }
  return parts;
}

std::int64_t blocks_in(const FlatRange& part) {
  return quotient_up(part.end, kBlock) - part.begin / kBlock;
}

}  // namespace

std::vector<CompressedSum::Piece> gradient_pieces(const nn::FlatGroup& group, int copies) {
  std::vector<CompressedSum::Piece> pieces;
  const int shards = group.sharding().count();
  for (int shard = 0; shard < shards; ++shard) {
    const std::vector<FlatRange> parts = parts_of_shard(group, shard);
    std::int64_t blocks = 0;
    for (const FlatRange& part : parts) blocks += blocks_in(part);
    const std::int64_t each = std::max<std::int64_t>(1, quotient_up(blocks, copies));
    std::int64_t block = 0;  // the next one
    for (const FlatRange& part : parts) {
      for (std::int64_t begin = part.begin; begin < part.end;) {
        // A piece is quantized from its first element on, so what begins within a unit ends there.
        const std::int64_t room = each - block % each;
        const std::int64_t most = begin % kBlock == 0 ? begin + room * kBlock : end_of_block(begin);
        const FlatRange piece{begin, std::min(most, part.end)};
        const int owner = static_cast<int>(block / each) * shards + shard;
        pieces.push_back({piece, owner});
        block += blocks_in(piece);
        begin = piece.end;
      }
    }
  }
  return pieces;
}

}  // namespace trireme::parallel
