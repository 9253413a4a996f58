#include "io/tokenizers/pre_tokenizers.h"

#include <algorithm>

namespace trireme {
namespace {

using Behavior = PreTokenizers::Behavior;

// Joins parts as a behaviour wants it, and passes them on.
template <class OnPart>
class PartMerger {
 public:
  PartMerger(Behavior behavior, OnPart on_part) : behavior_(behavior), on_part_(on_part) {}

  void add(std::size_t begin, std::size_t end, bool is_match) {
    if (begin == end || (is_match && behavior_ == Behavior::kRemoved)) return;
    if (behavior_ == Behavior::kIsolated || behavior_ == Behavior::kRemoved) {
      on_part_(begin, end);
      return;
    }
    const bool joins = behavior_ == Behavior::kContiguous           ? is_match == last_is_match_
                       : behavior_ == Behavior::kMergedWithPrevious ? is_match && !last_is_match_
                                                                    : !is_match && last_is_match_;
    if (end_ > begin_ && joins) {
      end_ = end;
    } else {
      finish();
      begin_ = begin;
      end_ = end;
    }
    last_is_match_ = is_match;
  }

  void finish() {
    if (end_ > begin_) on_part_(begin_, end_);
    begin_ = end_;
  }

 private:
  Behavior behavior_;
  OnPart on_part_;
  std::size_t begin_ = 0, end_ = 0;  // what may go on
  bool last_is_match_ = false;
};

// Calls `on_part(begin, end, class)` for runs of characters that have the same class.
template <class ClassOf, class OnPart>
void divide_runs(std::string_view text, ClassOf class_of, OnPart on_part) {
  std::size_t begin = 0, at = 0;
  int last = -1;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const int own = class_of(c);
    if (own != last && at > begin) {
      on_part(begin, at, last);
      begin = at;
    }
    last = own;
    at += bytes.size();
  });
  if (at > begin) on_part(begin, at, last);
}

constexpr int kSpaceClass = 0;

int run_class(char32_t c) {
  return is_white_space(c) ? kSpaceClass : is_word_character(c) ? 1 : 2;
}

std::string with_marks(std::string_view text, std::string_view mark) {
  std::string made;
  made.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      made += mark;
    } else {
      made += c;
    }
  }
  return made;
}

bool divides_always(Behavior behavior) {
  return behavior == Behavior::kIsolated || behavior == Behavior::kRemoved;
}

bool puts_prefix(const PreTokenizers::Step& step) {
  using Metaspace = PreTokenizers::Metaspace;
  const auto* metaspace = std::get_if<Metaspace>(&step);
  return std::holds_alternative<PreTokenizers::PrefixSpace>(step) ||
         (metaspace && metaspace->prefix != Metaspace::Prefix::kNever);
}

// What is known of a cut while the steps are gone through.
class CutSides {
 public:
  CutSides(std::string& before, std::string& after) : before_(before), after_(after) {}

  PreTokenizers::Cut result() const {
    if (!is_known_) return PreTokenizers::Cut::kUnknown;
    return is_divided_ ? PreTokenizers::Cut::kBetweenWords : PreTokenizers::Cut::kInWord;
  }

