#include "io/parquet/column_cursor.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

namespace trireme::parquet {
namespace {

constexpr std::int64_t kMostPageBytes = std::int64_t{1} << 30;  // expanded
constexpr std::size_t kMostRowBytes = std::size_t{1} << 30;
constexpr std::int64_t kLevelsInRuns = 3;

}  // namespace

ColumnCursor::ColumnCursor(const PosixFile& file, const Footer& footer, std::size_t group,
                           std::size_t leaf)
    : file_(file),
      leaf_(footer.schema.leaves[leaf]),
      chunk_(footer.groups[group].columns[leaf]),
      place_{file.path(), leaf_.path, static_cast<std::int64_t>(group), -1},
      values_left_(chunk_.values) {
  if (chunk_.encryption != 0) place_.refuse("is encrypted, which is not read");
  if (!chunk_.file.empty()) place_.refuse("lies in another file, which is not read");
  place_.check(chunk_.type == static_cast<std::int64_t>(leaf_.type),
               "is of another type than the schema says");
  // Some writers have an offset of 0 where there is no dictionary.
  at_ = chunk_.dictionary > 0 ? std::min(chunk_.dictionary, chunk_.data) : chunk_.data;
  place_.check(at_ >= 4 && at_ <= footer.begin && chunk_.bytes >= 0 &&
                   chunk_.bytes <= footer.begin - at_ && chunk_.values >= 0,
               "its pages lie outside of the file");
  end_ = at_ + chunk_.bytes;
  const std::int64_t rows = footer.groups[group].rows;
  place_.check(leaf_.repetition > 0 ? chunk_.values >= rows : chunk_.values == rows,
               fmt::format("{} values for {} rows", chunk_.values, rows));
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
  const std::string_view value = values_.next();
  if (values_.stay) return value;
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
  place_.check(repetition_ <= leaf_.repetition && definition_ <= leaf_.definition,
               "a level is out of range");
}

// Opens the next page; false: all values have been given.
bool ColumnCursor::open_page() {
  if (values_left_ == 0) return false;
  place_.page = at_;
  place_.check(at_ < end_, "fewer values than its column should have");
  const PageHeader header = read_page_header(file_, at_, end_, place_);
  at_ = header.body + header.bytes;
  if (header.kind == PageHeader::kIndex) return true;
  if (header.expanded > kMostPageBytes) {
    place_.refuse(fmt::format("has a page of {} bytes: pages to 1 GiB are read", header.expanded));
  }
  Buffer raw(static_cast<std::size_t>(header.bytes));
  file_.read(header.body, raw.bytes.get(), raw.size);
  if (header.checksum != PageHeader::kNoChecksum) {
    const auto* bytes = reinterpret_cast<const Bytef*>(raw.bytes.get());
    place_.check(crc32_z(0, bytes, raw.size) == static_cast<std::uint32_t>(header.checksum),
                 "its checksum does not match");
  }
  if (header.kind != PageHeader::kDictionary) {
    open_data(header, std::move(raw));
    return true;
  }
  place_.check(!dictionary_ && !definitions_, "a dictionary that is not its column's first page");
  place_.check(header.encoding == 0 || header.encoding == 2, "a dictionary that is not PLAIN");
  const auto expanded = static_cast<std::size_t>(header.expanded);
  dictionary_ = read_dictionary(decompressed(chunk_.codec, raw.view(), expanded, place_),
                                static_cast<std::uint64_t>(header.values), leaf_, place_);
  return true;
}

void ColumnCursor::open_data(const PageHeader& header, Buffer raw) {
  place_.check(header.values <= values_left_, "more values than its column should have");
  // The row at hand may still have values of the page before.
  for (Buffer* page : {&raw_, &page_}) {
    keep(page->size);
    pages_.push_back(std::exchange(*page, {}));
  }
  raw_ = std::move(raw);
  ByteReader values(raw_.view(), place_);
  const bool levels_before = header.kind == PageHeader::kDataV2;
  if (levels_before) open_levels(header, values);
  const auto size = static_cast<std::size_t>(header.expanded) - (raw_.size - values.left());
  const std::int64_t codec = header.compressed ? chunk_.codec : kUncompressed;
  if (codec != kUncompressed || size != values.left()) {
    page_ = decompressed(codec, values.rest(), size, place_);
    if (!levels_before) raw_ = {};
    values = ByteReader(page_.view(), place_);
  }
  if (!levels_before) open_levels(header, values);
  values_ = open_values(header.encoding, {leaf_, values, static_cast<std::uint64_t>(header.values),
                                          dictionary_ ? &*dictionary_ : nullptr});
  page_left_ = header.values;
  values_left_ -= header.values;
}

// Levels of a column whose largest is 0 take no bytes in a page of the first version.
void ColumnCursor::open_levels(const PageHeader& header, ByteReader& bytes) {
  const auto open = [&](int most, std::int64_t encoding, std::int64_t size) {
    std::string_view levels;
    if (header.kind == PageHeader::kDataV2) {
      levels = bytes.take(static_cast<std::uint64_t>(size));
    } else if (most > 0) {
      if (encoding != kLevelsInRuns) place_.refuse("has levels in another encoding than RLE");
      levels = bytes.take(bytes.word());
    }
    return BitRuns(levels, static_cast<unsigned>(std::bit_width(static_cast<unsigned>(most))),
                   place_);
  };
  repetitions_ = open(leaf_.repetition, header.repetition_encoding, header.repetition_bytes);
  definitions_ = open(leaf_.definition, header.definition_encoding, header.definition_bytes);
}

}  // namespace trireme::parquet
