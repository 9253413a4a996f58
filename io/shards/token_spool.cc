#include "io/shards/token_spool.h"

namespace trireme {

TokenSpool::TokenSpool(const std::string& path, int token_bytes)
    : token_bytes_(token_bytes),
      tokens_(path + ".tokens.partial"),
      documents_(path + ".documents.partial") {}

void TokenSpool::append(std::span<const std::int32_t> tokens,
                        std::span<const std::uint64_t> document_starts) {
  std::vector<std::uint64_t> starts(document_starts.begin(), document_starts.end());
  for (std::uint64_t& start : starts) start += token_count_;
  documents_.append(std::as_bytes(std::span(starts)));
  if (token_bytes_ == 2) {
    narrow_.assign(tokens.begin(), tokens.end());
    tokens_.append(std::as_bytes(std::span(narrow_)));
  } else {
    tokens_.append(std::as_bytes(tokens));
  }
  token_count_ += tokens.size();
  document_count_ += starts.size();
}

void TokenSpool::flush() {
  tokens_.flush();
  documents_.flush();
}

void TokenSpool::sync() {
  tokens_.sync();
  documents_.sync();
}

TokenStretch TokenSpool::all() const {
  return {.tokens_path = tokens_.path(),
          .token = 0,
          .tokens = token_count_,
          .documents_path = documents_.path(),
          .document = 0,
          .documents = document_count_,
          .counted_from = 0};
}

}  // namespace trireme
