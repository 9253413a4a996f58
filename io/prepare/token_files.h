// Files of tokens that other programs have made, read from front to back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/files.h"

#include "io/files/input_files.h"

namespace trireme {

// How a file holds tokens: `count` integers of `width` bytes, little-endian, from `offset` on.
struct TokenLayout {
  std::string name;  // "Megatron's tokens", "a NumPy array"
  std::uint64_t offset = 0, count = 0;
  int width = 2;
  bool is_signed = false;
};

// The ends of documents that Megatron's .idx beside a .bin tells, one after the other.
class MegatronIndex {
 public:
  static constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};

  // Throws DataError for an index that is another's, or damaged.
  MegatronIndex(const std::string& path, std::uint64_t bin_bytes);

  const TokenLayout& layout() const { return layout_; }
  // The number of tokens before the end of the next document; nothing after the last one.
  std::optional<std::uint64_t> next_end();

 private:
  std::int64_t next_sequence();

  std::string path_;
  TokenLayout layout_;
  FileReader lengths_, pointers_, documents_;
  std::uint64_t sequences_ = 0, left_ = 0;       // in all; not read yet
  std::uint64_t document_, documents_left_ = 0;  // the sequence that the last document ended at
  std::uint64_t tokens_ = 0;                     // so far
};

// Whether it begins as NumPy's arrays or llm.c's tokens do.
bool has_token_header(const InputFile& file);

// Tells the format by the content: NumPy's .npy of one dimension; llm.c's header; else numbers of
// `raw_width` bytes, as nanoGPT writes them, below `vocabulary`. Throws DataError naming the file
// where it is damaged or has numbers of another width, and OtherFile where it holds something else:
// text, another known format.
TokenLayout token_layout(const InputFile& file, int raw_width, std::int64_t vocabulary);

}  // namespace trireme
