// What gzip, bzip2, xz and zstd have packed.
#pragma once

#include <string>
#include <string_view>

#include "io/prepare/byte_stream.h"

namespace trireme {

bool can_unpack(std::string_view beginning);

// Returns the bytes that `packed` holds, which begins so. Several packed one after the other are
// one. Reading throws DataError that calls it `name` where it is damaged, ends too early, or goes
// on after the end of what is packed.
ByteStreamPtr unpack(std::string name, std::string_view beginning, ByteStreamPtr packed);

}  // namespace trireme
