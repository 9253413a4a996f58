// A tokenizer over a SentencePiece model as parts of a tokenizer.json.
//
// Models of others keep their marks for spaces, and their normalizer becomes one that does the
// same. Where our own are used without loss, a mark in a text is none, so their pieces are written
// with spaces: then nothing needs a normalizer.
#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/printable.h"

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/merge_list.h"
#include "io/tokenizers/sentencepiece_file.h"
#include "io/tokenizers/sentencepiece_tokenizer.h"
#include "io/tokenizers/unicode_text.h"
#include "io/tokenizers/written_tokenizer.h"

namespace trireme {
namespace {

using Model = SentencePieceFile::Model;
using Type = SentencePieceFile::Type;

Json replace(const char* kind, std::string_view pattern, std::string_view content) {
  return Json::object(
      {{"type", "Replace"}, {"pattern", Json::object({{kind, pattern}})}, {"content", content}});
}

bool is_one_character(std::string_view text) {
  return utf8_length(text) == text.size();
}

class Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer)
      : file_(parse_sentencepiece_file(tokenizer.model())),
        is_exact_(is_exact_sentencepiece(tokenizer.kind())),
        is_unigram_(file_.model == Model::kUnigram),
        space_(is_exact_ ? kSpaceMark : " ") {
    check_model();
    const Decoder spaces({Decoder::Replace{std::string(kSpaceMark), std::string(space_)}}, false);
    for (const auto& piece : file_.pieces) texts_.push_back(spaces.bytes_of(piece.text));
    check_pieces();
    check_characters();
  }

