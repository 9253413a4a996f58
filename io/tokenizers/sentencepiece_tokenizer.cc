#include "io/tokenizers/sentencepiece_tokenizer.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_processor.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"
#include "trireme/io/text_kind.h"

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/sentencepiece_file.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

// Returns the bytes that a piece stands for. The mark stands for a space.
std::string unescaped(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceMark)) {
      bytes += ' ';
      piece.remove_prefix(kSpaceMark.size());
    } else {
      bytes += piece.front();
      piece.remove_prefix(1);
    }
  }
  return bytes;
}

// Whether a space follows another character, so that the piece spans words.
bool spans_words(std::string_view bytes) {
  const std::size_t word = bytes.find_first_not_of(' ');
  return word != std::string_view::npos && bytes.find(' ', word) != std::string_view::npos;
}

bool is_valid(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// A NormalizerSpec (sentencepiece_model.proto, field 3 of ModelProto) that keeps every byte: name
// "identity" (1), no character map (2), no dummy prefix (3), no removal of extra spaces (4), spaces
// escaped (5). Protocol buffers merge an appended message into the one before it: later values win.
constexpr std::string_view kIdentityNormalizer(
    "\x1a\x12"
    "\x0a\x08identity"
    "\x12\x00"
    "\x18\x00"
    "\x20\x00"
    "\x28\x01",
    20);

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, Mode mode,
                                               const std::string& origin,
                                               std::string_view end_of_text)
    : kind_(mode == Mode::kExact ? kExactKind : kKind),
      model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  // The library gets texts in normal form.
  const auto status = processor_->LoadFromSerializedProto(
      mode == Mode::kExact ? model_ + std::string(kIdentityNormalizer) : model_);
  if (!status.ok()) {
    const std::string_view words = status.error_message();
    const bool is_none = words.find("ParseFromArray") != std::string_view::npos;
    throw DataError(
        is_none
            ? fmt::format("{}: not a SentencePiece model, but {}; tokenizer.json, tekken.json and "
                          "Llama 3's rank file are read as well",
                          origin, kind_of_file(model_))
            : fmt::format("{}: not a SentencePiece model ({})", origin, shown(words)));
  }
  const SentencePieceFile file = parse_sentencepiece_file(model_);
  is_of_words_ = file.model == SentencePieceFile::Model::kWord;
  std::int32_t end = own_end();
  if (!end_of_text.empty()) end = piece_named(end_of_text, origin);
  if (end < 0) {
    throw DataError(
        fmt::format("{}: the SentencePiece model has no piece that can end a text", origin));
  }
  if (end != own_end()) kind_ += fmt::format(":{}", end_of_text);
  find_special_tokens(file.unknown, end, origin);
  // SentencePiece reads no model that has pieces of some bytes alone.
  if (mode == Mode::kLossless && !has_bytes()) {
    throw DataError(fmt::format("{}: the SentencePiece model has no byte pieces", origin));
  }
  if (mode != Mode::kExact) return;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    using Type = SentencePieceFile::Type;
    if (piece.type == Type::kControl || piece.type == Type::kByte || !is_valid(piece.text))
      continue;
    find_pairs(piece.text);
    const bool is_character = !piece.text.empty() && utf8_length(piece.text) == piece.text.size();
    if (is_character && (piece.type == Type::kNormal || piece.type == Type::kUserDefined)) {
      known_.insert(first_character(piece.text));
    }
  }
  exact_.emplace(model_, origin);
  if (exact_->has_prefix()) set_leading_space();
}

void SentencePieceTokenizer::find_pairs(std::string_view piece) {
  char32_t last = 0;
  for_each_character(piece, [&](char32_t c, std::string_view) {
    if (last != 0 && begins_units(c)) pairs_.emplace(last, c);
    last = c;
  });
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::string SentencePieceTokenizer::description() const {
  return fmt::format("SentencePiece, {} tokens", vocabulary());
}

std::int32_t SentencePieceTokenizer::own_end() const {
  for (const int piece : {processor_->eos_id(), processor_->bos_id()}) {
    if (piece >= 0) return piece;
  }
  return processor_->pad_id();
}

// A control piece: texts have none of them.
std::int32_t SentencePieceTokenizer::piece_named(std::string_view name,
                                                 const std::string& origin) const {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    if (!processor_->IsControl(id)) continue;
    const std::string& piece = processor_->IdToPiece(id);
    if (piece == name) return id;
    if (names.size() <= kMostNames)
      names.push_back(names.size() < kMostNames ? shown(piece) : "...");
  }
  throw DataError(fmt::format("{}: '{}' is none of its control pieces ({}), so it cannot end texts",
                              origin, shown(name), fmt::join(names, ", ")));
}

