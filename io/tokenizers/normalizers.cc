#include "io/tokenizers/normalizers.h"

#include <algorithm>

namespace trireme {
namespace {

std::string without_marks(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80 || !is_mark(c)) made += bytes;
  });
  return made;
}

std::string stripped(std::string_view text, const Normalizers::Strip& strip, TextPlace& place) {
  if (strip.left && place != TextPlace::kGoesOn) {
    const std::size_t before = text.size();
    while (!text.empty() && is_white_space(first_character(text))) {
      text.remove_prefix(utf8_length(text));
    }
    if (text.size() < before) place = TextPlace::kAfterToken;
  }
  while (strip.right && !text.empty()) {
    const std::size_t last = last_character_begin(text);
    if (!is_white_space(first_character(text.substr(last)))) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string replaced(std::string_view text, const Normalizers::Replace& replace, TextPlace& place) {
  SplitPattern::Matcher matcher(replace.pattern);
  std::string made;
  std::size_t start = 0;
  while (start < text.size()) {
    const auto match = matcher.find(text, start);
    made += text.substr(start, match.begin - start);
    if (match.begin == match.end) break;
    if (match.begin == 0 && place == TextPlace::kBegins &&
        (replace.content.empty() || match.end > utf8_length(text))) {
      place = TextPlace::kAfterToken;
    }
    made += replace.content;
    start = match.end;
  }
  return made;
}

// One step on one text.
struct Apply {
  std::string_view text;
  TextPlace& place;

  std::string operator()(NormalForm form) const { return normalised(text, form); }
  std::string operator()(const BertText& bert) const { return bert_text(text, bert); }
  std::string operator()(Normalizers::Lowercase) const { return in_lower_case(text); }
  std::string operator()(Normalizers::StripAccents) const { return without_marks(text); }
  std::string operator()(const Normalizers::Strip& strip) const {
    return stripped(text, strip, place);
  }
  std::string operator()(const Normalizers::Prepend& prepend) const {
    const bool is_added = !text.empty() && place != TextPlace::kGoesOn;
    std::string made = is_added ? prepend.text : std::string();
    return made += text;
  }
  std::string operator()(const Normalizers::Replace& replace) const {
    return replaced(text, replace, place);
  }
  std::string operator()(const CharacterMap& map) const { return map.apply(text); }
};

// Whether a step takes the first character of a text away, as Strip and Replace say themselves.
// What follows then begins no text any more. (After Precompiled it does: the tokenizers package
// forgets what that takes from the very beginning.)
bool takes_first(const Normalizers::Step& step, std::string_view text) {
  const bool may_take = std::holds_alternative<BertText>(step) ||
                        std::holds_alternative<Normalizers::StripAccents>(step);
  if (!may_take || text.empty()) return false;
  TextPlace place = TextPlace::kGoesOn;
  return std::visit(Apply{text.substr(0, utf8_length(text)), place}, step).empty();
}

}  // namespace

Normalizers::Normalizers(std::vector<Step> steps) : steps_(std::move(steps)) {
  allow_parts_ = std::ranges::all_of(steps_, [](const Step& step) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      const std::string_view literal = replace->pattern.literal();
      const std::string_view content = replace->content;
      return !literal.empty() && utf8_length(literal) == literal.size() &&
             (is_ascii(content.substr(0, 1)) || content.starts_with(kSpaceMark)) &&
             !content.empty();
    }
    return !std::holds_alternative<Strip>(step) && !std::holds_alternative<CharacterMap>(step);
  });
}

bool Normalizers::change_beginnings() const {
  return std::ranges::any_of(steps_, [](const Step& step) {
    const auto* strip = std::get_if<Strip>(&step);
    return std::holds_alternative<Prepend>(step) || (strip && strip->left);
  });
}

bool Normalizers::keep_spaces() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    return std::holds_alternative<NormalForm>(step) || std::holds_alternative<BertText>(step) ||
           std::holds_alternative<Lowercase>(step) || std::holds_alternative<StripAccents>(step);
  });
}

std::string Normalizers::apply(std::string_view text, TextPlace& place) const {
  std::string made(text);
  for (const Step& step : steps_) {
    if (place == TextPlace::kBegins && takes_first(step, made)) place = TextPlace::kAfterToken;
    made = std::visit(Apply{made, place}, step);
  }
  return made;
}

// Normal forms leave ASCII as it is.
bool Normalizers::leave(std::string_view text) const {
  const bool are_forms = std::ranges::all_of(
      steps_, [](const Step& step) { return std::holds_alternative<NormalForm>(step); });
  return steps_.empty() || (are_forms && is_ascii(text));
}

bool Normalizers::normalise_sides(std::string& before, std::string& after) const {
  TextPlace place = TextPlace::kGoesOn;
  for (const Step& step : steps_) {
    if (before.empty() || after.empty()) return false;
    if (std::holds_alternative<Strip>(step)) continue;
    if (const auto* replace = std::get_if<Replace>(&step)) {
      if (replace->pattern.may_span(after)) return false;
    }
    before = std::visit(Apply{before, place}, step);
    after = std::visit(Apply{after, place}, step);
    if (!after.empty() && is_mark(first_character(after))) return false;
  }
  if (before.empty() || after.empty()) return false;
  return !is_white_space(first_character(before.substr(last_character_begin(before))));
}

}  // namespace trireme
