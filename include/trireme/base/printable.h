// Makes text from outside (a file's name, a value, a key, the contents of a file) safe to show in a
// message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Returns the text without anything that a terminal would act on: control characters, those that
// end lines or turn the direction of text, and bytes that are not UTF-8 become \n, \t, \r or \xNN.
// All other text stays, so text that is already printable is returned unchanged.
std::string printable(std::string_view text);

// The same, cut to at most `most` characters: a longer text keeps its beginning and its end, with
// " ... " between them.
inline constexpr std::size_t kMostShown = 200;
std::string shown(std::string_view text, std::size_t most = kMostShown);

// Every Error cuts its message to this length, however long the values in it are.
inline constexpr std::size_t kMostOfMessage = 2000;  // characters

}  // namespace trireme
