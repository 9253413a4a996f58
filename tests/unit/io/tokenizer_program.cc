// tokenizer_program TOKENIZER TEXTS [END]: prints the tokens of each text of a JSON array, a line
// for each, with spaces between them, and then a tab and what they are decoded to, as JSON. Each
// text is encoded in pieces, too, cut at places of several distances: a text whose tokens differ
// then ends the program, and a last line says how often texts were cut.
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/json.h"
#include "trireme/io/tokenizer.h"

namespace {

using namespace trireme;

std::vector<std::int32_t> in_pieces(const Tokenizer& tokenizer, std::string_view text,
                                    std::size_t window, std::size_t& cuts) {
  std::vector<std::int32_t> tokens;
  TextPart part = TextPart::kBegins;
  for (std::size_t size = window; text.size() > size;) {
    const std::size_t end = tokenizer.cut(text.substr(0, size));
    if (end == 0) {
      size *= 2;
      continue;
    }
    tokenizer.encode(text.substr(0, end), tokens, part);
    part = TextPart::kGoesOn;
    text.remove_prefix(end);
    size = window;
    ++cuts;
  }
  tokenizer.encode(text, tokens, part);
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return 2;
  try {
    const TokenizerPtr tokenizer =
        load_tokenizer(argv[1], {.end_of_text = argc == 4 ? argv[3] : ""});
    std::ifstream file(argv[2], std::ios::binary);
    const std::string texts{std::istreambuf_iterator<char>(file), {}};
    const Json json = Json::parse(texts);
    std::size_t cuts = 0, window = 40;
    for (const Json& text : json.items()) {
      const std::vector<std::int32_t> tokens = tokenizer->encode(text.text());
      fmt::print("{}\t{}\n", fmt::join(tokens, " "), Json(tokenizer->decode(tokens)).dump());
      window = window * 7 % 997 + 40;
      std::string strayed = text.text();  // with bytes that are not UTF-8
      for (std::size_t at = 50; at < strayed.size(); at += 150) strayed.insert(at, 1, '\xff');
      for (const std::string& whole : {text.text(), strayed}) {
        if (in_pieces(*tokenizer, whole, window, cuts) == tokenizer->encode(whole)) continue;
        fmt::print(stderr, "other tokens in pieces of {}: {}\n", window, whole);
        return 1;
      }
    }
    fmt::print("{} cuts\n", cuts);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
