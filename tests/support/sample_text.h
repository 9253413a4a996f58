// Generates text for tests: random words, some of them frequent, in lines and paragraphs.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace trireme::testing {

inline std::string sample_text(std::size_t bytes, unsigned seed) {
  static constexpr std::array<const char*, 24> kSyllables = {
      "the", "an",   "ing", "ship", "oar", "row", "sea", "er",   "ion", "cap", "tain", "wa",
      "ter", "port", "bow", "sail", "ed",  "un",  "re",  "mast", "li",  "gal", "ley",  "s"};
  std::mt19937 random(seed);
  const auto draw = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
  std::string text;
  while (text.size() < bytes) {
    for (unsigned i = 0, n = 1 + draw(3); i < n; ++i) {
      text += kSyllables[std::min(draw(24), draw(24))];
    }
    const unsigned behind = draw(40);
    text += behind == 0 ? "\n\n" : behind < 4 ? ".\n" : behind < 6 ? ",  " : " ";
  }
  text.resize(bytes);
  return text;
}

}  // namespace trireme::testing
