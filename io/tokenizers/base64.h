// Bytes that a file writes in base 64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// Nothing: it is no base 64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace trireme
