#include "io/tokenizers/tokenizer_file.h"

#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "io/tokenizers/rank_file.h"
#include "io/tokenizers/tokenizer_parts.h"

namespace trireme {
namespace {

class FileParser {
 public:
  explicit FileParser(const std::string& origin) : origin_(origin) {}

  TokenizerFile parse(std::string_view text) {
    bool is_tekken = origin_.ends_with("tekken.json");
    std::string_view part;  // that is read
    const auto reads = [&](std::string_view name) { return part = name; };
    try {
      const Json file = Json::parse_unique(text);
      const Json* model = file.find("model");
      is_tekken = is_tekken_file(file) || (is_tekken && !model);
      if (is_tekken) return parse_tekken_file(file, origin_);
      if (!model) file.at("model");  // throws
      reads("model");
      read_model(*model);
      reads("added_tokens");
      read_added(file);
      made_.normalizers = read_normalizers(given(file, reads("normalizer")), origin_);
      ReadPreTokenizers steps = read_pre_tokenizers(given(file, reads("pre_tokenizer")), origin_);
      made_.pre_tokenizers = std::move(steps.pre_tokenizers);
      made_.decoder = read_decoder(given(file, reads("decoder")), origin_);
      read_post_processor(given(file, reads("post_processor")));
      settle_bytes(steps.is_byte_level);
    } catch (const JsonError& error) {
      refuse(fmt::format("not a {} that is read: {}{}{}",
                         is_tekken ? "tekken.json" : "tokenizer.json", part,
                         part.empty() ? "" : ": ", shown(error.what())));
    }
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(fmt::format("{}: {}", origin_, why));
  }

  void require(bool holds, const std::string& part, std::string_view option) const {
    require_part(holds, part, option, origin_);
  }

  void read_model(const Json& model) {
    // Files from before there was `type` are of BPE, as far as we read them.
    const Json* type = given(model, "type");
    const std::string name = type ? type->text() : model.find("merges") ? "BPE" : "WordPiece";
    if (name == "Unigram") return read_unigram(model);
    if (name != "BPE" && name != "WordPiece") {
      refuse(fmt::format("the model {} is not supported; BPE, Unigram and WordPiece are",
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
    TokenizerFile::BytePairs pairs{};
    pairs.ignores_merges = flag(model, "ignore_merges", false);
    pairs.has_byte_fallback = flag(model, "byte_fallback", false);
    pairs.fuses_unknown = flag(model, "fuse_unk", false);
    const Json* unknown = given(model, "unk_token");
    if (unknown) pairs.unknown = token_of(unknown->text(), "its unk_token");
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

  void read_unigram(const Json& model) {
    TokenizerFile::UnigramPieces pieces{};
    const Json::Array& vocabulary = model.at("vocab").items();
    for (const Json& piece : vocabulary) {
      const std::string& text = piece.at(0).text();
      const double score = piece.at(1).number();
      if (!std::isfinite(score))
        refuse(fmt::format("the score of '{}' is not finite", shown(text)));
      if (tokens_.contains(text)) {
        refuse(fmt::format("the piece '{}' is listed twice", shown(text)));
      }
      add_token(text, std::ssize(pieces.scores));
      pieces.scores.push_back(score);
    }
    const Json* unknown = given(model, "unk_id");
    require(unknown != nullptr, "the model Unigram", "no unk_id");
    const std::int64_t id = unknown->integer();
    if (id < 0 || id >= std::ssize(pieces.scores)) refuse(fmt::format("its unk_id is {}", id));
    pieces.unknown = static_cast<std::int32_t>(id);
    pieces.has_byte_fallback = flag(model, "byte_fallback", false);
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
    made_.added.push_back({text, static_cast<std::int32_t>(token), flag(entry, "special", false),
                           flag(entry, "normalized", false), is_only_added,
                           flag(entry, "single_word", false), flag(entry, "lstrip", false),
                           flag(entry, "rstrip", false)});
  }

  // These add tokens around a text, or change where its tokens are said to be, but not the tokens.
  void read_post_processor(const Json* part) {
    if (!part) return;
    const std::string type = part->at("type").text();
    if (type == "Sequence") {
      for (const Json& item : part->at("processors").items()) read_post_processor(&item);
    } else if (type == "TemplateProcessing") {
      std::vector<std::string>* names = &made_.before;
      for (const Json& piece : part->at("single").items()) {
        const Json* special = piece.find("SpecialToken");
        if (!special) {  // the text
          names = &made_.after;
          continue;
        }
        const Json& known = part->at("special_tokens").at(special->at("id").text());
        for (const Json& id : known.at("ids").items()) names->push_back(put_around(id.integer()));
      }
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      made_.before.push_back(put_around(part->at("cls").at(1).integer()));
      made_.after.push_back(put_around(part->at("sep").at(1).integer()));
    } else if (type != "ByteLevel") {
      refuse(fmt::format("the post-processor {} is not supported", shown(type)));
    }
  }

  // The numbers that a post-processor has count, not the names that it gives them.
  const std::string& put_around(std::int64_t token) const {
    if (token >= 0 && token < std::ssize(made_.tokens)) {
      return made_.tokens[static_cast<std::size_t>(token)];
    }
    refuse(fmt::format("its post-processor puts the token {} around texts, which is none", token));
  }

  // Whether the model's words are bytes.
  void settle_bytes(bool is_byte_level) {
    if (auto* pairs = std::get_if<TokenizerFile::BytePairs>(&made_.model)) {
      pairs->is_byte_level = is_byte_level;
    } else if (is_byte_level) {
      const bool is_unigram = std::holds_alternative<TokenizerFile::UnigramPieces>(made_.model);
      refuse(fmt::format("the model {} with the pre-tokenizer ByteLevel is not supported",
                         is_unigram ? "Unigram" : "WordPiece"));
    }
  }

  const std::string& origin_;
  TokenizerFile made_;
  std::unordered_map<std::string, std::int32_t> tokens_;
  std::unordered_set<std::int64_t> added_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& origin) {
  if (is_tiktoken_file(text)) return parse_tiktoken_file(text, origin);
  return FileParser(origin).parse(text);
}

}  // namespace trireme
