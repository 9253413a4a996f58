// Text from the user.
#pragma once

#include <string>
#include <string_view>

namespace trireme::cli {

// Returns `text` with \n, \t, \0, \\ and \xNN replaced by the bytes that they stand for. Throws
// ConfigError that names the flag.
std::string unescaped(std::string_view text, std::string_view flag);

}  // namespace trireme::cli
