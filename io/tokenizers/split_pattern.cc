#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/tokenizers/split_pattern.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <pcre2.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

template <auto free>
struct FreedBy {
  void operator()(auto* object) const { free(object); }
};
using CodePtr = std::unique_ptr<pcre2_code, FreedBy<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, FreedBy<pcre2_match_data_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, FreedBy<pcre2_match_context_free>>;
using CompileContextPtr =
    std::unique_ptr<pcre2_compile_context, FreedBy<pcre2_compile_context_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, FreedBy<pcre2_jit_stack_free>>;

constexpr std::size_t kMostPatternBytes = 16384;
constexpr std::uint32_t kMostSteps = 10'000'000;
constexpr std::size_t kMostStackBytes = std::size_t{16} << 20;

template <class Pointer>
Pointer made(Pointer pointer) {
  if (!pointer) throw OutOfMemoryError("out of memory for a regular expression");
  return pointer;
}

// Whether Oniguruma and PCRE2 read what is in `(?i:` and `)` alike: words of ASCII and classes of
// its letters, without a pair of letters to which Oniguruma takes a single character for equal
// (U+00DF for ss).
bool folds_alike(std::string_view group) {
  static constexpr std::array<std::string_view, 5> kPairs = {"ss", "ff", "fi", "fl", "st"};
  bool in_class = false;
  std::string pair = "  ";
  for (const char c : group) {
    const char lower = static_cast<char>(c | 0x20);
    const bool is_letter = lower >= 'a' && lower <= 'z' && (c & 0x80) == 0;
    if (!is_letter && std::string_view("'|[]").find(c) == std::string_view::npos) return false;
    if (c == '[' || c == ']') in_class = c == '[';
    pair = {pair[1], is_letter && !in_class ? lower : ' '};
    if (std::ranges::find(kPairs, pair) != kPairs.end()) return false;
  }
  return true;
}

// Reads a pattern of Oniguruma, and writes it for PCRE2.
class Dialect {
 public:
  explicit Dialect(std::string_view pattern) : pattern_(pattern), left_(pattern) {}

  // Returns what the two may read differently, or nothing.
  std::string first_difference() {
    while (!left_.empty()) {
      const std::size_t begin = pattern_.size() - left_.size();
      instead_ = {};
      std::string found = in_class_ ? next_in_class() : next();
      if (!found.empty()) return found;
      const std::size_t end = pattern_.size() - left_.size();
      written_ += instead_.empty() ? pattern_.substr(begin, end - begin) : instead_;
    }
    return {};
  }

  // What was read, as PCRE2 reads it.
  const std::string& written() const { return written_; }

 private:
  bool take(std::string_view text) {
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }

  std::string next() {
    if (left_.front() == '\\') return escape();
    for (const std::string_view refused : {"^", "$", "(*", "{,"}) {
      if (left_.starts_with(refused)) return std::string(refused);
    }
    if (take("[")) {
      in_class_ = true;
      take("^");
      return left_.starts_with("]") ? "[]" : "";
    }
    if (take("(?")) {
      for (const std::string_view known : {":", "=", "!", ">"}) {
        if (take(known)) return {};
      }
      if (take("i:")) {
        const std::string_view group = left_.substr(0, left_.find(')'));
        return folds_alike(group) ? "" : fmt::format("(?i:{}", group);
      }
      return fmt::format("(?{}", left_.substr(0, 1));
    }
    // An interval's suffix means one thing to one of them, another to the other.
    if (take("}"))
      return left_.starts_with("?") || left_.starts_with("+")
                 ? fmt::format("}}{}", left_.substr(0, 1))
                 : "";
    left_.remove_prefix(1);
    return {};
  }

  std::string next_in_class() {
    if (left_.front() == '\\') return escape();
    for (const std::string_view refused : {"[", "&&"}) {
      if (left_.starts_with(refused)) return fmt::format("{} in a class", refused);
    }
    if (left_.front() == ']') in_class_ = false;
    left_.remove_prefix(1);
    return {};
  }

  // A category of characters, white space, digits, a control character, or a character by itself.
  std::string escape() {
    left_.remove_prefix(1);
    if (left_.empty()) return "\\";
    const char letter = left_.front();
    left_.remove_prefix(1);
    if (letter == 'p' || letter == 'P') return category(letter);
    const bool is_word = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                         (letter >= '0' && letter <= '9');
    if (letter == 's' || (letter == 'S' && !in_class_)) {
      instead_ = in_class_ ? kSpaces : letter == 's' ? kSpace : kNoSpace;
      return {};
    }
    if (!is_word || std::string_view("dDrntf").find(letter) != std::string_view::npos) return {};
    return fmt::format("\\{}{}", letter, in_class_ ? " in a class" : "");
  }

  std::string category(char letter) {
    static constexpr std::array<std::string_view, 36> kCategories = {
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
        "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
        "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"};
    const std::size_t end = left_.find('}');
    if (left_.starts_with("{") && end != std::string_view::npos) {
      const std::string_view name = left_.substr(1, end - 1);
      for (const std::string_view known : kCategories) {
        if (name == known) {
          left_.remove_prefix(end + 1);
          return {};
        }
      }
    }
    return fmt::format("\\{}{}", letter,
                       left_.substr(0, end == std::string_view::npos ? 1 : end + 1));
  }

  // PCRE2's \s has U+180E besides, which is white space no more. In a class, it begins and ends
  // with a category, so that a hyphen beside it is refused as it is beside \s.
  static constexpr std::string_view kSpaces = R"(\p{Z}\t-\r\x{85}\p{Z})",
                                    kSpace = R"([\p{Z}\t-\r\x{85}])",
                                    kNoSpace = R"([^\p{Z}\t-\r\x{85}])";

