#include "io/tokenizers/sentencepiece_normalizer.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

// Reads the fields of a message in the format of protocol buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  // False: there is none, or the rest is no such field.
  bool next() {
    text = {};
    value = 0;
    std::uint64_t key = 0;
    if (left_.empty() || !read(key)) return false;
    number = key >> 3;
    if ((key & 7) == 0) return read(value);
    std::uint64_t size = (key & 7) == 1 ? 8 : 4;
    if ((key & 7) == 2 && !read(size)) return false;
    if (size > left_.size()) return false;
    text = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }

  std::uint64_t number = 0, value = 0;
  std::string_view text;

 private:
  bool read(std::uint64_t& made) {
    made = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      made |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view left_;
};

// Fields of sentencepiece_model.proto.
constexpr std::uint64_t kPiece = 1, kTrainerSpec = 2, kNormalizerSpec = 3;  // of ModelProto
constexpr std::uint64_t kSpacesAsSuffix = 24;                               // of TrainerSpec
constexpr std::uint64_t kMap = 2, kPrefix = 3, kStrips = 4, kEscapes = 5;   // of NormalizerSpec

constexpr std::uint64_t kText = 1, kType = 3;  // of SentencePiece
constexpr std::uint64_t kUserDefined = 4;

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(std::string_view model,
                                                 const std::string& origin) {
  for (Fields fields(model); fields.next();) {
    if (fields.number == kPiece) keep(fields.text);
    if (fields.number == kNormalizerSpec) read(fields.text, origin);
    if (fields.number != kTrainerSpec) continue;
    for (Fields trainer(fields.text); trainer.next();) {
      if (trainer.number != kSpacesAsSuffix || trainer.value == 0) continue;
      throw DataError(
          fmt::format("{}: treat_whitespace_as_suffix of SentencePiece is not supported", origin));
    }
  }
}

void SentencePieceNormalizer::keep(std::string_view piece) {
  std::string_view text;
  std::uint64_t type = 0;
  for (Fields fields(piece); fields.next();) {
    if (fields.number == kText) text = fields.text;
    if (fields.number == kType) type = fields.value;
  }
  if (type != kUserDefined || text.empty()) return;
  auto& same = kept_[static_cast<unsigned char>(text.front())];
  const auto shorter = std::ranges::find_if(
      same, [&](const std::string& other) { return other.size() < text.size(); });
  same.emplace(shorter, text);
}

void SentencePieceNormalizer::read(std::string_view spec, const std::string& origin) {
  for (Fields fields(spec); fields.next();) {
    if (fields.number == kMap) {
      map_.reset();
      if (!fields.text.empty()) map_.emplace(fields.text, origin);
    } else if (fields.number == kPrefix) {
      has_prefix_ = fields.value != 0;
    } else if (fields.number == kStrips) {
      strips_ = fields.value != 0;
    } else if (fields.number == kEscapes && fields.value == 0) {
      throw DataError(
          fmt::format("{}: SentencePiece without escape_whitespaces is not supported", origin));
    }
  }
}

CharacterMap::Match SentencePieceNormalizer::next(std::string_view text) const {
  for (const std::string& piece : kept_[static_cast<unsigned char>(text.front())]) {
    if (text.starts_with(piece)) return {piece.size(), text.substr(0, piece.size())};
  }
  CharacterMap::Match match;
  if (map_) match = map_->longest(text);
  if (match.length == 0) {
    match.length = utf8_length(text);
    match.becomes = text.substr(0, match.length);
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
