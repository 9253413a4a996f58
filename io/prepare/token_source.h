// The tokens of files that other programs have made, as documents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/files/input_files.h"
#include "io/prepare/prepare_ranks.h"
#include "io/prepare/text_chunk.h"
#include "io/prepare/token_files.h"

namespace trireme {

class TokenSource {
 public:
  // Collective: rank 0 finds the files, of which each rank has those that lie together and are
  // about as many bytes; a tail, of which nobody knows where it begins, is for rank 0 alone. Throws
  // DataError naming the input. Options and tokenizer live as long as this does.
  TokenSource(const PrepareOptions& options, const Tokenizer& tokenizer, PrepareRanks& ranks);

  // The bytes of a chunk are tokens as int32. An end of text, and the end of a file or of one of
  // Megatron's documents, ends a document, which does not hold it; empty ones are left out. Returns
  // false after the last chunk. Throws DataError for a token that is not in the vocabulary.
  bool next(TextChunk& chunk);
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_total() const { return bytes_total_; }  // of all ranks
  // What folders hold that is no tokens: rank 0 knows.
  const LeftOut& left_out() const { return left_out_; }

 private:
  void find_inputs();
  void keep_share(int rank, int ranks);
  void add_below(const std::string& folder);
  TokenLayout layout_of(const InputFile& file) const;
  bool open_next();
  bool fill();
  void convert(std::size_t count);

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  std::vector<InputFile> inputs_;
  LeftOut left_out_;
  std::size_t next_input_ = 0;
  std::uint64_t bytes_read_ = 0, bytes_total_ = 0;
  std::optional<FileReader> file_;
  TokenLayout layout_;
  std::optional<MegatronIndex> index_;
  std::uint64_t position_ = 0;      // of the tokens that are held, in the file
  std::uint64_t document_end_ = 0;  // in the file
  std::vector<char> raw_;
  std::vector<std::int32_t> tokens_;  // held, from at_ on
  std::size_t at_ = 0;
  bool open_ = false;  // a document has begun
};

}  // namespace trireme
