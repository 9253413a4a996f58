#include "io/tokenizers/sentencepiece_normalizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/tokenizers/sentencepiece_file.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {

SentencePieceNormalizer::SentencePieceNormalizer(std::string_view model,
                                                 const std::string& origin) {
  const SentencePieceFile file = parse_sentencepiece_file(model);
  if (file.has_spaces_as_suffix) {
    throw DataError(
        fmt::format("{}: treat_whitespace_as_suffix of SentencePiece is not supported", origin));
  }
  if (!file.escapes) {
    throw DataError(
        fmt::format("{}: SentencePiece without escape_whitespaces is not supported", origin));
  }
  if (!file.map.empty()) map_.emplace(file.map, origin);
  has_prefix_ = file.has_prefix;
  strips_ = file.strips;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    if (piece.type == SentencePieceFile::Type::kUserDefined && !piece.text.empty()) {
      keep(piece.text);
    }
  }
}

void SentencePieceNormalizer::keep(std::string_view text) {
  auto& same = kept_[static_cast<unsigned char>(text.front())];
  const auto shorter = std::ranges::find_if(
      same, [&](const std::string& other) { return other.size() < text.size(); });
  same.emplace(shorter, text);
}

CharacterMap::Match SentencePieceNormalizer::next(std::string_view text) const {
  for (const std::string& piece : kept_[static_cast<unsigned char>(text.front())]) {
    if (text.starts_with(piece)) return {piece.size(), text.substr(0, piece.size())};
  }
  CharacterMap::Match match;
  if (map_) match = map_->longest(text);
  if (match.length == 0) {
    const std::size_t length = utf8_length(text);
    match = {std::max<std::size_t>(length, 1), length == 0 ? kReplacement : text.substr(0, length)};
  }
  return match;
}

std::string SentencePieceNormalizer::apply(std::string_view text, bool begins, bool ends) const {
  while (begins && strips_ && !text.empty()) {
    const CharacterMap::Match first = next(text);
    if (first.becomes != " ") break;
    text.remove_prefix(first.length);
  }
  if (text.empty()) return {};
  std::string made;
  made.reserve(text.size() + text.size() / 2);
  if (begins && has_prefix_) made += kSpaceMark;
  bool is_after_space = begins && strips_;
  while (!text.empty()) {
    CharacterMap::Match match = next(text);
    text.remove_prefix(match.length);
    while (is_after_space && match.becomes.starts_with(' ')) match.becomes.remove_prefix(1);
    if (!match.becomes.empty()) is_after_space = strips_ && match.becomes.ends_with(' ');
    for (const char byte : match.becomes) {
      if (byte == ' ') {
        made += kSpaceMark;
      } else {
        made += byte;
      }
    }
  }
  while (ends && strips_ && made.ends_with(kSpaceMark)) {
    made.resize(made.size() - kSpaceMark.size());
  }
  return made;
}

}  // namespace trireme
