// The inputs of a corpus as one stream of texts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/files/input_files.h"
#include "io/prepare/text_entry.h"

namespace trireme {

class TextSource {
 public:
  // Takes the inputs of the options, which live as long as this does. Throws DataError naming the
  // input. So does every call that comes to an input that is no text; of regular files, the
  // constructor tells already.
  explicit TextSource(const PrepareOptions& options);

  // Returns false after the end of the last input.
  bool next(TextChunk& chunk);
  std::uint64_t bytes_read() const;                           // of the files, packed or not
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0: not known
  std::uint64_t text_bytes() const { return text_bytes_; }    // that next() has returned
  const TextRemarks& remarks() const { return remarks_; }     // so far

  // Returns about `bytes` of the text, to train a tokenizer on: whole lines of blocks that are
  // drawn from all of it except the last `tail` bytes, or the beginning of the text if an input is
  // not a regular file of plain text. next() still returns the whole text.
  std::string sample(std::uint64_t bytes, std::uint64_t tail, std::uint64_t seed);

 private:
  struct Input {
    InputFile file;
    Named named;
    bool parquet = false;
  };
  void add(const std::string& path);
  void look_at(Input input);
  void open_next();
  bool read_chunk(TextChunk& chunk);
  std::string read_range(std::uint64_t begin, std::uint64_t end) const;
  std::string beginning(std::uint64_t bytes, std::uint64_t tail);

  const PrepareOptions& options_;
  std::vector<Input> inputs_;
  std::uint64_t left_;  // bytes of text left of the limit
  bool can_draw_ = true;
  TextRemarks remarks_;
  std::uint64_t bytes_total_ = 0, bytes_read_ = 0, text_bytes_ = 0;
  std::size_t next_input_ = 0;
  const FileBytes* file_ = nullptr;   // that is being read
  std::unique_ptr<TextEntry> entry_;  // what it holds
  std::deque<TextChunk> replay_;      // read for a sample, not yet returned
};

}  // namespace trireme
