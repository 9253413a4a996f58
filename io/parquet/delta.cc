#include "io/parquet/delta.h"

namespace trireme::parquet {

DeltaNumbers::DeltaNumbers(ByteReader bytes, std::uint64_t most) : bytes_(bytes) {
  const std::uint64_t block = bytes_.varint();
  miniblocks_ = bytes_.varint();
  count_ = bytes_.varint();
  value_ = static_cast<std::uint64_t>(bytes_.zigzag());
  const Place& place = bytes_.place();
  place.check(miniblocks_ > 0 && block % miniblocks_ == 0 && block < (std::uint64_t{1} << 31),
              "blocks of differences of an impossible size");
  per_miniblock_ = block / miniblocks_;
  place.check(per_miniblock_ > 0 && per_miniblock_ % 32 == 0,
              "blocks of differences of an impossible size");
  place.check(count_ <= most, "more differences than values");
}

void DeltaNumbers::open_miniblock() {
  if (widths_.empty()) {
    least_ = static_cast<std::uint64_t>(bytes_.zigzag());
    widths_ = bytes_.take(miniblocks_);
  }
  width_ = static_cast<unsigned char>(widths_.front());
  widths_.remove_prefix(1);
  bytes_.place().check(width_ <= 64, "differences of more than 64 bits");
  packed_ = bytes_.take(per_miniblock_ / 8 * width_);
  index_ = 0;
}

std::int64_t DeltaNumbers::next() {
  if (given_ == count_) bytes_.place().ends_early();
  const auto value = static_cast<std::int64_t>(value_);
  if (++given_ == count_) return value;
  if (given_ == 1 || index_ == per_miniblock_) open_miniblock();
  value_ += least_ + packed_number(packed_, index_++, width_);
  return value;
}

std::string_view DeltaNumbers::behind() const {
  DeltaNumbers rest = *this;
  const std::uint64_t differences = count_ == 0 ? 0 : count_ - 1;
  for (std::uint64_t passed = 0; passed < differences; passed += per_miniblock_) {
    rest.open_miniblock();
  }
  return rest.bytes_.rest();
}

}  // namespace trireme::parquet
