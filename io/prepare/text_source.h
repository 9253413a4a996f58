// The inputs of a corpus, or a portion of them, as one stream of texts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/io/prepare.h"

#include "io/prepare/text_entry.h"
#include "io/prepare/text_inputs.h"

namespace trireme {

class TextSource {
 public:
  // Options, inputs and tokenizer live as long as this does; the tokenizer is needed for a part of
  // a text. Every call that comes to an input that is no text throws DataError naming it.
  TextSource(const PrepareOptions& options, const TextInputs& inputs, const InputPortion& portion,
             const Tokenizer* tokenizer = nullptr);
  TextSource(const PrepareOptions& options, const TextInputs& inputs)
      : TextSource(options, inputs, whole_of(inputs)) {}

  // Returns false after the end of the last input.
  bool next(TextChunk& chunk);
  const std::string& file() const;   // the last that was opened, of one that was
  std::uint64_t bytes_read() const;  // of the files, packed or not
  std::uint64_t text_bytes() const { return text_bytes_; }  // that next() has returned
  const TextRemarks& remarks() const { return remarks_; }   // so far, but for the inputs' own

  // Whether it begins in the middle of a document, whose first bytes, up to `most`, are these.
  bool goes_on() const { return goes_on_; }
  std::optional<std::string> beginning_of_text(std::size_t most) const;

  // Returns about `bytes` of the text, to train a tokenizer on: whole lines of blocks that are
  // drawn from all of it except the last `tail` bytes, or the beginning of the text if an input is
  // not a regular file of plain text. next() still returns the whole text. For a source of all.
  std::string sample(std::uint64_t bytes, std::uint64_t tail, std::uint64_t seed);

 private:
  void open_next();
  void open_part();
  bool read_chunk(TextChunk& chunk);
  std::string read_range(std::uint64_t begin, std::uint64_t end) const;
  std::string beginning(std::uint64_t bytes, std::uint64_t tail);

  const PrepareOptions& options_;
  const TextInputs& inputs_;
  InputPortion portion_;
  std::pair<std::uint64_t, std::uint64_t> part_ = {0, 0};  // bytes of a part of a text
  bool goes_on_ = false;
  std::uint64_t left_;  // bytes of text left of the limit
  TextRemarks remarks_;
  std::uint64_t bytes_read_ = 0, text_bytes_ = 0;
  std::size_t next_input_;
  FileBytes::Counter of_file_;        // that is being read
  std::unique_ptr<TextEntry> entry_;  // what it holds
  std::deque<TextChunk> replay_;      // read for a sample, not yet returned
};

}  // namespace trireme
