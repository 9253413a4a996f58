#include "io/tokenizers/tokenizer_parts.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

// The pattern of ByteLevel itself, which GPT-2 has.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Each part of a text goes through all of them, one within the other.
constexpr std::size_t kMostSteps = 32;

class PartReader {
 public:
  explicit PartReader(const std::string& origin) : origin_(origin) {}

 protected:
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(fmt::format("{}: {}", origin_, why));
  }
  void require(bool holds, std::string_view part, std::string_view option) const {
    require_part(holds, part, option, origin_);
  }
  void expect_room(std::size_t count, std::string_view what) const {
    if (count == kMostSteps) refuse(fmt::format("more than {} {} are not supported", count, what));
  }
  static const std::string& type_of(const Json& part) { return part.at("type").text(); }

  // {"String": ...} or {"Regex": ...}
  SplitPattern pattern_of(const Json& part) const {
    const Json& pattern = part.at("pattern");
    const bool is_regex = pattern.find("Regex") != nullptr;
    return {pattern.at(is_regex ? "Regex" : "String").text(),
            is_regex ? SplitPattern::Kind::kRegex : SplitPattern::Kind::kLiteral, origin_};
  }

  // One character, as a text.
  const std::string& mark_of(const Json& part, std::string_view key) const {
    const std::string& mark = part.at(key).text();
    if (mark.empty() || utf8_length(mark) != mark.size()) {
      refuse(fmt::format("the {} of its {} is '{}', not one character", key, type_of(part),
                         shown(mark)));
    }
    return mark;
  }

  const std::string& origin_;
};

class NormalizerReader : PartReader {
 public:
  using PartReader::PartReader;

  Normalizers read(const Json* part) {
    if (part) add(*part);
    return Normalizers(std::move(steps_));
  }

 private:
  void add(const Json& part) {
    if (type_of(part) == "Sequence") {
      for (const Json& item : part.at("normalizers").items()) add(item);
      return;
    }
    expect_room(steps_.size(), "normalizers");
    steps_.push_back(step_of(part, type_of(part)));
  }

  Normalizers::Step step_of(const Json& part, const std::string& type) const {
    static constexpr std::array kForms = {
        std::pair("NFC", NormalForm::kNfc), std::pair("NFD", NormalForm::kNfd),
        std::pair("NFKC", NormalForm::kNfkc), std::pair("NFKD", NormalForm::kNfkd)};
    for (const auto& [name, form] : kForms) {
      if (type == name) return form;
    }
    if (type == "BertNormalizer") {
      const bool lowers_case = flag(part, "lowercase", true);
      return BertText{flag(part, "clean_text", true), flag(part, "handle_chinese_chars", true),
                      flag(part, "strip_accents", lowers_case), lowers_case};
    }
    if (type == "Lowercase") return Normalizers::Lowercase{};
    if (type == "StripAccents") return Normalizers::StripAccents{};
    if (type == "Strip") {
      return Normalizers::Strip{part.at("strip_left").boolean(), part.at("strip_right").boolean()};
    }
    if (type == "Prepend") return Normalizers::Prepend{part.at("prepend").text()};
    if (type == "Replace") {
      return Normalizers::Replace{pattern_of(part), part.at("content").text()};
    }
    if (type == "Precompiled") {
      return CharacterMap::from_base64(part.at("precompiled_charsmap").text(), origin_);
    }
    refuse(fmt::format("the normalizer {} is not supported", shown(type)));
  }

  std::vector<Normalizers::Step> steps_;
};

class PreTokenizerReader : PartReader {
 public:
  using PartReader::PartReader;

  ReadPreTokenizers read(const Json* part) {
    if (part) add(*part);
    return {PreTokenizers(std::move(steps_)), is_byte_level_};
  }

 private:
  void add(const Json& part) {
    const std::string& type = type_of(part);
    if (type == "Sequence") {
      for (const Json& item : part.at("pretokenizers").items()) add(item);
      return;
    }
    if (is_byte_level_) {
      refuse(fmt::format("the pre-tokenizer {} after ByteLevel is not supported", shown(type)));
    }
    if (type == "ByteLevel") {
      add_byte_level(part);
    } else {
      add_step(step_of(part, type));
    }
  }

  void add_step(PreTokenizers::Step step) {
    expect_room(steps_.size(), "pre-tokenizers");
    steps_.push_back(std::move(step));
  }

  void add_byte_level(const Json& part) {
    is_byte_level_ = true;
    if (flag(part, "add_prefix_space", true)) add_step(PreTokenizers::PrefixSpace{});
    if (flag(part, "use_regex", true)) {
      add_step(PreTokenizers::PatternSplit{
          SplitPattern(kByteLevelPattern, SplitPattern::Kind::kRegex, origin_),
          PreTokenizers::Behavior::kIsolated, false});
    }
  }

