// Texts that nobody should give to the readers of topology, made from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::fabric_fuzz {

// One of the readers, and texts that it takes.
struct Reader {
  std::string name;
  std::vector<std::string> good;   // to begin with
  std::vector<std::string> words;  // that mean something to it
  std::size_t share = 16;          // of all inputs; less for those that take long
};
const std::vector<Reader>& readers();

// Gives the text to the reader of this index and the result to what comes after it: merging,
// levels, networks, JSON. That takes more time than the readers, so without `use_all` only one
// result of four gets there, by the size of its text. Returns whether the reader took it. An Error
// is an answer; anything else that is odd aborts.
bool read(std::size_t reader, std::string_view text, bool use_all);

// The reader of the input with this number.
std::size_t reader_of(std::uint64_t number);
// The text that these draws make for a reader.
std::string make_text(const Reader& reader, std::uint64_t seed, std::uint64_t number);

struct Failed {
  std::string reader, text;
};
// Texts that once failed, or that would without care.
std::vector<Failed> corpus();

}  // namespace trireme::fabric_fuzz
