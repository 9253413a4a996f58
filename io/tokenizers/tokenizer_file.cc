#include "io/tokenizers/tokenizer_file.h"

#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

// The pattern of ByteLevel itself, which GPT-2 has.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Each part of a text goes through all of them, one within the other.
constexpr std::size_t kMostSplits = 32;
constexpr std::size_t kMostNormalizers = 32;

// Members that a file may leave out, or have as null.
const Json* given(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  const bool may_be_long = value && (value->is_object() || value->is_array());
  return value && !may_be_long && value->dump() == "null" ? nullptr : value;
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = given(object, key);
  return value ? value->boolean() : otherwise;
}

class FileParser {
 public:
  explicit FileParser(const std::string& origin) : origin_(origin) {}

  TokenizerFile parse(std::string_view text) {
    try {
      const Json file = Json::parse_unique(text);
      read_model(file.at("model"));
      read_added(file);
      read_normalizer(given(file, "normalizer"));
      read_pre_tokenizer(given(file, "pre_tokenizer"));
      check_post_processor(given(file, "post_processor"));
      check_pieces();
    } catch (const JsonError& error) {
      refuse(fmt::format("not a tokenizer.json that is read: {}", shown(error.what())));
    }
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(fmt::format("{}: {}", origin_, why));
  }

  // Refuses a part of which `value` is not what we do.
  void require(bool holds, const std::string& part, std::string_view option) const {
    if (!holds) refuse(fmt::format("{} with {} is not supported", part, option));
  }

  static std::string type_of(const Json& part) { return part.at("type").text(); }

  void read_model(const Json& model) {
    // Files from before there was `type` are of BPE, as far as we read them.
    const Json* type = given(model, "type");
    const std::string name = type ? type->text() : model.find("merges") ? "BPE" : "WordPiece";
    if (name != "BPE" && name != "WordPiece") {
      refuse(fmt::format("the model {} is not supported; byte-level BPE and WordPiece are",
                         shown(name)));
    }
    read_vocabulary(model.at("vocab"));
    if (name == "BPE") {
      read_byte_pairs(model);
    } else {
      read_word_pieces(model);
    }
  }

  void read_vocabulary(const Json& vocabulary) {
    const Json::Object& members = vocabulary.members();
    tokens_.reserve(members.size());
    for (const Json::Member& member : members) add_token(member.key, member.value.integer());
  }

  void add_token(const std::string& text, std::int64_t token) {
    if (token < 0 || token >= std::numeric_limits<std::int32_t>::max()) {
      refuse(fmt::format("the token '{}' has the number {}", shown(text), token));
    }
    tokens_.emplace(text, static_cast<std::int32_t>(token));
  }

  std::int32_t token_of(const std::string& text, std::string_view what) const {
    const auto found = tokens_.find(text);
    if (found == tokens_.end()) {
      refuse(fmt::format("{} '{}' is no token of its vocabulary", what, shown(text)));
    }
    return found->second;
  }

  void read_byte_pairs(const Json& model) {
    const auto is_empty = [&](std::string_view key) {
      const Json* value = given(model, key);
      return !value || value->text().empty();
    };
    const Json* dropout = given(model, "dropout");
    require(!dropout || dropout->number() == 0.0, "the model BPE", "dropout");
    require(is_empty("continuing_subword_prefix"), "the model BPE", "continuing_subword_prefix");
    require(is_empty("end_of_word_suffix"), "the model BPE", "end_of_word_suffix");
    require(!flag(model, "byte_fallback", false), "the model BPE", "byte_fallback");
    TokenizerFile::BytePairs pairs;
    pairs.ignores_merges = flag(model, "ignore_merges", false);
    const Json::Array& merges = model.at("merges").items();
    pairs.merges.reserve(merges.size());
    pairs.merged.reserve(merges.size());
    for (const Json& merge : merges) {
      const auto [left, right] = merge_of(merge);
      pairs.merges.emplace_back(token_of(left, "a merge of"), token_of(right, "a merge of"));
      pairs.merged.push_back(token_of(left + right, "a merge makes"));
    }
    made_.model = std::move(pairs);
  }

