// The shards that a prepare writes: what is trained on, in one file or several, and what is held
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/files/set_folder.h"
#include "io/prepare/prepare_ranks.h"
#include "io/prepare/text_spool.h"

namespace trireme {

// A side of the split, as a stretch of what was spooled.
struct ShardSide {
  SpooledText text;
  SpooledText::Place from, to;
};

// The tokens of all ranks are spooled into the folder, until it is known how many there are; then
// each file is written by one rank.
class ShardSet {
 public:
  // Collective. Makes the folder, and locks it. Throws RunFolderError where a rank sees another
  // one.
  ShardSet(const PrepareOptions& options, PrepareRanks& ranks);

  // Begins to spool, on this rank.
  void open(const TokenizerPtr& tokenizer);
  void append(const BatchTokens& batch);
  std::uint64_t tokens() const;  // of this rank
  struct Stretches {
    SpooledStretch train, validation;
  };
  Stretches take();  // what was appended since the last call
  void flush();

  // The text of a side, of all ranks' stretches.
  SpooledText train(std::vector<SpooledStretch> stretches) const;
  SpooledText validation(std::vector<SpooledStretch> stretches) const;

  // Collective. Writes the files, and gives all of them their names. Throws DataError if a side is
  // empty, or a shard would be. `nothing` says why there is no text at all, if so; `size` is that
  // of all: "20 bytes". The result's files are those that rank 0 knows; the rest is the caller's.
  PrepareResult write(const ShardSide& train, const std::optional<ShardSide>& validation,
                      const std::string& nothing, const std::string& size);

 private:
  std::string path(std::string_view name) const;
  void check_is_shared(const std::string& lock) const;
  std::string spool_path(const char* side) const;
  TokenShardContents contents_of(const ShardSide& side, const char* split) const;
  void check_sides(std::uint64_t train, std::optional<std::uint64_t> validation,
                   const std::string& nothing, const std::string& size) const;
  ShardSide part_of(const ShardSide& train, std::uint64_t tokens, std::int64_t part) const;
  PrepareResult named(bool validation);

  const PrepareOptions& options_;
  PrepareRanks& ranks_;
  std::vector<std::string> train_names_;
  std::optional<SetFolder> folder_;  // on rank 0
  std::optional<MadeFolder> made_;   // on the others
  TokenizerPtr tokenizer_;
  std::optional<SideSpool> train_, validation_;
};

}  // namespace trireme
