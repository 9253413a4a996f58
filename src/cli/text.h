// Text to and from the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::cli {

// With \n, \t, \0, \\ and \xNN replaced by the bytes that they stand for. Throws ConfigError that
// names the flag.
std::string unescaped(std::string_view text, std::string_view flag);

std::string size_text(std::uint64_t bytes);  // "12.3 MB"
std::string duration_text(double seconds);   // "4 s", "2 min 05 s", "1 h 30 min", "3 d 04 h"

}  // namespace trireme::cli