  void operator()(const PreTokenizers::PatternSplit& split) {
    if (is_divided_) return;
    may_be_divided_ = true;
    if (split.pattern.literal().empty() || split.pattern.may_span(after_)) {
      is_known_ = false;
      return;
    }
    if (split.is_inverted || !after_.starts_with(split.pattern.literal())) return;
    if (divides_always(split.behavior) || split.behavior == Behavior::kMergedWithNext) divide();
    if (split.behavior == Behavior::kRemoved) is_gone_ = true;
  }
  void operator()(const PreTokenizers::ClassSplit& split) {
    const bool matches = split.matches(first_after());
    if (matches || split.matches(last_before())) may_be_divided_ = true;
    if (matches && split.behavior == Behavior::kRemoved) drop();
  }
  void operator()(PreTokenizers::WordRuns) {
    const int after = run_class(first_after());
    if (after == kSpaceClass) drop();
    if (after != run_class(last_before())) divide();
  }
  void operator()(PreTokenizers::BertWords) {
    if (is_white_space(first_after())) drop();
    if (is_punctuation(first_after()) || is_punctuation(last_before())) divide();
  }
  void operator()(const PreTokenizers::Metaspace& metaspace) {
    before_ = with_marks(before_, metaspace.mark);
    after_ = with_marks(after_, metaspace.mark);
    const bool has_mark = after_.starts_with(metaspace.mark);
    if (metaspace.prefix == PreTokenizers::Metaspace::Prefix::kAlways) expect_prefix(has_mark);
    if (metaspace.splits && has_mark) divide();
  }
  void operator()(PreTokenizers::PrefixSpace) { expect_prefix(after_.starts_with(' ')); }

 private:
  char32_t first_after() const { return first_character(after_); }
  char32_t last_before() const {
    return first_character(std::string_view(before_).substr(last_character_begin(before_)));
  }
  void divide() { is_divided_ = true; }
  void drop() { is_divided_ = is_gone_ = true; }
  // A part that begins at the cut gets a prefix, but the text that goes on there does not.
  void expect_prefix(bool has_prefix) {
    if ((is_divided_ || may_be_divided_) && !is_gone_ && !has_prefix) is_known_ = false;
  }

  std::string &before_, &after_;
  bool is_known_ = true;
  bool is_divided_ = false, may_be_divided_ = false;
  bool is_gone_ = false;  // the white space is in no word
};

}  // namespace

bool PreTokenizers::change_beginnings() const {
  return std::ranges::any_of(steps_, puts_prefix);
}

bool PreTokenizers::has_bert_words() const {
  return steps_.size() == 1 && std::holds_alternative<BertWords>(steps_.front());
}

bool PreTokenizers::has_leading_prefix() const {
  return !steps_.empty() && std::holds_alternative<PrefixSpace>(steps_.front());
}

std::size_t PreTokenizers::leading_level() const {
  std::size_t level = has_leading_prefix() ? 1 : 0;
  while (level < steps_.size() && !has_leading_prefix() &&
         std::holds_alternative<ClassSplit>(steps_[level])) {
    ++level;
  }
  if (level == steps_.size()) return level;
  const auto* split = std::get_if<PatternSplit>(&steps_[level]);
  // PreTokenizers::cut() knows what becomes of a literal that is merged.
  const bool is_regex = split && split->pattern.literal().empty();
  const bool divides =
      split && (divides_always(split->behavior) || (is_regex && !has_leading_prefix()));
  return divides && std::none_of(steps_.begin() + static_cast<std::ptrdiff_t>(level), steps_.end(),
                                 puts_prefix)
             ? level
             : steps_.size();
}

const PreTokenizers::PatternSplit* PreTokenizers::leading_split() const {
  const std::size_t level = leading_level();
  return level == steps_.size() ? nullptr : &std::get<PatternSplit>(steps_[level]);
}

// A match that is merged with what is before it ends a part, whatever follows.
SplitBoundaries::Which PreTokenizers::PatternSplit::divided_at() const {
  using Which = SplitBoundaries::Which;
  if (divides_always(behavior)) return Which::kAll;
  if (behavior == Behavior::kContiguous) return Which::kClasses;
  return (behavior == Behavior::kMergedWithPrevious) != is_inverted ? Which::kEnds : Which::kBegins;
}

std::size_t PreTokenizers::last_part(std::string_view text) const {
  std::size_t begin = 0;
  Division division(*this);
  division.levels_ = leading_level();
  if (division.levels_ == 0) return 0;
  division.divide(text, TextPlace::kGoesOn, [&](std::string_view part) {
    begin = static_cast<std::size_t>(part.data() - text.data());
  });
  return begin;
}

