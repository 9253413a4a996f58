// tokenizer_program TOKENIZER TEXTS: prints the tokens of each text of a JSON array, a line for
// each, with spaces between them.
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/json.h"
#include "trireme/io/tokenizer.h"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 3) return 2;
  try {
    const TokenizerPtr tokenizer = load_tokenizer(argv[1]);
    std::ifstream file(argv[2], std::ios::binary);
    const std::string texts{std::istreambuf_iterator<char>(file), {}};
    const Json json = Json::parse(texts);
    for (const Json& text : json.items()) {
      fmt::print("{}\n", fmt::join(tokenizer->encode(text.text()), " "));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
