// Data that other programs have compressed or packed, told by their beginning.
#pragma once

#include <optional>
#include <string_view>

namespace trireme {

struct PackedData {
  std::string_view name;     // "gzip data", "a zip archive"
  std::string_view program;  // `PROGRAM -dc FILE` writes what is inside; empty: files are inside
};

// Returns nothing where no format is known that begins so. The data may end within the bytes that
// tell the format, if these begin with one that no text begins with.
std::optional<PackedData> packed_data(std::string_view beginning);

bool is_tar(std::string_view beginning);

}  // namespace trireme
