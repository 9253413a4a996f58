#include "trireme/io/tokenizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "io/tokenizers/huggingface_tokenizer.h"
#include "io/tokenizers/number_tokenizer.h"
#include "io/tokenizers/rank_file.h"
#include "io/tokenizers/sentencepiece_tokenizer.h"

namespace trireme {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    std::vector<std::string> bytes(257);
    for (std::size_t b = 0; b < 256; ++b) bytes[b] = std::string(1, static_cast<char>(b));
    set_vocabulary(std::move(bytes), 256, {});
  }

  std::string_view kind() const override { return "byte"; }
  std::string description() const override { return "byte level, 257 tokens"; }
  const std::string& model() const override { return model_; }

 private:
  void add_tokens(std::string_view bytes, TextPart,
                  std::vector<std::int32_t>& tokens) const override {
    tokens.reserve(tokens.size() + bytes.size());
    for (const char c : bytes) tokens.push_back(static_cast<unsigned char>(c));
  }

  std::string model_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view bytes) const {
  std::vector<std::int32_t> tokens;
  encode(bytes, tokens);
  return tokens;
}

std::size_t Tokenizer::cut(std::string_view bytes) const {
  const std::size_t newline = bytes.rfind('\n');
  return newline == std::string_view::npos ? bytes.size() / kSegmentBytes * kSegmentBytes
                                           : newline + 1;
}

std::string_view Tokenizer::bytes_of(std::int32_t token) const {
  TRIREME_CHECK(token >= 0 && token < vocabulary(),
                fmt::format("token {} of a vocabulary of {}", token, vocabulary()));
  return bytes_[static_cast<std::size_t>(token)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  bool begins = has_leading_space_;
  for (const std::int32_t token : tokens) {
    std::string_view bytes = bytes_of(token);
    // What stands for unknown text begins with no space that was put there.
    if (begins && bytes.starts_with(' ') && name_of(token).empty()) bytes.remove_prefix(1);
    begins = begins && bytes_of(token).empty();
    text += bytes;
  }
  return text;
}

std::optional<std::int32_t> Tokenizer::special_token(std::string_view name) const {
  const auto found = special_tokens_.find(name);
  if (found == special_tokens_.end()) return {};
  return found->second;
}

std::string_view Tokenizer::name_of(std::int32_t token) const {
  const auto found = std::ranges::find(special_tokens_, token, &SpecialTokens::value_type::second);
  return found == special_tokens_.end() ? std::string_view() : std::string_view(found->first);
}

void Tokenizer::set_vocabulary(std::vector<std::string> bytes, std::int32_t end_of_text,
                               SpecialTokens special_tokens) {
  bytes_ = std::move(bytes);
  end_of_text_ = end_of_text;
  special_tokens_ = std::move(special_tokens);
}

TokenizerPtr make_byte_tokenizer() {
  return std::make_shared<ByteTokenizer>();
}

void Tokenizer::set_begin_of_text(std::optional<std::int32_t> token, const std::string& origin) {
  if (token && (*token < 0 || *token >= vocabulary())) {
    throw DataError(fmt::format("{}: begin of text is token {} of a vocabulary of {}", origin,
                                *token, vocabulary()));
  }
  begin_of_text_ = token;
}

namespace {

std::shared_ptr<Tokenizer> stored_tokenizer(std::string_view kind, std::string_view model) {
  if (kind == "byte") return std::make_shared<ByteTokenizer>();
  if (kind == NumberTokenizer::kKind) return std::make_shared<NumberTokenizer>(model);
  if (kind == SentencePieceTokenizer::kKind || is_exact_sentencepiece(kind)) {
    return stored_sentencepiece(kind, model, "the stored tokenizer");
  }
  const std::string_view name = kind.substr(0, kind.find(':'));
  constexpr std::string_view kHuggingFace = HuggingFaceTokenizer::kKind;
  if (name == kHuggingFace || name == "tiktoken" || name == "tekken") {
    const auto end_of_text = kind.substr(std::min(kind.size(), name.size() + 1));
    return std::make_shared<HuggingFaceTokenizer>(std::string(model), end_of_text,
                                                  "the stored tokenizer");
  }
  throw DataError(fmt::format("unknown tokenizer kind '{}'; known: byte, sentencepiece, {}",
                              shown(kind), kHuggingFace));
}

}  // namespace

TokenizerPtr make_tokenizer(std::string_view kind, std::string_view model,
                            std::optional<std::int32_t> begin_of_text) {
  const std::shared_ptr<Tokenizer> made = stored_tokenizer(kind, model);
  made->set_begin_of_text(begin_of_text, "the stored tokenizer");
  return made;
}

std::string packed(const Tokenizer& tokenizer) {
  return Json::array({tokenizer.kind(), tokenizer.model(), tokenizer.begin_of_text().value_or(-1)})
      .to_cbor();
}

TokenizerPtr unpacked_tokenizer(std::string_view packed) {
  const Json json = Json::from_cbor(packed);
  const std::int32_t begin = json.at(2).small_integer();
  return make_tokenizer(json.at(0).text(), json.at(1).text(),
                        begin < 0 ? std::nullopt : std::optional(begin));
}

}  // namespace trireme
