// The inputs of a corpus as one stream of bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/files/input_files.h"

namespace trireme {

// A stretch of one document (or, before documents are cut, of one file).
struct TextChunk {
  std::string bytes;
  bool starts = false;  // the document starts here
  bool ends = false;    // the document ends here; the chunk may be empty
  bool validation = false;
};

class TextSource {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  // Inputs, limit and standard_input are those of PrepareOptions. Throws DataError naming the
  // input. So does every call that comes to an input that is no text (check_is_text); of files,
  // the constructor tells already.
  TextSource(const std::vector<std::string>& inputs, std::uint64_t limit, int standard_input);

  // Returns false after the end of the last input.
  bool next(TextChunk& chunk);
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0: not known
  // The first input so far that is JSON Lines; empty: none.
  const std::string& json_lines() const { return json_lines_; }
  // The zero bytes of the text so far.
  const ZeroBytes& zero_bytes() const { return zero_bytes_; }

  // Returns about `bytes` of the text, to train a tokenizer on: whole lines of blocks that are
  // drawn from all of it except the last `tail` bytes, or the beginning of the text if an input is
  // not a regular file. next() still returns the whole text.
  std::string sample(std::uint64_t bytes, std::uint64_t tail, std::uint64_t seed);

 private:
  void add(const std::string& path);
  bool read_chunk(TextChunk& chunk);
  void look_at_beginning(std::string_view beginning);
  void count_zeros(std::string_view bytes);
  std::string read_range(std::uint64_t begin, std::uint64_t end) const;
  std::string beginning(std::uint64_t bytes);

  std::vector<InputFile> inputs_;
  std::uint64_t left_;  // bytes left of the limit
  int standard_input_;
  bool all_regular_ = true;
  std::uint64_t bytes_total_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::size_t next_input_ = 0;
  std::optional<InputStream> stream_;  // the input that is being read
  std::uint64_t position_ = 0;         // in it
  std::string json_lines_;
  ZeroBytes zero_bytes_;
  std::deque<TextChunk> replay_;  // read for a sample, not yet returned
};

}  // namespace trireme
