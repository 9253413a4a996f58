#include <charconv>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/io/prepare.h"

#include "io/tokenizers/number_tokenizer.h"

namespace trireme {
namespace {

template <class T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

ValidationSplit parse_validation_split(const std::string& text) {
  ValidationSplit split;
  const std::string_view view = text;
  if (text == "none") return split;
  for (const auto& [prefix, rule] :
       {std::pair(std::string_view("hash:"), ValidationSplit::Rule::kHash),
        std::pair(std::string_view("class:"), ValidationSplit::Rule::kClass)}) {
    if (view.starts_with(prefix) && parse_all(view.substr(prefix.size()), split.fraction) &&
        split.fraction > 0.0 && split.fraction < 1.0) {
      split.rule = rule;
      return split;
    }
  }
  if (view.starts_with("tail:")) {
    const std::int64_t bytes = read_size(view.substr(5)).value_or(0);
    if (bytes > 0) {
      return {.rule = ValidationSplit::Rule::kTail, .bytes = static_cast<std::uint64_t>(bytes)};
    }
  }
  throw ConfigError(
      fmt::format("--validation {}: write hash:0.01 to hold out 1 % of the documents, or "
                  "tail:1000000 for the last 1000000 bytes; with --images class:0.1 for 10 % of "
                  "each class; or none",
                  shown(text)));
}

TokenizerChoice parse_tokenizer_choice(const std::string& text, const DocumentTokens& around) {
  TokenizerChoice choice;
  const bool is_made_here =
      text == "byte" || text.starts_with("bpe:") || text.starts_with("unigram:");
  if (is_made_here && !around.end_of_text.empty()) {
    throw ConfigError(fmt::format(
        "--end-of-text is for a tokenizer.json; the tokenizer {} has its own end of text",
        shown(text)));
  }
  if (is_made_here && !around.begin_of_text.empty() && around.begin_of_text != "none") {
    throw ConfigError(
        fmt::format("--begin-of-text is for a tokenizer that others made; {} has no begin of text",
                    shown(text)));
  }
  if (text == "byte") return choice;
  const std::string_view view = text;
  for (const auto& [prefix, algorithm] :
       {std::pair(std::string_view("bpe:"), SentencePieceTraining::Algorithm::kBpe),
        std::pair(std::string_view("unigram:"), SentencePieceTraining::Algorithm::kUnigram)}) {
    if (!view.starts_with(prefix)) continue;
    choice.kind = TokenizerChoice::Kind::kTrain;
    choice.training.algorithm = algorithm;
    if (!parse_all(view.substr(prefix.size()), choice.training.vocabulary) ||
        choice.training.vocabulary <= 0) {
      throw ConfigError(
          fmt::format("tokenizer '{}': expected a vocabulary, as in {}4096", shown(text), prefix));
    }
    // Checked here, before prepare() makes a folder.
    if (choice.training.vocabulary < kSmallestSentencePieceVocabulary) {
      throw ConfigError(fmt::format("tokenizer '{}': a vocabulary needs at least {} tokens",
                                    shown(text), kSmallestSentencePieceVocabulary));
    }
    return choice;
  }
  if (!look_ahead(text, ExitStatus::kUsage).is_there()) {
    throw ConfigError(
        fmt::format("tokenizer '{}': there is no such file; expected byte, bpe:VOCABULARY, "
                    "unigram:VOCABULARY, a "
                    "SentencePiece model file, a tokenizer.json, or a folder that holds one",
                    shown(text)));
  }
  choice.kind = TokenizerChoice::Kind::kLoad;
  choice.path = text;
  choice.around = around;
  return choice;
}

TokenizerChoice parse_numbers_choice(std::int64_t vocabulary, const DocumentTokens& around) {
  const std::string &end_of_text = around.end_of_text, &begin_of_text = around.begin_of_text;
  constexpr std::int64_t kMost = NumberTokenizer::kMostTokens;
  TokenizerChoice choice;
  choice.kind = TokenizerChoice::Kind::kNumbers;
  if (vocabulary < 2 || vocabulary > kMost || !parse_all(end_of_text, choice.end_token) ||
      choice.end_token < 0 || choice.end_token >= vocabulary) {
    throw ConfigError(fmt::format(
        "--vocabulary {} --end-of-text {}: expected 2 to {} tokens, and the number of one of them",
        vocabulary, shown(end_of_text), kMost));
  }
  choice.vocabulary = static_cast<std::int32_t>(vocabulary);
  if (begin_of_text.empty() || begin_of_text == "none") return choice;
  std::int32_t begin = 0;
  if (!parse_all(begin_of_text, begin) || begin < 0 || begin >= vocabulary) {
    throw ConfigError(
        fmt::format("--begin-of-text {}: with --vocabulary {} expected the number of a token below "
                    "it, or none",
                    shown(begin_of_text), vocabulary));
  }
  choice.begin_token = begin;
  return choice;
}

std::string words_of(const LeftOut& left_out) {
  std::vector<std::string> words;
  const auto add = [&](std::int64_t count, const char* what, const std::string& first = "") {
    if (count == 0) return;
    words.push_back(counted(count, what));
    if (first.empty()) return;
    words.back() += fmt::format(" ({}{})", count > 1 ? "the first: " : "", shown(first, 400));
  };
  add(left_out.hidden, "hidden file");
  add(left_out.links, "link");
  add(left_out.pipes, "pipe");
  add(left_out.binary, "binary file", left_out.first_binary);
  add(left_out.lacking, "other file", left_out.first_lacking);
  return fmt::format("{}", fmt::join(words, ", "));
}

RecordFields parse_record_fields(const std::string& text) {
  RecordFields fields;
  fields.given = true;
  fields.names = split_list(text);
  if (text == "none") fields.names.clear();
  for (const std::string& name : fields.names) {
    if (!name.empty()) continue;
    throw ConfigError(fmt::format(
        "--field {}: write the name of a field, as in text, meta.body or title,text; or none",
        shown(text)));
  }
  if (std::set<std::string>(fields.names.begin(), fields.names.end()).size() !=
      fields.names.size()) {
    throw ConfigError(fmt::format("--field {}: names a field twice", shown(text)));
  }
  return fields;
}

}  // namespace trireme
