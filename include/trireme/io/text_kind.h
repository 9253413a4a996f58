// What files are that are given as text and are none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// So many bytes of a file's beginning tell what it is.
inline constexpr std::size_t kTellingBytes = 512;

// Throws DataError, naming the file and its kind, if a file that begins so is compressed, an
// archive, a picture, a container of data, or text of another encoding than UTF-8. Other bytes may
// be text. A first line alone is enough, with its carriage return.
void check_is_text(const std::string& name, std::string_view beginning);

// Whether the file is JSON Lines, by its name or its beginning.
bool is_json_lines(std::string_view name, std::string_view beginning);

}  // namespace trireme
