#include "io/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/decoder.h"
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

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& origin)
    : model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = processor_->LoadFromSerializedProto(model_);
  if (!status.ok()) {
    throw DataError(
        fmt::format("{}: not a SentencePiece model ({})", origin, shown(status.error_message())));
  }
  find_special_tokens(origin);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::string SentencePieceTokenizer::description() const {
  return fmt::format("SentencePiece, {} tokens", vocabulary());
}

void SentencePieceTokenizer::find_special_tokens(const std::string& origin) {
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
  for (const std::int32_t token : byte_token_) {
    if (token < 0) {
      throw DataError(
          fmt::format("{}: the SentencePiece model has no byte pieces; one trained "
                      "with byte_fallback is needed to encode every text",
                      origin));
    }
  }
  if (newline_token_ < 0) newline_token_ = byte_token_['\n'];
  int end = processor_->eos_id();
  if (end < 0) end = processor_->bos_id();
  if (end < 0) end = processor_->pad_id();
  if (end < 0) {
    throw DataError(
        fmt::format("{}: the SentencePiece model has no piece that can end a text", origin));
  }
  bytes[static_cast<std::size_t>(end)].clear();
  set_vocabulary(std::move(bytes), end, std::move(special_tokens));
}

void SentencePieceTokenizer::add_tokens(std::string_view bytes, TextPart,
                                        std::vector<std::int32_t>& tokens) const {
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

}  // namespace trireme