  PreTokenizers::Step step_of(const Json& part, const std::string& type) const {
    using Behavior = PreTokenizers::Behavior;
    if (type == "Split") {
      return PreTokenizers::PatternSplit{pattern_of(part), behavior_of(part),
                                         flag(part, "invert", false)};
    }
    if (type == "Digits") {
      const bool alone = flag(part, "individual_digits", false);
      return PreTokenizers::ClassSplit{is_numeric,
                                       alone ? Behavior::kIsolated : Behavior::kContiguous};
    }
    if (type == "Punctuation") {
      const bool has_behavior = given(part, "behavior") != nullptr;
      return PreTokenizers::ClassSplit{is_punctuation,
                                       has_behavior ? behavior_of(part) : Behavior::kIsolated};
    }
    if (type == "WhitespaceSplit") {
      return PreTokenizers::ClassSplit{is_white_space, Behavior::kRemoved};
    }
    if (type == "Whitespace") return PreTokenizers::WordRuns{};
    if (type == "BertPreTokenizer") return PreTokenizers::BertWords{};
    if (type == "Metaspace") return metaspace_of(part);
    refuse(fmt::format("the pre-tokenizer {} is not supported", shown(type)));
  }

  PreTokenizers::Metaspace metaspace_of(const Json& part) const {
    using Prefix = PreTokenizers::Metaspace::Prefix;
    const Json* scheme = given(part, "prepend_scheme");
    const std::string name = scheme ? scheme->text() : "always";
    require(name == "always" || name == "first" || name == "never", "the pre-tokenizer Metaspace",
            "prepend_scheme " + shown(name));
    const bool has_prefix = name != "never" && flag(part, "add_prefix_space", true);
    const Prefix prefix = !has_prefix       ? Prefix::kNever
                          : name == "first" ? Prefix::kFirst
                                            : Prefix::kAlways;
    return {mark_of(part, "replacement"), prefix, flag(part, "split", true)};
  }

  PreTokenizers::Behavior behavior_of(const Json& part) const {
    using Behavior = PreTokenizers::Behavior;
    static constexpr std::array kBehaviors = {
        std::pair("Isolated", Behavior::kIsolated), std::pair("Removed", Behavior::kRemoved),
        std::pair("Contiguous", Behavior::kContiguous),
        std::pair("MergedWithPrevious", Behavior::kMergedWithPrevious),
        std::pair("MergedWithNext", Behavior::kMergedWithNext)};
    const std::string& wanted = part.at("behavior").text();
    for (const auto& [name, behavior] : kBehaviors) {
      if (wanted == name) return behavior;
    }
    refuse(fmt::format("the pre-tokenizer {} with behavior {} is not supported", type_of(part),
                       shown(wanted)));
  }

  std::vector<PreTokenizers::Step> steps_;
  bool is_byte_level_ = false;
};

class DecoderReader : PartReader {
 public:
  using PartReader::PartReader;

  Decoder read(const Json* part) {
    if (part) add(*part);
    return {std::move(steps_), takes_space_};
  }

 private:
  void add(const Json& part) {
    const std::string& type = type_of(part);
    if (type == "Sequence") {
      for (const Json& item : part.at("decoders").items()) add(item);
    } else if (type == "Replace") {
      const Json& pattern = part.at("pattern");
      require(pattern.find("String") != nullptr, "the decoder Replace", "a regular expression");
      const std::string& text = pattern.at("String").text();
      if (text.empty()) refuse("its decoder Replace replaces nothing");
      steps_.emplace_back(Decoder::Replace{text, part.at("content").text()});
    } else if (type == "ByteFallback") {
      steps_.emplace_back(Decoder::ByteFallback{});
    } else if (type == "ByteLevel") {
      steps_.emplace_back(Decoder::ByteLevel{});
    } else if (type == "Metaspace") {
      const Json* scheme = given(part, "prepend_scheme");
      steps_.emplace_back(Decoder::Replace{mark_of(part, "replacement"), " "});
      takes_space_ = !(scheme && scheme->text() == "never") && flag(part, "add_prefix_space", true);
    } else if (type == "Strip") {
      add_strip(part);
    } else if (type != "Fuse" && type != "WordPiece") {  // what they do we do anyway
      refuse(fmt::format("the decoder {} is not supported", shown(type)));
    }
  }

  void add_strip(const Json& part) {
    const bool takes_one = part.at("start").integer() == 1 && part.at("stop").integer() == 0;
    require(part.at("content").text() == " " && takes_one, "the decoder Strip",
            "other than one space at the beginning");
    takes_space_ = true;
  }

  std::vector<Decoder::Step> steps_;
  bool takes_space_ = false;
};

}  // namespace

const Json* given(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  const bool may_be_long = value && (value->is_object() || value->is_array());
  return value && !may_be_long && value->dump() == "null" ? nullptr : value;
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = given(object, key);
  if (!value) return otherwise;
  try {
    return value->boolean();
  } catch (const JsonError& error) {
    throw JsonError(fmt::format("{}: {}", key, error.what()));
  }
}

void require_part(bool holds, std::string_view part, std::string_view option,
                  const std::string& origin) {
  if (!holds) throw DataError(fmt::format("{}: {} with {} is not supported", origin, part, option));
}

Normalizers read_normalizers(const Json* part, const std::string& origin) {
  return NormalizerReader(origin).read(part);
}

ReadPreTokenizers read_pre_tokenizers(const Json* part, const std::string& origin) {
  return PreTokenizerReader(origin).read(part);
}

Decoder read_decoder(const Json* part, const std::string& origin) {
  return DecoderReader(origin).read(part);
}

}  // namespace trireme
