#include "trireme/io/hugging_face_files.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/huggingface_tokenizer.h"
#include "io/tokenizers/merge_list.h"
#include "io/tokenizers/number_tokenizer.h"
#include "io/tokenizers/sentencepiece_tokenizer.h"
#include "io/tokenizers/split_pattern.h"
#include "io/tokenizers/tokenizer_file.h"
#include "io/tokenizers/tokens_around.h"
#include "io/tokenizers/written_tokenizer.h"

namespace trireme {
namespace {

// A byte tokenizer's end of text has no name of its own.
constexpr std::string_view kByteEnd = "<|endoftext|>";

Json bytes_as_characters() {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", false}});
}

Json pairs_of_bytes(Json::Object vocabulary, Json merges, bool ignores_merges) {
  return Json::object({{"type", "BPE"},
                       {"dropout", {}},
                       {"unk_token", {}},
                       {"continuing_subword_prefix", {}},
                       {"end_of_word_suffix", {}},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", ignores_merges},
                       {"vocab", Json::object(std::move(vocabulary))},
                       {"merges", std::move(merges)}});
}

WrittenTokenizer written_bytes(const Tokenizer& tokenizer) {
  Json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.push_back({visible_bytes(std::string(1, static_cast<char>(byte))), byte});
  }
  WrittenTokenizer made;
  made.model = pairs_of_bytes(std::move(vocabulary), Json::array(), false);
  made.pre_tokenizer = bytes_as_characters();
  made.decoder = bytes_as_characters();
  made.add_special(kByteEnd, tokenizer.end_of_text());
  return made;
}

// Special tokens before others have to be in the vocabulary to keep their numbers.
WrittenTokenizer written_ranks(const Tokenizer& tokenizer) {
  const TokenizerFile file = parse_tokenizer_file(tokenizer.model(), "the tokenizer");
  WrittenTokenizer made;
  std::vector<bool> is_special(file.tokens.size());
  const SplitPattern pattern(file.rank_pattern, SplitPattern::Kind::kRegex, "the tokenizer");
  SplitPattern::Matcher matcher(pattern);
  for (const TokenizerFile::AddedToken& token : file.added) {
    is_special[static_cast<std::size_t>(token.token)] = true;
    made.add_special(token.text, token.token);
    const SplitPattern::Match word = matcher.find(token.text, 0);
    if (word.begin == word.end || (word.begin == 0 && word.end == token.text.size())) {
      refuse_to_write(
          fmt::format("'{}' is special, but also a word of its pattern", shown(token.text)));
    }
  }
  std::size_t count = file.tokens.size();
  while (count > 0 && is_special[count - 1]) --count;
  Json::Object vocabulary;
  std::vector<std::string_view> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    vocabulary.push_back({file.tokens[i], static_cast<std::int64_t>(i)});
    if (!is_special[i]) tokens.push_back(file.tokens[i]);
  }
  made.model = pairs_of_bytes(std::move(vocabulary),
                              merge_list(tokens, {tokens.begin(), tokens.end()}), true);
  made.pre_tokenizer = sequence_of(
      "pretokenizers", Json::array({split_at(file.rank_pattern), bytes_as_characters()}));
  made.decoder = bytes_as_characters();
  return made;
}

// The name that the files have for a token around texts.
std::string name_of(const Tokenizer& tokenizer, std::int32_t token) {
  const std::string_view name = tokenizer.name_of(token);
  if (!name.empty()) return std::string(name);
  if (tokenizer.kind() == "byte" && token == tokenizer.end_of_text()) return std::string(kByteEnd);
  refuse_to_write(fmt::format("the token {} begins or ends texts, but has no name", token));
}

WrittenTokenizer written(const Tokenizer& tokenizer) {
  const std::string_view kind = tokenizer.kind();
  if (kind == "byte") return written_bytes(tokenizer);
  if (kind == NumberTokenizer::kKind) {
    refuse_to_write("its tokens are numbers, which stand for no text that is known");
  }
  if (kind == SentencePieceTokenizer::kKind || is_exact_sentencepiece(kind)) {
    return written_pieces(tokenizer);
  }
  return written_ranks(tokenizer);
}

std::string tokenizer_json(const Tokenizer& tokenizer) {
  const std::string_view kind = tokenizer.kind();
  if (kind.substr(0, kind.find(':')) == HuggingFaceTokenizer::kKind) return tokenizer.model();
  WrittenTokenizer parts = written(tokenizer);
  Json post_processor;
  if (const auto begin = tokenizer.begin_of_text()) {
    post_processor = begin_with(TokenBefore{name_of(tokenizer, *begin), *begin});
  }
  return Json::object({{"version", "1.0"},
                       {"truncation", {}},
                       {"padding", {}},
                       {"added_tokens", std::move(parts.added)},
                       {"normalizer", std::move(parts.normalizer)},
                       {"pre_tokenizer", std::move(parts.pre_tokenizer)},
                       {"post_processor", std::move(post_processor)},
                       {"decoder", std::move(parts.decoder)},
                       {"model", std::move(parts.model)}})
      .dump();
}

std::string tokenizer_config(const Tokenizer& tokenizer, std::int64_t longest_text) {
  Json config = Json::object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"eos_token", name_of(tokenizer, tokenizer.end_of_text())}});
  const auto begin = tokenizer.begin_of_text();
  if (begin) config["bos_token"] = name_of(tokenizer, *begin);
  config["add_bos_token"] = begin.has_value();
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = longest_text;
  return config.dump(2) + "\n";
}

}  // namespace

std::map<std::string, std::string> hugging_face_files(const Tokenizer& tokenizer,
                                                      std::int64_t longest_text) {
  return {{"tokenizer.json", tokenizer_json(tokenizer)},
          {"tokenizer_config.json", tokenizer_config(tokenizer, longest_text)}};
}

}  // namespace trireme
