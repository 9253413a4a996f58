// What the portions of the input have become, in temporary files of the ranks that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/io/prepare.h"

#include "io/files/spool_file.h"
#include "io/shards/token_shard_contents.h"
#include "io/shards/token_spool.h"

namespace trireme {

// One side of the split: what is trained on, or what is held out.
struct SideTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> document_starts;
  std::vector<std::uint64_t> document_bytes;  // of text before each document
  std::uint64_t original_bytes = 0;

  void begin_document();
  void end_document(const Tokenizer& tokenizer);
};
struct BatchTokens {
  SideTokens train, validation;
};

// A stretch of one side in the files of a rank, as indices into them.
struct SpooledStretch {
  int rank = 0;
  std::uint64_t token = 0, tokens = 0;
  std::uint64_t document = 0, documents = 0;
  std::uint64_t byte = 0, bytes = 0;  // of text
};

// For other ranks.
Json json_of(const SpooledStretch& stretch);
SpooledStretch stretch_of(const Json& json);

// The files of one side on one rank. Throws RunFolderError. The destructor removes them.
class SideSpool {
 public:
  SideSpool(const std::string& path, int rank, int token_bytes);
  void append(const SideTokens& side);
  // Returns what was appended since the last call.
  SpooledStretch take();
  void flush(bool for_other_nodes);
  std::uint64_t tokens() const { return tokens_.tokens(); }

 private:
  TokenSpool tokens_;
  SpoolFile document_bytes_;  // uint64: of text before each document
  SpooledStretch open_;       // what take() will return
};

// The stretches of one side, in the order of the text.
class SpooledText {
 public:
  // `path` as the spools have it.
  SpooledText(std::string path, std::vector<SpooledStretch> stretches);

  std::uint64_t bytes() const { return bytes_; }

  // Between two tokens; `stretch` may be the number of all.
  struct Place {
    std::size_t stretch = 0;
    std::uint64_t token = 0, document = 0, byte = 0;  // in the stretch
  };
  Place begin() const { return {}; }
  Place end() const { return {.stretch = stretches_.size()}; }
  // Where the first document begins that has so many tokens, or bytes, or more before it; or else
  // the end.
  Place first_document_from_token(std::uint64_t token) const;
  Place first_document_from_byte(std::uint64_t byte) const;
  std::uint64_t bytes_before(const Place& place) const;

  // Which stretch holds a byte, and how many bytes come before that stretch.
  std::pair<std::size_t, std::uint64_t> stretch_of_byte(std::uint64_t byte) const;

  // Tokens, documents and bytes of [from, to).
  void put(const Place& from, const Place& to, TokenShardContents& contents) const;

 private:
  using Counted = std::uint64_t SpooledStretch::*;

  Place place_of_document(std::size_t stretch, std::uint64_t document) const;
  // The same for what `first` and `count` count; the rank's file with the ending `starts` has it
  // for each document.
  Place first_document_from(std::uint64_t place, Counted first, Counted count,
                            const char* starts) const;

  std::string path_;
  std::vector<SpooledStretch> stretches_;
  std::uint64_t bytes_ = 0;
};

}  // namespace trireme
