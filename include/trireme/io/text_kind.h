// What files are that are given as text and are none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// So many bytes of a file's beginning tell what it is.
inline constexpr std::size_t kTellingBytes = 8192;

// Throws DataError, naming the file and its kind, if a file that begins so is compressed, an
// archive, a picture, a container of data, text in UTF-16 or UTF-32, or looks binary otherwise.
// Other bytes may be text, in UTF-8 or another encoding that extends ASCII. A first line alone is
// enough, with its carriage return.
void check_is_text(const std::string& name, std::string_view beginning);

// Throws DataError where a byte is zero, which is in no text.
void check_has_no_zero(const std::string& name, std::string_view bytes);

// What a file is that begins so, for people: "a Parquet file", "a text", "binary data".
std::string kind_of_file(std::string_view beginning);

}  // namespace trireme
