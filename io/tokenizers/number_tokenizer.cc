#include "io/tokenizers/number_tokenizer.h"

#include <charconv>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

bool is_sound(std::int64_t vocabulary, std::int64_t end_of_text) {
  return vocabulary >= 2 && vocabulary <= NumberTokenizer::kMostTokens && end_of_text >= 0 &&
         end_of_text < vocabulary;
}

}  // namespace

NumberTokenizer::NumberTokenizer(std::int32_t vocabulary, std::int32_t end_of_text)
    : model_(fmt::format("{} {}", vocabulary, end_of_text)) {
  TRIREME_CHECK(is_sound(vocabulary, end_of_text), "tokens without a vocabulary");
  set_vocabulary(std::vector<std::string>(static_cast<std::size_t>(vocabulary)), end_of_text, {});
}

NumberTokenizer::NumberTokenizer(std::string_view model) : model_(model) {
  std::int32_t vocabulary = 0, end_of_text = 0;
  const char* const end = model.data() + model.size();
  const auto first = std::from_chars(model.data(), end, vocabulary);
  const bool has_space = first.ptr != end && *first.ptr == ' ';
  const auto second = std::from_chars(has_space ? first.ptr + 1 : end, end, end_of_text);
  if (second.ec != std::errc() || second.ptr != end || !is_sound(vocabulary, end_of_text)) {
    throw DataError(
        fmt::format("the stored tokenizer: '{}' is no vocabulary and end of text", shown(model)));
  }
  set_vocabulary(std::vector<std::string>(static_cast<std::size_t>(vocabulary)), end_of_text, {});
}

std::string NumberTokenizer::description() const {
  return fmt::format("numbers, {} tokens", vocabulary());
}

void NumberTokenizer::add_tokens(std::string_view /*bytes*/, TextPart /*part*/,
                                 std::vector<std::int32_t>& /*tokens*/) const {
  throw DataError(
      "the tokens are numbers without a tokenizer; prepare --tokens with --tokenizer gives them "
      "one");
}

}  // namespace trireme
