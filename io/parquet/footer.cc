#include "io/parquet/footer.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace trireme::parquet {
namespace {

constexpr std::string_view kMagic = "PAR1", kEncryptedMagic = "PARE";
constexpr std::int64_t kMostRows = std::int64_t{1}
                                   << 40;  // of a group: their sum overflows nothing
constexpr std::int64_t kTailBytes = 8;     // the footer's length and the magic

void read_column_metadata(ThriftValue& value, ColumnChunk& chunk) {
  std::int64_t dictionary = 0;
  value.fields({{1, &chunk.type},
                {4, &chunk.codec},
                {5, &chunk.values},
                {7, &chunk.bytes},
                {9, &chunk.begin},
                {11, &dictionary}});
  // Some writers have an offset of 0 where there is no dictionary.
  if (dictionary > 0 && dictionary < chunk.begin) chunk.begin = dictionary;
}

ColumnChunk read_chunk(ThriftValue& value) {
  ColumnChunk chunk;
  value.fields([&](int id, ThriftValue& field) {
    if (id == 1) chunk.elsewhere = !field.binary().empty();
    if (id == 3) read_column_metadata(field, chunk);
    if (id == 8) chunk.encrypted = true;
  });
  return chunk;
}

// What each group and column take of the file bounds the memory that they take here.
void read_row_group(ThriftValue& value, Footer& footer, Place place) {
  place.row_group = static_cast<std::int64_t>(footer.groups.size());
  RowGroup& group = footer.groups.emplace_back();
  value.fields({{3, &group.rows}}, [&](int id, ThriftValue& field) {
    if (id != 1) return;
    field.elements([&](ThriftValue& chunk) { group.columns.push_back(read_chunk(chunk)); });
  });
  if (group.rows == 0) return;  // writers leave out much of such a group
  for (const ColumnChunk& chunk : group.columns) {
    place.check(chunk.encrypted || chunk.type >= 0, "a column without metadata");
  }
  const std::size_t leaves = footer.schema.leaves.size();
  place.check(leaves > 0 && group.columns.size() == leaves,
              "it does not have the columns that the schema has");
  place.check(group.rows >= 0 && group.rows <= kMostRows, "its number of rows is out of range");
}

}  // namespace

Footer read_footer(const PosixFile& file) {
  const Place place{.file = file.path(), .column = ""};
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
  ThriftValue(reader).fields({{3, &footer.rows}}, [&](int id, ThriftValue& field) {
    if (id == 2) footer.schema = read_schema(field, place);
    if (id == 4) {
      field.elements([&](ThriftValue& group) { read_row_group(group, footer, place); });
    }
  });
  std::int64_t rows = 0;
  for (const RowGroup& group : footer.groups) rows += group.rows;
  place.check(rows == footer.rows,
              fmt::format("{} rows in its row groups, where {} are declared", rows, footer.rows));
  return footer;
}

}  // namespace trireme::parquet
