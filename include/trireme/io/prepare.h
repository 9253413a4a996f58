// Turns text into token shards, as `trireme prepare` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/token_shard.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

class Communicator;

// Which part of the text, or which pictures, are held out for validation.
struct ValidationSplit {
  enum class Rule {
    kNone,
    kHash,   // documents drawn by a hash of their first 64 KiB and the seed
    kTail,   // the last bytes of the text
    kClass,  // pictures, drawn from each class
  };
  Rule rule = Rule::kNone;
  double fraction = 0.0;    // of documents, kHash; of each class, kClass
  std::uint64_t bytes = 0;  // kTail
};
// Reads "none", "hash:0.01", "tail:2000000" or "class:0.1". Throws ConfigError.
ValidationSplit parse_validation_split(const std::string& text);

struct TokenizerChoice {
  enum class Kind { kByte, kTrain, kLoad, kNumbers };
  Kind kind = Kind::kByte;
  SentencePieceTraining training;           // kTrain
  std::string path;                         // kLoad: what load_tokenizer takes
  DocumentTokens around;                    // kLoad
  std::int32_t vocabulary = 0;              // kNumbers: of tokens that are made already
  std::int32_t end_token = 0;               // kNumbers
  std::optional<std::int32_t> begin_token;  // kNumbers
};
// Reads "byte", "bpe:4096", "unigram:4096", or the path of a SentencePiece model, a tokenizer.json
// or a folder with one of them, for which `around` may name the tokens around texts. Throws
// ConfigError.
TokenizerChoice parse_tokenizer_choice(const std::string& text, const DocumentTokens& around = {});

// Tokens below `vocabulary` that stand for no known text, of which the number `end_of_text` ends
// documents; their begin of text may be a number too. Throws ConfigError.
TokenizerChoice parse_numbers_choice(std::int64_t vocabulary, const DocumentTokens& around);

// What of a record (JSON, CSV, TSV, Parquet) is the text of a document.
struct RecordFields {
  std::vector<std::string> names = {"text"};  // empty: records are taken as plain text
  bool given = false;                         // no file is plain text
  std::string join = "\n\n";                  // between the texts of several
};
// Reads "text", "meta.body", "title,text" or "none". Throws ConfigError.
RecordFields parse_record_fields(const std::string& text);

struct PrepareProgress {
  const char* phase;  // "training the tokenizer", "tokenising", "writing"
  std::uint64_t bytes_read;
  std::uint64_t bytes_total;  // 0: not known (standard input)
  std::uint64_t made;
  const char* unit;  // of `made`: "tokens", "pictures"
  double seconds;
};

struct PrepareOptions {
  // Files, folders (all files below them, in alphabetical order of their paths) and "-", which is
  // the file descriptor standard_input. Of folders, what is hidden or binary is left out.
  std::vector<std::string> inputs;
  int standard_input = 0;
  std::string output;  // folder for train.h5 and validation.h5; created if it is missing
  TokenizerChoice tokenizer;
  std::uint64_t sample_bytes = std::uint64_t{4} << 20;  // the most that a tokenizer is trained on
  // The inputs are tokens that other programs have made: Megatron's .bin with its .idx, the .bin of
  // nanoGPT (uint16) or llm.c, NumPy's .npy. A tail split and the tokenizer, which is named, count
  // in tokens. Documents end at each end of text, and at the ends of files.
  bool tokens = false;
  int raw_token_bytes = 2;  // of tokens in files that do not say it: 2 or 4
  RecordFields fields;
  bool skip_bad = false;           // leave out records that are broken or lack a field
  bool as_bytes = false;           // take all files as they are, whatever they hold
  std::string document_separator;  // cuts plain texts into documents; empty: a file is a document
  ValidationSplit validation;
  std::uint64_t input_limit = 0;  // only the first bytes of all inputs together; 0: all
  std::uint64_t seed = 1;         // for the sample and the hash split
  int threads = 1;
  std::int64_t shards = 1;          // how many what is trained on becomes, of about as many tokens
  std::uint64_t portion_bytes = 0;  // of files that ranks share; 0: what suits the input
  std::function<void(const PrepareProgress&)> progress;  // called from the calling thread
};

// Bytes of the text that are zero, which texts have not.
struct ZeroBytes {
  std::uint64_t count = 0;
  std::string first_in;     // the input that holds the first one
  std::uint64_t first = 0;  // which byte of it that is, counted from 1
};

// Files in folders and archives that were not taken.
struct LeftOut {
  std::int64_t hidden = 0, binary = 0, links = 0;  // hidden: or of version control
  std::int64_t pipes = 0;                          // or sockets, or devices
  std::int64_t lacking = 0;                        // without the field, or without tokens
  std::string first_binary, first_lacking;         // the second one with what it lacks
};

// "3 hidden files, 1 binary file (a.png)"; nothing where none was left out.
std::string words_of(const LeftOut& left_out);

// Files that look like records, or are called so, and became plain text.
struct PlainRecords {
  std::int64_t count = 0;
  std::string first;  // and what it looks like
};

struct BadRecords {
  std::int64_t count = 0;
  std::string first;  // what is wrong with the first one
};

struct PrepareResult {
  TokenShardInfo train;  // of several shards the first, with the counts of all
  std::vector<std::string> train_paths;
  std::optional<TokenShardInfo> validation;
  TokenizerPtr tokenizer;
  double tokenizer_seconds = 0.0;  // to train or load it
  double seconds = 0.0;            // in all
  ZeroBytes zero_bytes = {};       // far from the beginning of a file, where they are refused
  LeftOut left_out = {};
  BadRecords bad_records = {};  // left out
  PlainRecords plain_records = {};
  // Documents of tokens that are made already which do not begin with the tokenizer's begin of
  // text, though that is another token than their end.
  std::int64_t without_begin = 0;
};

inline constexpr std::int64_t kMostShards = 9999;

// Throws ConfigError for a rule that is not for text. prepare() checks it too, but this makes no
// folder.
void check_validation(const PrepareOptions& options);

// Files are told by their content: plain text, UTF-16 with its mark, JSON Lines, an array of JSON,
// tables with a header (tabs, commas or semicolons), Parquet, tar archives of these, all also
// packed by gzip, bzip2, xz or zstd. Parquet that is not a file of its own is unpacked into the
// output folder first. The shards depend on the texts and the options, but not on the number of
// threads nor, but for their source, on what the texts came in. Memory does not grow with the
// input, but a tail split holds up to its own number of bytes, and a record is at most 64 MiB.
// Empty documents are left out. The tail begins at the start of a document if one starts in its
// first half; otherwise it begins exactly where asked, in the middle of a document. A tokenizer is
// trained on 64 KiB blocks drawn from the text before the tail, or on the beginning of the text if
// an input is not a regular file of plain text.
//
// Throws DataError if an input is missing, unreadable, damaged or no text, if a record is bad, if
// there is no text, if 64 MiB of it have
// no place where the tokenizer can cut it (Tokenizer::cut), or if a split leaves one side empty;
// RunFolderError if the output cannot be written; ConfigError for an impossible value.
//
// Collective over `world`, if that is given: its ranks share the input, and write the same shards
// as one rank does; each rank's progress tells what all have done; rank 0's result names the files.
// A fault of one rank is one of all. All files get their names together at the end. Standard input
// is for one rank.
PrepareResult prepare(const PrepareOptions& options, Communicator* world = nullptr);

}  // namespace trireme