void SentencePieceTokenizer::find_special_tokens(std::string_view unknown, std::int32_t end,
                                                 const std::string& origin) {
  const int count = processor_->GetPieceSize();
  std::vector<std::string> bytes(static_cast<std::size_t>(count));
  SpecialTokens special_tokens;
  byte_token_.fill(-1);
  newline_token_ = -1;
  for (int id = 0; id < count; ++id) {
    std::string& own = bytes[static_cast<std::size_t>(id)];
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsControl(id) || processor_->IsUnknown(id)) {
      special_tokens.emplace(piece, id);
      continue;
    }
    if (processor_->IsByte(id)) {
      const int byte = named_byte(piece);
      if (byte < 0) throw DataError(fmt::format("{}: '{}' names no byte", origin, shown(piece)));
      byte_token_[static_cast<std::size_t>(byte)] = id;
      own = std::string(1, static_cast<char>(byte));
    } else {
      own = unescaped(piece);
      if (own == "\n") newline_token_ = id;
      if (spans_words(own)) words_are_independent_ = false;
    }
  }
  if (!has_bytes()) bytes[static_cast<std::size_t>(processor_->unk_id())] = unknown;
  if (newline_token_ < 0) newline_token_ = byte_token_['\n'];
  bytes[static_cast<std::size_t>(end)].clear();
  set_vocabulary(std::move(bytes), end, std::move(special_tokens));
}

void SentencePieceTokenizer::add_tokens(std::string_view bytes, TextPart part,
                                        std::vector<std::int32_t>& tokens) const {
  if (exact_) return add_exact(bytes, part == TextPart::kBegins, tokens);
  WordCache cache;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    std::string_view line = bytes.substr(0, newline);
    while (!line.empty()) {
      encode_segment(line.substr(0, kSegmentBytes), cache, tokens);
      line.remove_prefix(std::min(line.size(), kSegmentBytes));
    }
    if (newline == std::string_view::npos) break;
    tokens.push_back(newline_token_);
    bytes.remove_prefix(newline + 1);
  }
}

void SentencePieceTokenizer::add_exact(std::string_view bytes, bool begins,
                                       std::vector<std::int32_t>& tokens) const {
  WordCache cache;
  std::deque<std::string> texts;  // what the cache's words are views of
  const auto add = [&](std::string_view text, bool ends) {
    std::string_view left = texts.emplace_back(exact_->apply(text, begins, ends));
    begins = false;
    bool goes_on = false;  // the last token is of this text
    while (!left.empty()) {
      const std::size_t length = unit_length(left);
      const auto unit = cache.tokens(
          left.substr(0, length), [&](std::string_view word, std::vector<std::int32_t>& made) {
            std::vector<int> ids;
            const auto status = processor_->Encode({word.data(), word.size()}, &ids);
            if (!status.ok()) throw DataError(fmt::format("SentencePiece: {}", status.ToString()));
            made.insert(made.end(), ids.begin(), ids.end());
          });
      const bool joins = goes_on && !unit.empty() && processor_->IsUnknown(unit.front()) &&
                         processor_->IsUnknown(tokens.back());
      tokens.insert(tokens.end(), unit.begin() + (joins ? 1 : 0), unit.end());
      goes_on = goes_on || !unit.empty();
      left.remove_prefix(length);
    }
  };
  if (!has_bytes()) return add(bytes, true);
  std::size_t begin = 0, at = 0;
  while (at < bytes.size()) {
    const std::size_t length = utf8_length(bytes.substr(at));
    if (length == 0) {
      if (at > begin) add(bytes.substr(begin, at - begin), false);
      encode_bytes(bytes.substr(at, 1), tokens);
      begins = false;
      begin = at + 1;
    }
    at += std::max<std::size_t>(length, 1);
  }
  if (at > begin) add(bytes.substr(begin), true);
}

bool SentencePieceTokenizer::begins_units(char32_t character) const {
  return character == 0x2581 || (character == '\n' && !is_of_words_);
}

bool SentencePieceTokenizer::may_join(char32_t left, char32_t right) const {
  if (has_bytes()) return false;
  return is_of_words_ || !(known_.contains(left) || known_.contains(right));
}

std::size_t SentencePieceTokenizer::unit_length(std::string_view text) const {
  std::size_t at = utf8_length(text);
  for (char32_t last = first_character(text); at < text.size();) {
    const bool is_ascii = (text[at] & 0x80) == 0;
    const char32_t next =
        is_ascii ? static_cast<char32_t>(text[at]) : first_character(text.substr(at));
    if (begins_units(next) && !pairs_.contains({last, next})) return at;
    last = next;
    at += is_ascii ? 1 : utf8_length(text.substr(at));
  }
  return text.size();
}

