// The two shards that a prepare writes: what is trained on, and what is held out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/files/set_folder.h"

namespace trireme {

// One side of the split.
struct SideTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> document_starts;
  std::uint64_t original_bytes = 0;
};
struct BatchTokens {
  SideTokens train, validation;
};

class ShardPair {
 public:
  // Makes the folder, and locks it.
  explicit ShardPair(const PrepareOptions& options);

  void open(const TokenizerPtr& tokenizer);
  void append(const BatchTokens& batch);
  std::int64_t tokens() const;
  // Throws DataError if a side is empty. `nothing` says why there is no text at all, if so; `size`
  // is that of all: "20 bytes".
  void check_sides(const std::string& nothing, const std::string& size) const;
  // Gives both their names. The rest of the result is the caller's.
  PrepareResult commit();

 private:
  const PrepareOptions& options_;
  SetFolder folder_;
  TokenizerPtr tokenizer_;
  std::unique_ptr<TokenShardWriter> train_, validation_;
};

}  // namespace trireme
