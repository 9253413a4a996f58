#include "io/parquet/page_header.h"

#include <algorithm>
#include <string>

#include "io/parquet/byte_reader.h"
#include "io/parquet/thrift.h"

namespace trireme::parquet {
namespace {

constexpr std::int64_t kUsualHeader = 1024;

PageHeader parse(ByteReader& bytes) {
  PageHeader header;
  ThriftValue(bytes).fields({{1, &header.kind}, {2, &header.expanded}, {3, &header.bytes}},
                            [&](int id, ThriftValue& field) {
                              if (id == 4)
                                header.checksum = static_cast<std::uint32_t>(field.integer32());
                              // Each kind has a field for what is its own.
                              if (id != header.kind + 5) return;
                              switch (header.kind) {
                                case PageHeader::kData:
                                  return field.fields({{1, &header.values},
                                                       {2, &header.encoding},
                                                       {3, &header.definition_encoding},
                                                       {4, &header.repetition_encoding}});
                                case PageHeader::kDictionary:
                                  return field.fields({{1, &header.values}, {2, &header.encoding}});
                                case PageHeader::kDataV2:
                                  return field.fields({{1, &header.values},
                                                       {4, &header.encoding},
                                                       {5, &header.definition_bytes},
                                                       {6, &header.repetition_bytes},
                                                       {7, &header.compressed}});
                                default:
                                  break;
                              }
                            });
  return header;
}

}  // namespace

PageHeader read_page_header(const PosixFile& file, std::int64_t begin, std::int64_t end,
                            const Place& place) {
  PageHeader header;
  // Statistics can make a header long.
  for (std::int64_t bytes = kUsualHeader;; bytes *= 16) {
    std::string text(static_cast<std::size_t>(std::min(bytes, end - begin)), '\0');
    file.read(begin, text.data(), text.size());
    ByteReader reader(text, place);
    try {
      header = parse(reader);
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
  const std::int64_t levels = std::int64_t{header.definition_bytes} + header.repetition_bytes;
  place.check(header.definition_bytes >= 0 && header.repetition_bytes >= 0 &&
                  levels <= std::min(header.bytes, header.expanded),
              "has levels that are longer than it is");
  return header;
}

}  // namespace trireme::parquet