// A place before white space where the sides are normalised by themselves, and no piece goes
// across.
std::size_t SentencePieceTokenizer::cut(std::string_view bytes) const {
  constexpr std::size_t kContext = 256;
  if (!exact_) return Tokenizer::cut(bytes);
  int tries = 64;
  for (std::size_t at = bytes.size(); at-- > 1 && tries > 0;) {
    if (bytes[at] != ' ' && bytes[at] != '\n') continue;
    const std::size_t last = last_character_begin(bytes.substr(0, at));
    const std::size_t word = bytes.find_first_not_of(" \n\r\t", at);
    if (word == std::string_view::npos) continue;
    const std::size_t end = word + utf8_length(bytes.substr(word));
    if (utf8_length(bytes.substr(last)) != at - last || end == word || end == bytes.size())
      continue;
    const char32_t before = first_character(bytes.substr(last));
    if (!is_letter(before) && !is_numeric(before) && !is_punctuation(before)) continue;
    --tries;
    std::size_t begin = at - std::min(at, kContext);
    while (begin < last && !is_valid(bytes.substr(begin, at - begin))) ++begin;
    const std::string left = exact_->apply(bytes.substr(begin, at - begin), false, false);
    const std::string right = exact_->apply(bytes.substr(at, end - at), false, false);
    if (left.empty() || right.empty()) continue;
    const char32_t first = first_character(right);
    const char32_t end_of_left = first_character(left.substr(last_character_begin(left)));
    const bool is_apart = begins_units(first) && !begins_units(end_of_left) &&
                          !pairs_.contains({end_of_left, first}) && !may_join(end_of_left, first);
    if (is_apart && exact_->apply(bytes.substr(begin, end - begin), false, false) == left + right) {
      return at;
    }
  }
  return 0;
}

// A unit is a run of spaces and the word after it, or, if pieces span words, the whole segment.
void SentencePieceTokenizer::encode_segment(std::string_view segment, WordCache& cache,
                                            std::vector<std::int32_t>& tokens) const {
  while (!segment.empty()) {
    std::size_t length = segment.size();
    if (words_are_independent_) {
      const std::size_t word = segment.find_first_not_of(' ');
      if (word != std::string_view::npos) length = std::min(length, segment.find(' ', word));
    }
    const auto unit = cache.tokens(
        segment.substr(0, length),
        [&](std::string_view word, std::vector<std::int32_t>& made) { encode_unit(word, made); });
    tokens.insert(tokens.end(), unit.begin(), unit.end());
    segment.remove_prefix(length);
  }
}

// The model gets only valid UTF-8, and never a literal space mark, which it would read as a space.
// Every other byte becomes its byte token.
void SentencePieceTokenizer::encode_unit(std::string_view unit,
                                         std::vector<std::int32_t>& tokens) const {
  std::size_t begin = 0;  // where the text starts that is not yet encoded
  std::size_t at = 0;
  const auto flush = [&] {
    if (at > begin) encode_text(unit.substr(begin, at - begin), tokens);
  };
  while (at < unit.size()) {
    const std::size_t length = utf8_length(unit.substr(at));
    const bool is_mark = unit.substr(at, length) == kSpaceMark;
    if (length > 0 && !is_mark) {
      at += length;
      continue;
    }
    flush();
    const std::size_t raw = is_mark ? kSpaceMark.size() : 1;
    encode_bytes(unit.substr(at, raw), tokens);
    at += raw;
    begin = at;
  }
  flush();
}

void SentencePieceTokenizer::encode_text(std::string_view text,
                                         std::vector<std::int32_t>& tokens) const {
  std::vector<int> ids;
  const auto status = processor_->Encode({text.data(), text.size()}, &ids);
  // A model from elsewhere may change the text. Then the text is encoded as byte tokens instead, so
  // nothing is lost.
  std::size_t at = 0;
  bool same = status.ok();
  for (std::size_t i = 0; same && i < ids.size(); ++i) {
    const std::string_view piece = bytes_of(ids[i]);
    same = !piece.empty() && text.substr(at).starts_with(piece);
    at += piece.size();
  }
  if (same && at == text.size()) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  } else {
    encode_bytes(text, tokens);
  }
}

void SentencePieceTokenizer::encode_bytes(std::string_view bytes,
                                          std::vector<std::int32_t>& tokens) const {
  for (const char c : bytes) tokens.push_back(byte_token_[static_cast<unsigned char>(c)]);
}

bool is_exact_sentencepiece(std::string_view kind) {
  constexpr std::string_view kExact = SentencePieceTokenizer::kExactKind;
  return kind == kExact || kind.starts_with(fmt::format("{}:", kExact));
}

std::shared_ptr<SentencePieceTokenizer> stored_sentencepiece(std::string_view kind,
                                                             std::string_view model,
                                                             const std::string& origin) {
  using Mode = SentencePieceTokenizer::Mode;
  const bool is_exact = is_exact_sentencepiece(kind);
  const std::size_t name = std::min(kind.size(), SentencePieceTokenizer::kExactKind.size() + 1);
  return std::make_shared<SentencePieceTokenizer>(std::string(model),
                                                  is_exact ? Mode::kExact : Mode::kLossless, origin,
                                                  is_exact ? kind.substr(name) : "");
}

std::shared_ptr<SentencePieceTokenizer> load_sentencepiece(std::string model,
                                                           std::string_view end_of_text,
                                                           const std::string& origin) {
  using Mode = SentencePieceTokenizer::Mode;
  auto exact = std::make_shared<SentencePieceTokenizer>(model, Mode::kExact, origin, end_of_text);
  const bool is_own = exact->has_bytes() && SentencePieceNormalizer(model, origin).is_plain() &&
                      exact->special_token(kTrainedEnd) == exact->end_of_text();
  if (!is_own) return exact;
  return std::make_shared<SentencePieceTokenizer>(std::move(model), Mode::kLossless, origin);
}

}  // namespace trireme
