// Text from outside (a file's name, a value, a key, what a file holds) as a message may show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// The text without anything that a terminal would obey: control characters become \n, \t, \r or
// \xNN, and so do bytes that are no UTF-8. All other text stays, so a text that is printable
// already comes back as it is.
std::string printable(std::string_view text);

// The same, of at most `most` characters: of a longer text the beginning and the end, with " ... "
// between them.
inline constexpr std::size_t kMostShown = 200;
std::string shown(std::string_view text, std::size_t most = kMostShown);

// Every Error shows its message so, however long the values in it are.
inline constexpr std::size_t kMostOfMessage = 2000;  // characters

}  // namespace trireme
