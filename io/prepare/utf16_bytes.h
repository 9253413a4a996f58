// Text in UTF-16, which begins with its mark, as UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "io/prepare/byte_stream.h"

namespace trireme {

bool is_marked_utf16(std::string_view beginning);

// Without the mark. Reading throws DataError that calls the stream `name` where half of a character
// stands alone.
ByteStreamPtr utf8_of_utf16(std::string name, ByteStreamPtr stream);

}  // namespace trireme
