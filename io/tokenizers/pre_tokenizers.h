// The pre-tokenizers of a tokenizer.json: they divide a text into words, each of which is encoded
// by itself.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/tokenizers/normalizers.h"
#include "io/tokenizers/split_boundaries.h"
#include "io/tokenizers/split_pattern.h"

namespace trireme {

class PreTokenizers {
 public:
  // What becomes of a match, and of what is between matches: each is a part; or without matches; or
  // matches beside each other are one part; or a match joins what is before or after it.
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

  struct PatternSplit {
    SplitPattern pattern;
    Behavior behavior;
    bool is_inverted;  // what is between the matches is what is looked for
    // The bounds of matches at which parts always end.
    SplitBoundaries::Which divided_at() const;
  };
  struct ClassSplit {
    bool (*matches)(char32_t);
    Behavior behavior;
  };
  struct WordRuns {};  // runs of characters of words, and of others but white space
  struct Metaspace {
    enum class Prefix { kNever, kFirst, kAlways };
    std::string mark;  // one character
    Prefix prefix;
    bool splits;
  };
  struct PrefixSpace {};
  struct BertWords {};
  using Step = std::variant<PatternSplit, ClassSplit, WordRuns, Metaspace, PrefixSpace, BertWords>;

  PreTokenizers() = default;
  explicit PreTokenizers(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // Whether the beginning of a text is treated in another way than the rest.
  bool change_beginnings() const;
  bool has_bert_words() const;

  // The split by a regular expression that divides texts first: nothing is before it but classes of
  // characters or, where it merges no parts, a leading prefix, which no later step puts; null:
  // there is none.
  const PatternSplit* leading_split() const;
  bool has_leading_prefix() const;  // a space before a text without one
  // Where the last part begins of those that the steps before leading_split() make.
  std::size_t last_part(std::string_view text) const;

  // What a cut before white space does, where `before` and `after` are the sides in normal form:
  // the same words, the same but one that is cut in two there, or it is not known. The sides become
  // what words have there.
  enum class Cut { kUnknown, kInWord, kBetweenWords };
  Cut cut(std::string& before, std::string& after) const;

  // One thread's work.
  class Division {
   public:
    using OnWord = std::function<void(std::string_view)>;

    explicit Division(const PreTokenizers& pre_tokenizers);
    // Calls `on_word(word)` for the words in turn, which stay as long as the text and this.
    void divide(std::string_view text, TextPlace place, const OnWord& on_word);

   private:
    friend class PreTokenizers;
    void step(std::size_t level, std::string_view text, TextPlace place);
    void split_metaspace(const Metaspace& metaspace, std::size_t level, std::string_view text,
                         TextPlace place);

    const std::vector<Step>& steps_;
    std::size_t levels_;
    std::vector<std::optional<SplitPattern::Matcher>> matchers_;  // of the steps
    std::deque<std::string> texts_;
    const OnWord* on_word_ = nullptr;
  };

 private:
  std::size_t leading_level() const;  // the number of steps: there is none

  std::vector<Step> steps_;
};

}  // namespace trireme
