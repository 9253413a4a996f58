#include "io/tokenizers/rank_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/tokenizers/base64.h"

namespace trireme {
namespace {

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::size_t kLlama3Ranks = 128000, kLlama3Special = 256;
constexpr std::array<const char*, 12> kLlama3Names = {"<|begin_of_text|>",
                                                      "<|end_of_text|>",
                                                      "<|reserved_special_token_0|>",
                                                      "<|reserved_special_token_1|>",
                                                      "<|finetune_right_pad_id|>",
                                                      "<|step_id|>",
                                                      "<|start_header_id|>",
                                                      "<|end_header_id|>",
                                                      "<|eom_id|>",
                                                      "<|eot_id|>",
                                                      "<|python_tag|>",
                                                      "<|image|>"};
// What a tekken.json means that lists no special tokens.
constexpr std::array<const char*, 20> kTekkenNames = {"<unk>",
                                                      "<s>",
                                                      "</s>",
                                                      "[INST]",
                                                      "[/INST]",
                                                      "[AVAILABLE_TOOLS]",
                                                      "[/AVAILABLE_TOOLS]",
                                                      "[TOOL_RESULTS]",
                                                      "[/TOOL_RESULTS]",
                                                      "[TOOL_CALLS]",
                                                      "[IMG]",
                                                      "<pad>",
                                                      "[IMG_BREAK]",
                                                      "[IMG_END]",
                                                      "[PREFIX]",
                                                      "[MIDDLE]",
                                                      "[SUFFIX]",
                                                      "[SYSTEM_PROMPT]",
                                                      "[/SYSTEM_PROMPT]",
                                                      "[TOOL_CONTENT]"};

constexpr const char* kTekkenBegin = "<s>";

// A line is a token in base 64, a space, and its rank; nothing: it is another.
std::optional<std::string> token_of_line(std::string_view line, std::size_t rank) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return {};
  std::size_t number = 0;
  const char* end = line.data() + line.size();
  const auto read = std::from_chars(line.data() + space + 1, end, number);
  if (read.ec != std::errc() || read.ptr != end || number != rank) return {};
  std::optional<std::string> token = from_base64(line.substr(0, space));
  return token && !token->empty() ? token : std::nullopt;
}

// BPE in which two tokens merge where a token is both, the one of least rank first.
class RankedTokens {
 public:
  RankedTokens(const std::string& origin, std::string kind) : origin_(origin) {
    made_.kind = std::move(kind);
    pairs_.is_byte_level = true;
    pairs_.ignores_merges = true;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(fmt::format("{}: {}", origin_, why));
  }

  void add_special(const std::string& name) {
    const auto number = static_cast<std::int32_t>(made_.tokens.size());
    made_.tokens.push_back(name);
    made_.added.push_back({name, number, true, false, true, false, false, false});
  }

  void put_before_texts(const char* name) { made_.before.emplace_back(name); }

  void add_token(std::string bytes) {
    const auto number = static_cast<std::int32_t>(made_.tokens.size());
    made_.tokens.push_back(visible_bytes(bytes));
    if (!numbers_.emplace(std::move(bytes), number).second) {
      refuse(fmt::format("the token {} is listed twice", number));
    }
  }

  TokenizerFile finish(const std::string& pattern) {
    for (const auto& [bytes, number] : numbers_) {
      for (std::size_t at = 1; at < bytes.size(); ++at) {
        const auto left = numbers_.find(bytes.substr(0, at));
        const auto right = numbers_.find(bytes.substr(at));
        if (left == numbers_.end() || right == numbers_.end()) continue;
        pairs_.merges.emplace_back(left->second, right->second);
        pairs_.merged.push_back(number);
        pairs_.ranks.push_back(number);
      }
    }
    std::vector<PreTokenizers::Step> steps;
    steps.emplace_back(
        PreTokenizers::PatternSplit{SplitPattern(pattern, SplitPattern::Kind::kRegex, origin_),
                                    PreTokenizers::Behavior::kIsolated, false});
    made_.pre_tokenizers = PreTokenizers(std::move(steps));
    made_.rank_pattern = pattern;
    made_.model = std::move(pairs_);
    return std::move(made_);
  }