  // "a b", or ["a", "b"].
  std::pair<std::string, std::string> merge_of(const Json& merge) const {
    if (merge.is_array()) {
      if (merge.items().size() != 2) refuse("a merge is not of two tokens");
      return {merge.at(0).text(), merge.at(1).text()};
    }
    const std::string& text = merge.text();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      refuse(fmt::format("the merge '{}' is not of two tokens", shown(text)));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_word_pieces(const Json& model) {
    TokenizerFile::WordPieces pieces;
    pieces.prefix = model.at("continuing_subword_prefix").text();
    pieces.most_characters = model.at("max_input_chars_per_word").integer();
    if (pieces.prefix.empty()) refuse("its continuing_subword_prefix is empty");
    pieces.unknown = token_of(model.at("unk_token").text(), "its unk_token");
    made_.model = std::move(pieces);
  }

  // The tokens by their numbers, when all are known.
  void read_added(const Json& file) {
    if (const Json* added = given(file, "added_tokens")) {
      for (const Json& token : added->items()) read_added_token(token);
    }
    made_.tokens.resize(tokens_.size());
    std::vector<bool> is_given(tokens_.size());
    for (const auto& [text, token] : tokens_) {
      const auto index = static_cast<std::size_t>(token);
      if (index >= tokens_.size()) {
        refuse(fmt::format("its {} tokens leave out numbers: '{}' is {}", tokens_.size(),
                           shown(text), token));
      }
      if (is_given[index]) {
        refuse(fmt::format("the number {} is that of two tokens: '{}' and '{}'", token,
                           shown(made_.tokens[index]), shown(text)));
      }
      is_given[index] = true;
      made_.tokens[index] = text;
    }
  }

  void read_added_token(const Json& entry) {
    const std::string& text = entry.at("content").text();
    const std::int64_t token = entry.at("id").integer();
    if (text.empty()) refuse("an added token is empty");
    const bool is_only_added = !tokens_.contains(text);
    add_token(text, token);
    if (tokens_.at(text) != token) {
      refuse(fmt::format("the token '{}' has two numbers: {} and {}", shown(text), tokens_.at(text),
                         token));
    }
    if (!added_.insert(token).second) {
      refuse(fmt::format("the added token '{}' is listed twice", shown(text)));
    }
    TokenizerFile::AddedToken added = {text, static_cast<std::int32_t>(token),
                                       flag(entry, "special", false),
                                       flag(entry, "normalized", false), is_only_added};
    // Special tokens are not looked for in texts.
    if (!added.is_special) {
      for (const char* option : {"single_word", "lstrip", "rstrip"}) {
        require(!flag(entry, option, false), fmt::format("the added token '{}'", shown(text)),
                option);
      }
    }
    made_.added.push_back(std::move(added));
  }

  void read_normalizer(const Json* part) {
    if (!part) return;
    read_known_normalizer(*part);
    if (made_.normalizers.size() > kMostNormalizers) {
      refuse(fmt::format("more than {} normalizers are not supported", kMostNormalizers));
    }
  }

  void read_known_normalizer(const Json& part) {
    static constexpr std::array kForms = {
        std::pair("NFC", NormalForm::kNfc), std::pair("NFD", NormalForm::kNfd),
        std::pair("NFKC", NormalForm::kNfkc), std::pair("NFKD", NormalForm::kNfkd)};
    const std::string type = type_of(part);
    for (const auto& [name, form] : kForms) {
      if (type == name) {
        made_.normalizers.emplace_back(form);
        return;
      }
    }
    if (type == "Sequence") {
      for (const Json& item : part.at("normalizers").items()) read_normalizer(&item);
    } else if (type == "BertNormalizer") {
      const bool lowers_case = flag(part, "lowercase", true);
      made_.normalizers.emplace_back(TokenizerFile::BertText{
          flag(part, "clean_text", true), flag(part, "handle_chinese_chars", true),
          flag(part, "strip_accents", lowers_case), lowers_case});
    } else {
      refuse(fmt::format("the normalizer {} is not supported", shown(type)));
    }
  }

  void read_pre_tokenizer(const Json* part) {
    if (!part) return;
    const std::string type = type_of(*part);
    if (type == "Sequence") {
      for (const Json& item : part->at("pretokenizers").items()) read_pre_tokenizer(&item);
      return;
    }
    if (type != "Split" && type != "ByteLevel" && type != "BertPreTokenizer") {
      refuse(fmt::format("the pre-tokenizer {} is not supported", shown(type)));
    }
    if (is_byte_level_ || is_bert_) {
      refuse(fmt::format("the pre-tokenizer {} after {} is not supported", type,
                         is_bert_ ? "BertPreTokenizer" : "ByteLevel"));
    }
    if (type == "Split") {
      read_split(*part);
    } else if (type == "ByteLevel") {
      require(!flag(*part, "add_prefix_space", true), "the pre-tokenizer ByteLevel",
              "add_prefix_space");
      if (flag(*part, "use_regex", true)) {
        made_.splits.emplace_back(kByteLevelPattern, SplitPattern::Kind::kRegex, origin_);
      }
      is_byte_level_ = true;
    } else {
      is_bert_ = true;
    }
  }

  void read_split(const Json& part) {
    const std::string& behavior = part.at("behavior").text();
    if (made_.splits.size() == kMostSplits) {
      refuse(fmt::format("more than {} pre-tokenizers Split are not supported", kMostSplits));
    }
    require(behavior == "Isolated", "the pre-tokenizer Split", "behavior " + shown(behavior));
    require(!flag(part, "invert", false), "the pre-tokenizer Split", "invert");
    const Json& pattern = part.at("pattern");
    const bool is_regex = pattern.find("Regex") != nullptr;
    made_.splits.emplace_back(pattern.at(is_regex ? "Regex" : "String").text(),
                              is_regex ? SplitPattern::Kind::kRegex : SplitPattern::Kind::kLiteral,
                              origin_);
  }

  // These add tokens around a text, or change where its tokens are said to be, but not the tokens.
  void check_post_processor(const Json* part) const {
    if (!part) return;
    const std::string type = type_of(*part);
    if (type == "Sequence") {
      for (const Json& item : part->at("processors").items()) check_post_processor(&item);
    } else if (type != "ByteLevel" && type != "TemplateProcessing" && type != "BertProcessing" &&
               type != "RobertaProcessing") {
      refuse(fmt::format("the post-processor {} is not supported", shown(type)));
    }
  }

  // Checks that there is what belongs together.
  void check_pieces() const {
    const bool is_byte_pairs = std::holds_alternative<TokenizerFile::BytePairs>(made_.model);
    if (is_byte_pairs && !is_byte_level_) {
      refuse("the model BPE without the pre-tokenizer ByteLevel is not supported");
    }
    if (!is_byte_pairs && (!is_bert_ || !made_.splits.empty())) {
      refuse("the model WordPiece is supported with the pre-tokenizer BertPreTokenizer alone");
    }
    for (const TokenizerFile::AddedToken& token : made_.added) {
      if (!token.is_special && token.is_normalized && !made_.normalizers.empty()) {
        refuse(
            fmt::format("the added token '{}' with normalized is not supported beside a "
                        "normalizer",
                        shown(token.text)));
      }
    }
  }

  const std::string& origin_;
  TokenizerFile made_;
  std::unordered_map<std::string, std::int32_t> tokens_;
  std::unordered_set<std::int64_t> added_;
  bool is_byte_level_ = false, is_bert_ = false;
};

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& origin) {
  return FileParser(origin).parse(text);
}

}  // namespace trireme