  std::string_view pattern_, left_;
  std::string_view instead_;  // of what is read at the moment; empty: nothing else
  std::string written_;
  bool in_class_ = false;
};

// Whether a regular expression is made of white space and repeats alone.
bool has_only_spaces(std::string_view pattern) {
  while (!pattern.empty()) {
    const std::size_t end = pattern.front() == '{' ? pattern.find('}') : 0;
    const bool is_repeat =
        end != 0 && end != std::string_view::npos &&
        pattern.substr(1, end - 1).find_first_not_of("0123456789,") == std::string_view::npos;
    std::size_t length = is_repeat ? end + 1 : 0;
    for (const std::string_view known :
         {"\\s", "\\n", "\\r", "\\t", " ", "\n", "\t", "+", "*", "?", "|", "[", "]"}) {
      if (length == 0 && pattern.starts_with(known)) length = known.size();
    }
    if (length == 0) return false;
    pattern.remove_prefix(length);
  }
  return true;
}

std::uint32_t pattern_fact(const pcre2_code* code, std::uint32_t which) {
  std::uint32_t value = 0;
  pcre2_pattern_info(code, which, &value);
  return value;
}

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct SplitPattern::Code {
  CodePtr code;
  std::string shown_pattern;
  std::string literal;
  bool matches_only_spaces = false;
  bool has_jit = false;
};

SplitPattern::SplitPattern(const std::string& pattern, Kind kind, const std::string& origin)
    : code_(std::make_unique<Code>()) {
  code_->shown_pattern = shown(pattern);
  const auto refuse = [&](const std::string& why) {
    throw DataError(
        fmt::format("{}: the split pattern '{}' {}", origin, code_->shown_pattern, why));
  };
  if (pattern.size() > kMostPatternBytes) {
    refuse(fmt::format("has {} bytes; at most {} are read", pattern.size(), kMostPatternBytes));
  }
  std::string compiled = pattern;
  if (kind == Kind::kLiteral) code_->literal = pattern;
  code_->matches_only_spaces = kind == Kind::kRegex && has_only_spaces(pattern);
  if (kind == Kind::kRegex) {
    Dialect dialect(pattern);
    const std::string difference = dialect.first_difference();
    if (!difference.empty()) refuse(fmt::format("has '{}', which is not read", shown(difference)));
    compiled = dialect.written();
  }
  const CompileContextPtr context = made(CompileContextPtr(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::uint32_t options =
      PCRE2_UTF | (kind == Kind::kLiteral ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(compiled.data()), compiled.size(),
                                  options, &error, &at, context.get()));
  if (!code_->code) {
    refuse(fmt::format("is no regular expression: at byte {} of '{}', {}", at, shown(compiled),
                       pcre2_message(error)));
  }
  const pcre2_code* code = code_->code.get();
  if (pattern_fact(code, PCRE2_INFO_MATCHEMPTY) != 0) refuse("matches nothing at all as well");
  if (pattern_fact(code, PCRE2_INFO_MAXLOOKBEHIND) != 0) refuse("looks behind, which is not read");
  // Without it, as on processors that it does not know, matching is slower and gives the same.
  code_->has_jit =
      pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

std::string_view SplitPattern::literal() const {
  return code_->literal;
}

bool SplitPattern::may_span(std::string_view text) const {
  const std::string_view literal = code_->literal;
  if (literal.empty()) return !code_->matches_only_spaces;
  const std::size_t first = utf8_length(literal);
  return literal.find(text.substr(0, utf8_length(text)), first) != std::string_view::npos;
}

struct SplitPattern::Matcher::State {
  const Code* code;
  MatchDataPtr data;
  MatchContextPtr context;
  JitStackPtr stack;  // only where the machine's stack was too small
};

SplitPattern::Matcher::Matcher(const SplitPattern& pattern) : state_(std::make_unique<State>()) {
  state_->code = pattern.code_.get();
  state_->data = made(MatchDataPtr(pcre2_match_data_create(1, nullptr)));
  state_->context = made(MatchContextPtr(pcre2_match_context_create(nullptr)));
  pcre2_set_match_limit(state_->context.get(), kMostSteps);
}

SplitPattern::Matcher::~Matcher() = default;
SplitPattern::Matcher::Matcher(Matcher&&) noexcept = default;

SplitPattern::Match SplitPattern::Matcher::find(std::string_view text, std::size_t start,
                                                bool goes_on) {
  State& state = *state_;
  const auto search = [&] {
    const std::uint32_t partial = goes_on ? PCRE2_PARTIAL_HARD : 0;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    if (state.code->has_jit) {
      return pcre2_jit_match(state.code->code.get(), subject, text.size(), start, partial,
                             state.data.get(), state.context.get());
    }
    return pcre2_match(state.code->code.get(), subject, text.size(), start,
                       partial | PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
  };
  int result = search();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !state.stack) {
    state.stack = made(JitStackPtr(pcre2_jit_stack_create(65536, kMostStackBytes, nullptr)));
    pcre2_jit_stack_assign(state.context.get(), nullptr, state.stack.get());
    result = search();
  }
  if (result >= 0) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
    return {bounds[0], bounds[1]};
  }
  if (result == PCRE2_ERROR_NOMATCH || result == PCRE2_ERROR_PARTIAL) {
    return {text.size(), text.size()};
  }
  throw DataError(
      fmt::format("the split pattern '{}' of the tokenizer takes too long on the text '{}': {}",
                  state.code->shown_pattern, shown(text.substr(start, 60)), pcre2_message(result)));
}

}  // namespace trireme
