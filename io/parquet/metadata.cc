#include "io/parquet/metadata.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "io/parquet/thrift.h"

namespace trireme::parquet {
namespace {

constexpr std::string_view kMagic = "PAR1", kEncryptedMagic = "PARE";
constexpr std::int64_t kTailBytes = 8;                     // the footer's length and the magic
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  // of a group: sums overflow nothing
constexpr std::int64_t kUsualHeader = 1024;                // bytes of a page's

ThriftFields fields_of(SchemaElement& element) {
  return {{1, &element.type},
          {2, &element.width},
          {3, &element.repetition},
          {4, &element.name},
          {5, &element.children},
          {6, &element.converted},
          {10, ThriftUnion{&element.logical}}};
}

ThriftFields fields_of(ColumnChunk& chunk) {
  return {{1, &chunk.file},
          {3, ThriftFields{{1, &chunk.type},
                           {4, &chunk.codec},
                           {5, &chunk.values},
                           {7, &chunk.bytes},
                           {9, &chunk.data},
                           {11, &chunk.dictionary}}},
          {8, ThriftUnion{&chunk.encryption}}};
}

ThriftFields fields_of(RowGroup& group);

template <class T>
ThriftElement list_of(std::vector<T>& to) {
  return [&to] { return fields_of(to.emplace_back()); };
}

// What each group and column take of the file bounds the memory that they take here.
ThriftFields fields_of(RowGroup& group) {
  return {{1, list_of(group.columns)}, {3, &group.rows}};
}

ThriftFields fields_of(PageHeader& page) {
  return {{1, &page.kind},
          {2, &page.expanded},
          {3, &page.bytes},
          {4, &page.checksum},
          {5, ThriftFields{{1, &page.values},
                           {2, &page.encoding},
                           {3, &page.definition_encoding},
                           {4, &page.repetition_encoding}}},
          {7, ThriftFields{{1, &page.values}, {2, &page.encoding}}},
          {8, ThriftFields{{1, &page.values},
                           {4, &page.encoding},
                           {5, &page.definition_bytes},
                           {6, &page.repetition_bytes},
                           {7, &page.compressed}}}};
}

}  // namespace

Footer read_footer(const PosixFile& file) {
  Place place{.file = file.path(), .column = ""};
  const std::int64_t size = file.size();
  std::string tail(kTailBytes, '\0');
  const auto least = static_cast<std::int64_t>(kMagic.size()) + kTailBytes;
  place.check(size >= least, "the file is too short to have one");
  file.read(size - kTailBytes, tail.data(), tail.size());
  if (tail.ends_with(kEncryptedMagic)) place.refuse("its footer is encrypted, which is not read");
  place.check(tail.ends_with(kMagic), "the file does not end with PAR1: was it cut short?");
  const auto bytes = static_cast<std::int64_t>(ByteReader(tail, place).word());
  place.check(bytes <= size - least, "it is longer than the file");

  Footer footer;
  footer.begin = size - kTailBytes - bytes;
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(footer.begin, text.data(), text.size());
  ByteReader reader(text, place);
  std::vector<SchemaElement> elements;
  read_thrift(reader, {{2, list_of(elements)}, {3, &footer.rows}, {4, list_of(footer.groups)}});
  footer.schema = build_schema(elements, place);
  std::int64_t rows = 0;
  for (const RowGroup& group : footer.groups) {
    ++place.row_group;
    if (group.rows == 0) continue;  // writers leave out much of such a group
    for (const ColumnChunk& chunk : group.columns) {
      place.check(chunk.encryption != 0 || chunk.type >= 0, "a column without metadata");
    }
    const std::size_t leaves = footer.schema.leaves.size();
    place.check(leaves > 0 && group.columns.size() == leaves,
                "it does not have the columns that the schema has");
    place.check(group.rows > 0 && group.rows <= kMostRows, "its number of rows is out of range");
    rows += group.rows;
  }
  place.row_group = -1;
  place.check(rows == footer.rows,
              fmt::format("{} rows in its row groups, where {} are declared", rows, footer.rows));
  return footer;
}

PageHeader read_page_header(const PosixFile& file, std::int64_t begin, std::int64_t end,
                            const Place& place) {
  PageHeader header;
  // Statistics can make a header long.
  for (std::int64_t bytes = kUsualHeader;; bytes *= 16) {
    std::string text(static_cast<std::size_t>(std::min(bytes, end - begin)), '\0');
    file.read(begin, text.data(), text.size());
    ByteReader reader(text, place);
    try {
      read_thrift(reader, fields_of(header));
    } catch (const EndsEarly&) {
      if (bytes >= end - begin) throw;
      continue;
    }
    header.body = begin + static_cast<std::int64_t>(text.size() - reader.left());
    break;
  }
  place.check(header.kind >= PageHeader::kData && header.kind <= PageHeader::kDataV2,
              "is of no known kind");
  place.check(header.bytes >= 0 && header.bytes <= end - header.body && header.expanded >= 0,
              "is longer than its column");
  if (header.kind == PageHeader::kIndex) return header;
  place.check(header.values >= 0, "has no number of values");
  const std::int64_t most = std::min(header.bytes, header.expanded);
  const auto [shorter, longer] = std::minmax(header.definition_bytes, header.repetition_bytes);
  place.check(shorter >= 0 && longer <= most - shorter, "has levels that are longer than it is");
  return header;
}

}  // namespace trireme::parquet
