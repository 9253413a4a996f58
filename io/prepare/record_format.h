// What kind of records a text holds, told by its beginning and the fields that are asked for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trireme/io/prepare.h"

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

enum class RecordFormat { kNone, kJsonLines, kJsonArray, kCsv, kTsv };

// So many bytes of the beginning are looked at. `beginning` has fewer where they are all there is.
inline constexpr std::size_t kSeenBytes = std::size_t{1} << 20;

// kNone: plain text. Without a --field a table must have several columns with names of one word.
RecordFormat record_format(std::string_view beginning, const RecordFields& fields);

// Throws DataError where --field asks for records, and the text that begins so has none.
void check_plain_is_meant(const std::string& name, std::string_view beginning,
                          const RecordFields& fields);

// Not for kNone.
std::unique_ptr<RecordSource> make_record_source(RecordFormat format, std::string file,
                                                 ByteStreamPtr stream, const RecordFields& fields);

}  // namespace trireme
