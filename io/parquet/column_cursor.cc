#include "io/parquet/column_cursor.h"

#include <bit>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

namespace trireme::parquet {
namespace {

constexpr std::size_t kMostPageBytes = std::size_t{1} << 30;  // expanded
constexpr std::size_t kMostRowBytes = std::size_t{1} << 30;
constexpr std::int32_t kLevelsInRuns = 3;

std::int32_t codec_of(const ColumnChunk& chunk, const Place& place) {
  if (chunk.encrypted) place.refuse("is encrypted, which is not read");
  if (chunk.elsewhere) place.refuse("lies in another file, which is not read");
  return chunk.codec;
}

}  // namespace

ColumnCursor::ColumnCursor(const PosixFile& file, const Footer& footer, std::size_t group,
                           std::size_t leaf)
    : file_(file),
      leaf_(footer.schema.leaves[leaf]),
      place_{file.path(), leaf_.path, static_cast<std::int64_t>(group), -1},
      decompressor_(codec_of(footer.groups[group].columns[leaf], place_), place_),
      plain_(0, place_) {
  const ColumnChunk& chunk = footer.groups[group].columns[leaf];
  place_.check(chunk.type == static_cast<std::int32_t>(leaf_.type),
               "is of another type than the schema says");
  place_.check(chunk.begin >= 4 && chunk.begin <= footer.begin && chunk.bytes >= 0 &&
                   chunk.bytes <= footer.begin - chunk.begin && chunk.values >= 0,
               "its pages lie outside of the file");
  const std::int64_t rows = footer.groups[group].rows;
  place_.check(leaf_.repetition > 0 ? chunk.values >= rows : chunk.values == rows,
               fmt::format("{} values for {} rows", chunk.values, rows));
  at_ = chunk.begin;
  end_ = chunk.begin + chunk.bytes;
  values_left_ = chunk.values;
  advance();
}

void ColumnCursor::begin_row() {
  pages_.clear();
  kept_.clear();
  kept_bytes_ = 0;
}

void ColumnCursor::keep(std::size_t bytes) {
  kept_bytes_ += bytes;
  if (kept_bytes_ > kMostRowBytes) place_.refuse("has a row of more than 1 GiB, which is not read");
}

std::string_view ColumnCursor::value() {
  const std::string_view value = values_->next();
  if (values_->stay()) return value;
  keep(value.size() + sizeof(std::string));
  return kept_.emplace_back(value);
}

void ColumnCursor::advance() {
  while (page_left_ == 0) {
    if (open_page()) continue;
    open_ = false;
    repetition_ = definition_ = 0;
    return;
  }
  --page_left_;
  repetition_ = static_cast<int>(repetitions_->next());
  definition_ = static_cast<int>(definitions_->next());
  if (repetition_ > leaf_.repetition || definition_ > leaf_.definition) [[unlikely]] {
    place_.damaged("a level is out of range");
  }
}

// Opens the next data page; false: all values have been given.
bool ColumnCursor::open_page() {
  if (values_left_ == 0) return false;
  place_.page = at_;
  place_.check(at_ < end_, "fewer values than its column should have");
  const PageHeader header = read_page_header(file_, at_, end_, place_);
  at_ = header.body + header.bytes;
  if (header.kind == PageHeader::kIndex) return true;
  if (static_cast<std::size_t>(header.expanded) > kMostPageBytes) {
    place_.refuse(fmt::format("has a page of {} bytes: pages to 1 GiB are read", header.expanded));
  }
  Buffer raw(static_cast<std::size_t>(header.bytes));
  file_.read(header.body, raw.bytes.get(), raw.size);
  if (header.checksum) {
    const auto* bytes = reinterpret_cast<const Bytef*>(raw.bytes.get());
    place_.check(crc32_z(0, bytes, raw.size) == *header.checksum, "its checksum does not match");
  }
  if (header.kind != PageHeader::kDictionary) {
    open_data(header, std::move(raw));
    return true;
  }
  place_.check(!dictionary_ && !values_, "a dictionary that is not its column's first page");
  place_.check(header.encoding == 0 || header.encoding == 2, "a dictionary that is not PLAIN");
  dictionary_ = read_dictionary(
      decompressor_.page(raw.view(), static_cast<std::size_t>(header.expanded), place_),
      static_cast<std::uint64_t>(header.values), leaf_, place_);
  return true;
}

BitRuns ColumnCursor::levels(std::string_view bytes, int most) const {
  return {bytes, static_cast<unsigned>(std::bit_width(static_cast<unsigned>(most))), place_};
}

BitRuns ColumnCursor::prefixed_levels(ByteReader& bytes, int most, std::int32_t encoding) const {
  if (most == 0) return levels({}, 0);
  if (encoding != kLevelsInRuns) place_.refuse("has levels in another encoding than RLE");
  return levels(bytes.take(bytes.word()), most);
}

void ColumnCursor::open_data(const PageHeader& header, Buffer raw) {
  place_.check(header.values <= values_left_, "more values than its column should have");
  // The row at hand may still have values of the page before.
  keep(page_.size);
  pages_.push_back(std::move(page_));
  const auto expanded = static_cast<std::size_t>(header.expanded);
  ByteReader values({}, place_);
  if (header.kind == PageHeader::kDataV2) {
    level_page_ = std::move(raw);
    ByteReader front(level_page_.view(), place_);
    const auto repetition_bytes = static_cast<std::size_t>(header.repetition_bytes);
    const auto definition_bytes = static_cast<std::size_t>(header.definition_bytes);
    repetitions_ = levels(front.take(repetition_bytes), leaf_.repetition);
    definitions_ = levels(front.take(definition_bytes), leaf_.definition);
    const std::size_t size = expanded - repetition_bytes - definition_bytes;
    page_ = header.compressed ? decompressor_.page(front.rest(), size, place_)
                              : plain_.page(front.rest(), size, place_);
    values = ByteReader(page_.view(), place_);
  } else {
    page_ = decompressor_.page(std::move(raw), expanded, place_);
    values = ByteReader(page_.view(), place_);
    repetitions_ = prefixed_levels(values, leaf_.repetition, header.repetition_encoding);
    definitions_ = prefixed_levels(values, leaf_.definition, header.definition_encoding);
  }
  const auto count = static_cast<std::uint64_t>(header.values);
  values_ = open_values(header.encoding, leaf_, values.rest(), count,
                        dictionary_ ? &*dictionary_ : nullptr, place_);
  page_left_ = header.values;
  values_left_ -= header.values;
}

}  // namespace trireme::parquet
