#include "io/prepare/text_spool.h"

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "io/files/posix_file.h"

namespace trireme {
namespace {

// Where documents begin, in tokens and in bytes of text: endings of a rank's files.
constexpr const char* kDocumentTokens = ".documents.partial";
constexpr const char* kDocumentBytes = ".bytes.partial";

std::string path_of_rank(const std::string& path, int rank) {
  return fmt::format("{}.rank{}", path, rank);
}

std::uint64_t value_in(const PosixFile& file, std::uint64_t index) {
  std::uint64_t value = 0;
  file.read(static_cast<std::int64_t>(index * sizeof(value)), &value, sizeof(value));
  return value;
}

// The first of `count` rising values from the one at `first` on that is not below `least`, counted
// from `first`.
std::uint64_t first_not_below(const std::string& path, std::uint64_t first, std::uint64_t count,
                              std::uint64_t least) {
  const PosixFile file(path, O_RDONLY);
  const auto numbers = std::views::iota(std::uint64_t{0}, count);
  const auto found = std::ranges::lower_bound(
      numbers, least, {}, [&](std::uint64_t i) { return value_in(file, first + i); });
  return static_cast<std::uint64_t>(found - numbers.begin());
}

}  // namespace

void SideTokens::begin_document() {
  document_starts.push_back(tokens.size());
  document_bytes.push_back(original_bytes);
}

void SideTokens::end_document(const Tokenizer& tokenizer) {
  tokens.push_back(tokenizer.end_of_text());
}

Json json_of(const SpooledStretch& stretch) {
  return Json::array({stretch.rank, stretch.token, stretch.tokens, stretch.document,
                      stretch.documents, stretch.byte, stretch.bytes});
}

SpooledStretch stretch_of(const Json& json) {
  const auto number = [&](std::size_t i) { return json.at(i).unsigned_integer(); };
  return {
      json.at(0).small_integer(), number(1), number(2), number(3), number(4), number(5), number(6)};
}

SideSpool::SideSpool(const std::string& path, int rank, int token_bytes)
    : tokens_(path_of_rank(path, rank), token_bytes),
      document_bytes_(path_of_rank(path, rank) + kDocumentBytes),
      open_{.rank = rank} {}

void SideSpool::append(const SideTokens& side) {
  tokens_.append(side.tokens, side.document_starts);
  std::vector<std::uint64_t> bytes = side.document_bytes;
  for (std::uint64_t& before : bytes) before += open_.byte + open_.bytes;
  document_bytes_.append(std::as_bytes(std::span(bytes)));
  open_.tokens += side.tokens.size();
  open_.documents += side.document_starts.size();
  open_.bytes += side.original_bytes;
}

SpooledStretch SideSpool::take() {
  SpooledStretch next = open_;
  next.token += std::exchange(next.tokens, 0);
  next.document += std::exchange(next.documents, 0);
  next.byte += std::exchange(next.bytes, 0);
  return std::exchange(open_, next);
}

void SideSpool::flush(bool for_other_nodes) {
  if (for_other_nodes) {
    tokens_.sync();
    document_bytes_.sync();
  } else {
    tokens_.flush();
    document_bytes_.flush();
  }
}

SpooledText::SpooledText(std::string path, std::vector<SpooledStretch> stretches)
    : path_(std::move(path)), stretches_(std::move(stretches)) {
  for (const SpooledStretch& stretch : stretches_) bytes_ += stretch.bytes;
}

SpooledText::Place SpooledText::place_of_document(std::size_t i, std::uint64_t document) const {
  const SpooledStretch& stretch = stretches_[i];
  const std::string path = path_of_rank(path_, stretch.rank);
  const auto value = [&](const char* kind) {
    return value_in(PosixFile(path + kind, O_RDONLY), stretch.document + document);
  };
  return {.stretch = i,
          .token = value(kDocumentTokens) - stretch.token,
          .document = document,
          .byte = value(kDocumentBytes) - stretch.byte};
}

SpooledText::Place SpooledText::first_document_from_token(std::uint64_t token) const {
  return first_document_from(token, &SpooledStretch::token, &SpooledStretch::tokens,
                             kDocumentTokens);
}

SpooledText::Place SpooledText::first_document_from_byte(std::uint64_t byte) const {
  return first_document_from(byte, &SpooledStretch::byte, &SpooledStretch::bytes, kDocumentBytes);
}

SpooledText::Place SpooledText::first_document_from(std::uint64_t place, Counted first,
                                                    Counted count, const char* starts) const {
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    const SpooledStretch& stretch = stretches_[i];
    if (before + stretch.*count > place && stretch.documents > 0) {
      const std::uint64_t least = stretch.*first + (place > before ? place - before : 0);
      const std::uint64_t document = first_not_below(path_of_rank(path_, stretch.rank) + starts,
                                                     stretch.document, stretch.documents, least);
      if (document < stretch.documents) return place_of_document(i, document);
    }
    before += stretch.*count;
  }
  return end();
}

std::uint64_t SpooledText::bytes_before(const Place& place) const {
  std::uint64_t bytes = place.byte;
  for (std::size_t i = 0; i < place.stretch; ++i) bytes += stretches_[i].bytes;
  return bytes;
}

std::pair<std::size_t, std::uint64_t> SpooledText::stretch_of_byte(std::uint64_t byte) const {
  std::uint64_t before = 0;
  std::size_t i = 0;
  while (i < stretches_.size() && before + stretches_[i].bytes <= byte) {
    before += stretches_[i++].bytes;
  }
  return {i, before};
}

void SpooledText::put(const Place& from, const Place& to, TokenShardContents& contents) const {
  for (std::size_t i = from.stretch; i <= to.stretch && i < stretches_.size(); ++i) {
    const SpooledStretch& all = stretches_[i];
    const Place first = i == from.stretch ? from : Place{.stretch = i};
    const Place last =
        i == to.stretch
            ? to
            : Place{
                  .stretch = i, .token = all.tokens, .document = all.documents, .byte = all.bytes};
    if (last.token == first.token) continue;
    const std::string path = path_of_rank(path_, all.rank);
    contents.original_bytes += last.byte - first.byte;
    contents.stretches.push_back({.tokens_path = path + ".tokens.partial",
                                  .token = all.token + first.token,
                                  .tokens = last.token - first.token,
                                  .documents_path = path + kDocumentTokens,
                                  .document = all.document + first.document,
                                  .documents = last.document - first.document,
                                  .counted_from = all.token + first.token});
  }
}

}  // namespace trireme
