// Cuts texts at the matches of a regular expression, as the pre-tokenizer Split of Hugging Face's
// tokenizers does.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

// Immutable; several threads may use one, each with a Matcher of its own.
class SplitPattern {
 public:
  enum class Kind { kRegex, kLiteral };

  // Throws DataError, which begins with `origin`, unless both Oniguruma (which others use) and
  // PCRE2 (which we use) read the pattern alike: categories of characters, classes, groups,
  // alternatives, repeats and looking ahead. Looking behind, anchors and matches of nothing are
  // refused, because a text must be cuttable at every match.
  SplitPattern(const std::string& pattern, Kind kind, const std::string& origin);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // What is searched for; empty: the pattern is a regular expression.
  std::string_view literal() const;
  // Whether a match could begin before `text` and end in it, where the character before `text` is
  // no white space.
  bool may_span(std::string_view text) const;

  struct Match {
    std::size_t begin, end;
  };

  // What one thread needs to search.
  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    // The first match from `start` on; {text.size(), text.size()} if there is none. With
    // `goes_on`, more text may follow: then also none if what follows may change the match. `text`
    // must be valid UTF-8. Throws DataError if the search takes too many steps.
    Match find(std::string_view text, std::size_t start, bool goes_on = false);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace trireme
