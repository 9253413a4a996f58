// hugging_face_files_program TOKENIZER TEXTS FOLDER: writes a tokenizer as Hugging Face's files to
// FOLDER, and prints the tokens of each text of a JSON array and what they decode to, as JSON.
// Texts begin with their end of text. TOKENIZER is a file, `byte`, `bpe:TEXT` or `unigram:TEXT`,
// which are learned from a text, or a folder whose files come with the tokenizer. Where these say
// that texts begin with a token, none does. A reader of these files that gives other tokens or
// other bytes ends the program.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/json.h"
#include "trireme/io/tokenizer_files.h"

namespace {

using namespace trireme;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TokenizerPtr tokenizer_of(const std::string& name) {
  using Algorithm = SentencePieceTraining::Algorithm;
  if (name == "byte") return make_byte_tokenizer();
  const bool is_unigram = name.starts_with("unigram:");
  if (!is_unigram && !name.starts_with("bpe:")) return load_tokenizer(name);
  return train_sentencepiece(contents(name.substr(name.find(':') + 1)),
                             {is_unigram ? Algorithm::kUnigram : Algorithm::kBpe, 1500});
}

// Equally good cuts of Unigram may differ: what tokens stand for is what counts there.
bool differ(const Tokenizer& ours, const Tokenizer& read, const std::string& text) {
  std::vector<std::int32_t> made = ours.encode(text), again = read.encode(text);
  if (made == again) return false;
  const bool is_equal = ours.decode(made) == read.decode(again);
  std::ranges::sort(made);
  std::ranges::sort(again);
  return !is_equal || made != again;
}

// A normalizer takes stray bytes for ends of texts, and may strip spaces there, so `may_stray`.
void check(const Tokenizer& ours, const Tokenizer& read, const Json& texts, bool may_stray) {
  if (read.vocabulary() != ours.vocabulary() || read.end_of_text() != ours.end_of_text() ||
      read.begin_of_text() != ours.begin_of_text()) {
    throw std::runtime_error("other tokens");
  }
  for (std::int32_t token = 0; token < ours.vocabulary(); ++token) {
    if (ours.bytes_of(token) == read.bytes_of(token)) continue;
    throw std::runtime_error(
        fmt::format("token {}: '{}', not '{}'", token, read.bytes_of(token), ours.bytes_of(token)));
  }
  for (const Json& text : texts.items()) {
    std::string strayed = text.text();  // with bytes that are not UTF-8
    for (std::size_t at = 50; at < strayed.size(); at += 150) strayed.insert(at, 1, '\xff');
    for (const std::string& whole : {text.text(), may_stray ? strayed : text.text()}) {
      if (!differ(ours, read, whole)) continue;
      throw std::runtime_error(fmt::format("other tokens when read again: {}\n{}\n{}", whole,
                                           fmt::join(ours.encode(whole), " "),
                                           fmt::join(read.encode(whole), " ")));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const Json texts = Json::parse(contents(argv[2]));
    TokenizerFiles given;
    if (std::filesystem::is_directory(argv[1])) given = tokenizer_files_in(argv[1]).files;
    const TokenizerPtr made = given.tokenizer ? given.tokenizer : tokenizer_of(argv[1]);
    const bool is_begun = given.tokenizer && made->begin_of_text();
    const TokenizerPtr tokenizer = make_tokenizer(
        made->kind(), made->model(), is_begun ? std::nullopt : std::optional(made->end_of_text()));
    given.tokenizer = tokenizer;
    const auto files = files_for_others(given, 1024).files;
    std::filesystem::create_directories(argv[3]);
    for (const auto& [name, contents] : files) {
      std::ofstream(std::filesystem::path(argv[3]) / name, std::ios::binary) << contents;
    }
    const TokenizerPtr read = load_tokenizer(argv[3]);
    const bool may_stray =
        files.at("tokenizer.json").find(R"("normalizer":null)") != std::string::npos;
    check(*tokenizer, *read, texts, may_stray);
    Json printed = Json::array();
    for (const Json& text : texts.items()) {
      const std::vector<std::int32_t> tokens = tokenizer->encode(text.text());
      Json numbers = Json::array();
      for (const std::int32_t token : tokens) numbers.push_back(token);
      printed.push_back(Json::array({std::move(numbers), tokenizer->decode(tokens)}));
    }
    fmt::print("{}\n", printed.dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
