// Text into token shards: what `trireme prepare` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/token_shard.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

// Which part of the text is held out.
struct ValidationSplit {
  enum class Rule {
    kNone,
    kHash,  // documents drawn by a hash of their first 64 KiB and the seed
    kTail,  // the last bytes of the text
  };
  Rule rule = Rule::kNone;
  double fraction = 0.0;    // of documents, kHash
  std::uint64_t bytes = 0;  // kTail
};
// "none", "hash:0.01", "tail:2000000". Throws ConfigError.
ValidationSplit parse_validation_split(const std::string& text);

struct TokenizerChoice {
  enum class Kind { kByte, kTrain, kLoad };
  Kind kind = Kind::kByte;
  SentencePieceTraining training;  // kTrain
  std::string path;                // kLoad: a SentencePiece model file
};
// "byte", "bpe:4096", "unigram:4096", or the path of a SentencePiece model. Throws ConfigError.
TokenizerChoice parse_tokenizer_choice(const std::string& text);

struct PrepareProgress {
  const char* phase;  // "training the tokenizer", "tokenising", "writing"
  std::uint64_t bytes_read;
  std::uint64_t bytes_total;  // 0 where it is not known (standard input)
  std::uint64_t tokens;
  double seconds;
};

struct PrepareOptions {
  // Files, folders (all files below them, in alphabetical order of their paths) and "-", which is
  // the file descriptor standard_input.
  std::vector<std::string> inputs;
  int standard_input = 0;
  std::string output;  // folder for train.h5 and validation.h5; made where it is missing
  TokenizerChoice tokenizer;
  std::uint64_t sample_bytes = std::uint64_t{4} << 20;  // that a tokenizer is trained on, at most
  std::string document_separator;  // cuts files into documents; empty: a file is a document
  ValidationSplit validation;
  std::uint64_t input_limit = 0;  // only the first bytes of all inputs together; 0: all
  std::uint64_t seed = 1;         // of the sample and of the hash split
  int threads = 1;
  std::function<void(const PrepareProgress&)> progress;  // called from the calling thread
};

struct PrepareResult {
  TokenShardInfo train;
  std::optional<TokenShardInfo> validation;
  TokenizerPtr tokenizer;
  double tokenizer_seconds = 0.0;  // to train or load it
  double seconds = 0.0;            // in all
};

// The shards are a function of the inputs and the options, not of the number of threads; memory
// does not grow with the input, but holds up to the bytes of a tail split. Empty documents are left
// out. A tail begins at a document's start where one lies in its first half, else exactly where
// asked, in the middle of a document. A tokenizer is trained on 64 KiB blocks drawn from the text
// before the tail; where an input cannot be read twice, on the beginning of the text.
//
// Throws DataError: an input is missing or unreadable, there is no text, a split leaves one side
// empty; RunFolderError: the output cannot be written; ConfigError: a value that cannot be.
PrepareResult prepare(const PrepareOptions& options);

}  // namespace trireme
