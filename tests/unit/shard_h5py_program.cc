// Writes text.txt, and shards of it under bytes/ and pieces/, into the folder it is given.
#include <fstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/prepare.h"

#include "support/sample_text.h"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  try {
    PrepareOptions options;
    options.inputs = {folder + "/text.txt"};
    std::ofstream(options.inputs[0], std::ios::binary) << testing::sample_text(300000, 11);
    options.tokenizer = parse_tokenizer_choice("bpe:400");
    options.output = folder + "/pieces";
    prepare(options);
    options.tokenizer = parse_tokenizer_choice("byte");
    options.output = folder + "/bytes";
    options.document_separator = "\n\n";
    options.validation = parse_validation_split("hash:0.3");
    prepare(options);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
  return 0;
}