 private:
  const std::string& origin_;
  TokenizerFile made_;
  TokenizerFile::BytePairs pairs_{};
  std::unordered_map<std::string, std::int32_t> numbers_;
};

// The bytes of an entry of a tekken.json; nothing: it is another.
std::optional<std::string> token_of_entry(const Json& entry, std::int64_t rank) {
  const Json* number = entry.find("rank");
  const Json* text = entry.find("token_bytes");
  if (!number || !number->is_integer() || number->integer() != rank) return {};
  if (!text || !text->is_text()) return {};
  std::optional<std::string> token = from_base64(text->text());
  return token && !token->empty() ? token : std::nullopt;
}

}  // namespace

bool is_tiktoken_file(std::string_view text) {
  return token_of_line(text.substr(0, text.find('\n')), 0).has_value();
}

bool is_tekken_file(const Json& json) {
  const Json* vocabulary = json.find("vocab");
  return vocabulary && vocabulary->is_array() && json.find("config") && !json.find("model");
}

TokenizerFile parse_tiktoken_file(std::string_view text, const std::string& origin) {
  RankedTokens ranked(origin, "tiktoken");
  std::size_t rank = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::optional<std::string> token = token_of_line(text.substr(0, end), rank);
    if (!token) {
      ranked.refuse(
          fmt::format("line {} is not a token in base 64 with the rank {}", rank + 1, rank));
    }
    ranked.add_token(std::move(*token));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++rank;
  }
  if (rank != kLlama3Ranks) {
    ranked.refuse(
        fmt::format("a rank file of {} tokens does not say how it splits texts; that of "
                    "Llama 3, {} tokens, is known; others are read as tokenizer.json",
                    rank, kLlama3Ranks));
  }
  for (std::size_t i = 0; i < kLlama3Special; ++i) {
    ranked.add_special(i < kLlama3Names.size() ? kLlama3Names[i]
                                               : fmt::format("<|reserved_special_token_{}|>",
                                                             i - kLlama3Names.size() + 2));
  }
  ranked.put_before_texts(kLlama3Names.front());
  return ranked.finish(kLlama3Pattern);
}

TokenizerFile parse_tekken_file(const Json& json, const std::string& origin) {
  RankedTokens ranked(origin, "tekken");
  const Json& config = json.at("config");
  const Json::Array& vocabulary = json.at("vocab").items();
  const std::int64_t count = config.at("default_vocab_size").integer();
  const std::int64_t special = config.at("default_num_special_tokens").integer();
  if (special < 0 || count <= special || count - special > std::ssize(vocabulary) ||
      special > std::ssize(vocabulary)) {
    ranked.refuse(fmt::format("{} tokens, {} of them special, do not come from {} tokens", count,
                              special, vocabulary.size()));
  }
  std::vector<std::string> names(kTekkenNames.begin(), kTekkenNames.end());
  const Json* listed = json.find("special_tokens");
  if (listed && listed->is_array()) {
    names.clear();
    for (const Json& token : listed->items()) {
      if (token.at("rank").integer() != std::ssize(names))
        ranked.refuse("its special tokens are not in the order of their ranks");
      names.push_back(token.at("token_str").text());
    }
  }
  for (std::int64_t i = 0; i < special; ++i) {
    ranked.add_special(i < std::ssize(names) ? names[static_cast<std::size_t>(i)]
                                             : fmt::format("<SPECIAL_{}>", i));
  }
  if (std::ranges::find(names, kTekkenBegin) <
      names.begin() + std::min(special, std::ssize(names))) {
    ranked.put_before_texts(kTekkenBegin);
  }
  for (std::int64_t i = 0; i < count - special; ++i) {
    const Json& entry = vocabulary[static_cast<std::size_t>(i)];
    std::optional<std::string> token = token_of_entry(entry, i);
    if (!token) {
      ranked.refuse(fmt::format("entry {} is not a token in base 64 with the rank {}", i + 1, i));
    }
    ranked.add_token(std::move(*token));
  }
  return ranked.finish(config.at("pattern").text());
}

}  // namespace trireme