  WrittenTokenizer write() const {
    WrittenTokenizer made;
    made.model = is_unigram_ ? unigram() : byte_pairs();
    made.normalizer = normalizer();
    made.pre_tokenizer = pre_tokenizer();
    made.decoder = decoder();
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const auto token = static_cast<std::int32_t>(i);
      if (is(i, Type::kControl) || is(i, Type::kUnknown)) made.add_special(texts_[i], token);
      if (is(i, Type::kUserDefined) && !is_unigram_) made.add_text(texts_[i], token);
    }
    return made;
  }

 private:
  bool is(std::size_t token, Type type) const { return file_.pieces[token].type == type; }
  // Texts are cut into these.
  bool is_text(std::size_t token) const {
    return is(token, Type::kNormal) || is(token, Type::kUserDefined);
  }

  void check_model() const {
    if (!file_.map.empty()) {
      refuse_to_write(
          fmt::format("its SentencePiece model changes characters ({}), which "
                      "tokenizers do in another way",
                      shown(file_.normalizer)));
    }
    const auto is_byte = [](const SentencePieceFile::Piece& piece) {
      return piece.type == Type::kByte;
    };
    if (std::ranges::none_of(file_.pieces, is_byte)) {
      refuse_to_write(
          "its SentencePiece model has no byte pieces, so unknown text becomes other tokens there");
    }
    if (file_.model == Model::kWord) refuse_to_write("its SentencePiece model is of words");
    if (!is_exact_ && (file_.has_prefix || file_.strips)) {
      refuse_to_write("its SentencePiece model is used without the normalisation that it asks for");
    }
    if (file_.strips && !file_.has_prefix) {
      refuse_to_write(
          "its SentencePiece model has remove_extra_whitespaces without add_dummy_prefix");
    }
  }

  void check_pieces() const {
    std::unordered_map<std::string_view, std::size_t> known;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const std::string_view text = texts_[i], piece = file_.pieces[i].text;
      const auto refuse = [&](std::string_view why) {
        refuse_to_write(fmt::format("its piece '{}' {}", shown(piece), why));
      };
      for (std::size_t at = 0; at < text.size(); at += utf8_length(text.substr(at))) {
        if (utf8_length(text.substr(at)) == 0) refuse("is not UTF-8");
      }
      if (!known.emplace(text, i).second) refuse("is there twice");
      if (is(i, Type::kUnused)) refuse("is marked as unused");
      if (piece.find(' ') != std::string_view::npos) refuse("has a space");
      if (!is_text(i)) continue;
      if (named_byte(text) >= 0) refuse("is named like a byte");
      if (!is_exact_ && text.size() > 1 && text.find('\n') != std::string_view::npos) {
        refuse("has a newline");
      }
      if (is(i, Type::kUserDefined) && !is_unigram_ && file_.has_prefix) {
        refuse("is user-defined in a BPE with add_dummy_prefix");
      }
    }
  }

  // Where a character is in longer pieces, but none itself, SentencePiece finds tokens that others
  // do not.
  void check_characters() {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (is_text(i) && is_one_character(texts_[i])) characters_.insert(texts_[i]);
    }
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (!is_text(i) || (is(i, Type::kUserDefined) && !is_unigram_)) continue;
      for_each_character(texts_[i], [&](char32_t, std::string_view character) {
        if (characters_.contains(character)) return;
        refuse_to_write(fmt::format("its piece '{}' has the character '{}', which is no piece",
                                    shown(texts_[i]), shown(character)));
      });
    }
  }

  Json byte_pairs() const {
    Json::Object vocabulary;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      vocabulary.push_back({texts_[i], static_cast<std::int64_t>(i)});
    }
    return Json::object({{"type", "BPE"},
                         {"dropout", {}},
                         {"unk_token", texts_[unknown()]},
                         {"continuing_subword_prefix", {}},
                         {"end_of_word_suffix", {}},
                         {"fuse_unk", true},
                         {"byte_fallback", true},
                         {"ignore_merges", false},
                         {"vocab", Json::object(std::move(vocabulary))},
                         {"merges", merges()}});
  }

  Json merges() const {
    std::vector<std::size_t> ranked;
    std::unordered_set<std::string_view> parts;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (!is(i, Type::kNormal) || file_.model == Model::kCharacter) continue;
      parts.insert(texts_[i]);
      if (!is_one_character(texts_[i])) ranked.push_back(i);
    }
    // Runs of spaces may have the same score. Since the leftmost merge comes first, a run grows
    // from the left, so what makes the longest comes first.
    std::ranges::sort(ranked, std::greater(), [&](std::size_t token) {
      return std::pair(file_.pieces[token].score, texts_[token].size());
    });
    std::vector<std::string_view> tokens;
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      tokens.push_back(texts_[ranked[i]]);
      if (i == 0 || file_.pieces[ranked[i]].score != file_.pieces[ranked[i - 1]].score) continue;
      if (is_run_of_spaces(tokens[i - 1]) && is_run_of_spaces(tokens[i])) continue;
      refuse_to_write(fmt::format("its pieces '{}' and '{}' have the same score",
                                  shown(tokens[i - 1]), shown(tokens[i])));
    }
    return merge_list(tokens, parts);
  }

  // Theirs takes all pieces for text, also bytes, control pieces and the unknown one. The score of
  // these is so low that their characters are always better. That makes unknown characters worse
  // still, which changes nothing: no piece has such a character (check_characters), so all ways to
  // cut a text have the same of them.
  Json unigram() const {
    double least = -1.0;
    float greatest = std::numeric_limits<float>::min();  // SentencePiece begins with this, too
    std::size_t longest = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      longest = std::max(longest, texts_[i].size());
      if (is(i, Type::kNormal)) greatest = std::max(greatest, file_.pieces[i].score);
    }
    std::vector<double> scores;
    for (const SentencePieceFile::Piece& piece : file_.pieces) {
      const bool is_own = piece.type == Type::kUserDefined;  // SentencePiece gives it this score
      scores.push_back(is_own ? static_cast<float>(piece.text.size()) * greatest - 0.1
                              : static_cast<double>(piece.score));
      if (is_own || piece.type == Type::kNormal) least = std::min(least, scores.back());
    }
    Json pieces = Json::array();
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const double lowest = least * static_cast<double>(longest + 1);
      pieces.push_back(Json::array({texts_[i], is_text(i) ? scores[i] : lowest}));
    }
    return Json::object({{"type", "Unigram"},
                         {"unk_id", static_cast<std::int64_t>(unknown())},
                         {"vocab", std::move(pieces)},
                         {"byte_fallback", true}});
  }

  Json normalizer() const {
    if (!is_exact_) return {};
    Json steps = Json::array();
    if (file_.has_prefix) {
      steps.push_back(part_of("Prepend", "prepend", file_.strips ? " " : kSpaceMark));
    }
    if (file_.strips) steps.push_back(replace("Regex", " {2,}", " "));
    steps.push_back(replace("String", " ", kSpaceMark));
    // Those at the end of the text.
    if (file_.strips) {
      steps.push_back(replace("Regex", fmt::format("{}+(?!\\s|\\S)", kSpaceMark), ""));
    }
    return sequence_of("normalizers", std::move(steps));
  }

  // Words are only cut apart where no piece goes across: their scores are then added up exactly.
  Json pre_tokenizer() const {
    Json steps = Json::array();
    if (!has_piece_across_words()) {
      steps.push_back(split_at(fmt::format("{0}*[^{0}]+|{0}+", space_)));
    }
    const std::string unknown = is_unigram_ ? unknown_in_names() : "";
    if (!unknown.empty()) steps.push_back(split_at(unknown));
    return sequence_of("pretokenizers", std::move(steps));
  }

  bool has_piece_across_words() const {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      std::string_view text = texts_[i];
      while (text.starts_with(space_)) text.remove_prefix(space_.size());
      const bool is_cut_out = is(i, Type::kUserDefined) && !is_unigram_;
      if (is_text(i) && !is_cut_out && text.find(space_) != std::string_view::npos) return true;
    }
    return false;
  }

  // Finds characters of names that a text must not be cut into. A name without such a character is
  // never better than its characters.
  std::string unknown_in_names() const {
    std::set<std::string_view> found;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (is_text(i)) continue;
      if (is_one_character(texts_[i])) {
        refuse_to_write(fmt::format("'{}' is special, but one character", shown(texts_[i])));
      }
      for_each_character(texts_[i], [&](char32_t, std::string_view character) {
        if (!characters_.contains(character)) found.insert(character);
      });
    }
    std::string regex;
    for (const std::string_view character : found) {
      if (!regex.empty()) regex += '|';
      const bool is_sign = std::string_view("\\^$.|?*+()[]{}").find(character) != std::string::npos;
      if (is_sign) regex += '\\';
      regex += character;
    }
    return regex;
  }

  Json decoder() const {
    Json steps = Json::array();
    if (is_exact_) steps.push_back(replace("String", kSpaceMark, " "));
    steps.push_back(Json::object({{"type", "ByteFallback"}}));
    steps.push_back(Json::object({{"type", "Fuse"}}));
    if (is_exact_ && file_.has_prefix) {
      steps.push_back(
          Json::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
    }
    return sequence_of("decoders", std::move(steps));
  }

  bool is_run_of_spaces(std::string_view text) const {
    while (text.starts_with(space_)) text.remove_prefix(space_.size());
    return text.empty();
  }

  std::size_t unknown() const {
    std::size_t found = 0;
    while (found + 1 < texts_.size() && !is(found, Type::kUnknown)) ++found;
    return found;
  }

  SentencePieceFile file_;
  bool is_exact_, is_unigram_;
  std::string_view space_;                           // as pieces have it
  std::vector<std::string> texts_;                   // of pieces, as they are written
  std::unordered_set<std::string_view> characters_;  // that are pieces
};

}  // namespace

WrittenTokenizer written_pieces(const Tokenizer& tokenizer) {
  return Writer(tokenizer).write();
}

}  // namespace trireme
