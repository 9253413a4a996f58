// What kind of records a text holds, told by its beginning, its name and the fields that are asked
// for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trireme/io/prepare.h"

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

enum class RecordFormat { kNone, kJsonLines, kJsonObject, kJsonArray, kTable };

// So many bytes of the beginning are looked at. `beginning` has fewer where they are all there is.
inline constexpr std::size_t kSeenBytes = std::size_t{1} << 20;

struct FoundRecords {
  RecordFormat format = RecordFormat::kNone;  // kNone: plain text
  char delimiter = ',';                       // kTable
  std::string lacks;   // why none of its records can have the field; empty: they may
  std::string remark;  // kNone: what it looks like all the same; empty: plain text
};

// JSON is told by the first line, or where that is broken by the lines after it. A table has the
// fields in its header, and several columns unless a --field is given or its name ends with .csv or
// .tsv. With --field a plain text lacks it.
FoundRecords find_records(std::string_view name, std::string_view beginning,
                          const RecordFields& fields);

// Not for kNone.
std::unique_ptr<RecordSource> make_record_source(const FoundRecords& found, std::string file,
                                                 ByteStreamPtr stream, const RecordFields& fields);

}  // namespace trireme