PreTokenizers::Cut PreTokenizers::cut(std::string& before, std::string& after) const {
  CutSides sides(before, after);
  for (const Step& step : steps_) std::visit(sides, step);
  return sides.result();
}

PreTokenizers::Division::Division(const PreTokenizers& pre_tokenizers)
    : steps_(pre_tokenizers.steps_), levels_(steps_.size()) {
  for (const Step& step : steps_) {
    auto& matcher = matchers_.emplace_back();
    if (const auto* split = std::get_if<PatternSplit>(&step)) matcher.emplace(split->pattern);
  }
}

void PreTokenizers::Division::divide(std::string_view text, TextPlace place,
                                     const OnWord& on_word) {
  on_word_ = &on_word;
  if (!text.empty()) step(0, text, place);
}

void PreTokenizers::Division::step(std::size_t level, std::string_view text, TextPlace place) {
  if (level == levels_) {
    (*on_word_)(text);
    return;
  }
  const auto pass = [&](std::size_t begin, std::size_t end) {
    step(level + 1, text.substr(begin, end - begin), begin == 0 ? place : TextPlace::kAfterToken);
  };
  const Step& own = steps_[level];
  if (const auto* split = std::get_if<PatternSplit>(&own)) {
    PartMerger merger(split->behavior, pass);
    for (std::size_t start = 0; start < text.size();) {
      const auto match = matchers_[level]->find(text, start);
      merger.add(start, match.begin, split->is_inverted);
      merger.add(match.begin, match.end, !split->is_inverted);
      start = match.end;
    }
    merger.finish();
  } else if (const auto* classes = std::get_if<ClassSplit>(&own)) {
    PartMerger merger(classes->behavior, pass);
    const auto class_of = [&](char32_t c) { return classes->matches(c) ? 1 : 0; };
    divide_runs(text, class_of, [&](std::size_t begin, std::size_t end, int is_match) {
      if (is_match == 0) return merger.add(begin, end, false);
      for (std::size_t at = begin; at < end;) {  // each character is a match
        const std::size_t length = utf8_length(text.substr(at));
        merger.add(at, at + length, true);
        at += length;
      }
    });
    merger.finish();
  } else if (std::holds_alternative<WordRuns>(own)) {
    divide_runs(text, run_class, [&](std::size_t begin, std::size_t end, int run) {
      if (run != kSpaceClass) pass(begin, end);
    });
  } else if (const auto* metaspace = std::get_if<Metaspace>(&own)) {
    split_metaspace(*metaspace, level, text, place);
  } else if (std::holds_alternative<PrefixSpace>(own)) {
    const bool is_added = place != TextPlace::kGoesOn && text.front() != ' ';
    step(level + 1, is_added ? texts_.emplace_back(" ").append(text) : text, place);
  } else {
    for (const std::string_view word : bert_words(text)) {
      step(level + 1, word, word.data() == text.data() ? place : TextPlace::kAfterToken);
    }
  }
}

void PreTokenizers::Division::split_metaspace(const Metaspace& metaspace, std::size_t level,
                                              std::string_view text, TextPlace place) {
  using Prefix = Metaspace::Prefix;
  const std::string_view mark = metaspace.mark;
  std::string& made = texts_.emplace_back(with_marks(text, mark));
  const bool gets_prefix = (metaspace.prefix == Prefix::kAlways && place != TextPlace::kGoesOn) ||
                           (metaspace.prefix == Prefix::kFirst && place == TextPlace::kBegins);
  if (gets_prefix && !made.starts_with(mark)) made.insert(0, mark);
  const std::string_view whole = made;
  if (!metaspace.splits) return step(level + 1, whole, place);
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = std::min(whole.find(mark, begin + 1), whole.size());
    step(level + 1, whole.substr(begin, end - begin), begin == 0 ? place : TextPlace::kAfterToken);
    begin = end;
  }
}

}  // namespace trireme
