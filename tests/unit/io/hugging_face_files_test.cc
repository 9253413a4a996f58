// A tokenizer that is written as Hugging Face's files gives the same tokens when it is read again.
// hugging_face_files_pypi_test compares them with those of PyPI's `tokenizers`.
#include "trireme/io/hugging_face_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/utf8.h"

#include "support/sample_text.h"

namespace trireme {
namespace {

using Algorithm = SentencePieceTraining::Algorithm;

const TokenizerPtr& trained(Algorithm algorithm) {
  static const std::string text = testing::sample_text(100000, 1);
  static const TokenizerPtr bpe = train_sentencepiece(text, {Algorithm::kBpe, 500});
  static const TokenizerPtr unigram = train_sentencepiece(text, {Algorithm::kUnigram, 400});
  return algorithm == Algorithm::kBpe ? bpe : unigram;
}

std::string written(const Tokenizer& tokenizer) {
  return hugging_face_files(tokenizer, 512).at("tokenizer.json");
}

std::string refusal(const Tokenizer& tokenizer) {
  try {
    written(tokenizer);
  } catch (const DataError& error) {
    return error.what();
  }
  return "written";
}

// Begins and ends of words, spaces of all kinds, names of tokens, characters that are unknown, and
// what is not UTF-8.
std::vector<std::string> texts() {
  std::vector<std::string> all = {
      "",
      " ",
      "\n",
      "  two  spaces  \n\n\r\n \t ",
      "<|endoftext|><unk></s><0x41> <0x0A>0x41>",
      "a literal \u2581 \u2581\u2581mark\u2581",
      "caf\xc3\xa9 caf\xc3 \xff\xfe \xe2\x96 \xf0\x9f\x98\x80",
      std::string("\0a\0\0b", 5),
      testing::sample_text(20000, 9),
  };
  std::mt19937 random(4);
  const std::string_view characters = "aeiostn  \n.,'<>0x";
  for (int i = 0; i < 300; ++i) {
    std::string& text = all.emplace_back();
    for (int k = 0; k < i % 50; ++k) text += characters[random() % characters.size()];
  }
  return all;
}

bool is_utf8(std::string_view text) {
  while (utf8_length(text) > 0) text.remove_prefix(utf8_length(text));
  return text.empty();
}

void expect_same(const Tokenizer& ours, bool takes_any_bytes = true) {
  const std::string file = written(ours);
  const TokenizerPtr read = make_tokenizer("huggingface", file);
  ASSERT_EQ(read->vocabulary(), ours.vocabulary());
  EXPECT_EQ(read->end_of_text(), ours.end_of_text());
  for (const auto& [name, token] : ours.special_tokens()) {
    EXPECT_EQ(read->special_token(name), token) << name;
  }
  for (std::int32_t token = 0; token < ours.vocabulary(); ++token) {
    EXPECT_EQ(read->bytes_of(token), ours.bytes_of(token)) << token;
  }
  for (const std::string& text : texts()) {
    if (!takes_any_bytes && !is_utf8(text)) continue;
    EXPECT_EQ(read->encode(text), ours.encode(text)) << ours.description() << ": " << text;
    EXPECT_EQ(read->decode(read->encode(text)), ours.decode(ours.encode(text)));
  }
}

TEST(HuggingFaceFiles, HaveTheTokensOfOurOwn) {
  expect_same(*make_byte_tokenizer());
  expect_same(*trained(Algorithm::kBpe));
  expect_same(*trained(Algorithm::kUnigram));
}

// NormalizerSpec: add_dummy_prefix, remove_extra_whitespaces. A normalizer of theirs takes stray
// bytes for ends of texts, so those that strip spaces do it there, too.
TEST(HuggingFaceFiles, HaveTheTokensOfModelsThatNormalise) {
  for (const Algorithm algorithm : {Algorithm::kBpe, Algorithm::kUnigram}) {
    for (const std::string_view prefix : {"\x18\x01", "\x18\x02"}) {
      const std::string strips = prefix[1] == 1 ? std::string("\x20\x00", 2) : "\x20\x01";
      const std::string model = trained(algorithm)->model() + "\x1a\x04\x18\x01" + strips;
      expect_same(*make_tokenizer("sentencepiece:exact", model), prefix[1] == 1);
    }
  }
}

TEST(HuggingFaceFiles, HaveTheTokensOfRankFiles) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string entries;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    entries += fmt::format(R"({{"rank":{},"token_bytes":"{}{}=="}},)", byte, kDigits[byte >> 2],
                           kDigits[(byte & 3) << 4]);
  }
  // ab, aba, ba, aa, aaa
  int rank = 256;
  for (const char* token : {"YWI=", "YWJh", "YmE=", "YWE=", "YWFh"}) {
    entries += fmt::format(R"({{"rank":{},"token_bytes":"{}"}},)", rank++, token);
  }
  entries.pop_back();
  const auto tekken = [&](std::string_view pattern) {
    return fmt::format(R"({{"config":{{"pattern":"{}","default_vocab_size":264,)"
                       R"("default_num_special_tokens":3}},"vocab":[{}]}})",
                       pattern, entries);
  };
  const TokenizerPtr ours = make_tokenizer("tekken", tekken(R"(\\s+|\\p{L}+|[^\\s\\p{L}]+)"));
  expect_same(*ours);
  const TokenizerPtr read = make_tokenizer("huggingface", written(*ours));
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int k = 0; k < 12; ++k) text += "ab"[random() % 4 / 3];
    EXPECT_EQ(read->encode(text), ours->encode(text)) << text;
  }
  EXPECT_NE(refusal(*make_tokenizer("tekken", tekken(R"(\\s+|\\S+)"))).find("'<unk>' is special"),
            std::string::npos);
}

TEST(HuggingFaceFiles, NameTheTokensAroundTexts) {
  const TokenizerPtr bytes = make_byte_tokenizer();
  const auto files = hugging_face_files(*make_tokenizer("byte", "", 256), 512);
  EXPECT_EQ(files.size(), 2u);
  const Json config = Json::parse_unique(files.at("tokenizer_config.json"));
  EXPECT_EQ(config.at("tokenizer_class").text(), "PreTrainedTokenizerFast");
  EXPECT_EQ(config.at("eos_token").text(), "<|endoftext|>");
  EXPECT_EQ(config.at("bos_token").text(), "<|endoftext|>");
  EXPECT_EQ(config.at("model_max_length").integer(), 512);
  EXPECT_FALSE(config.at("clean_up_tokenization_spaces").boolean());
  const Json file = Json::parse_unique(files.at("tokenizer.json"));
  EXPECT_EQ(file.at("post_processor").at("type").text(), "TemplateProcessing");
  EXPECT_EQ(Json::parse_unique(written(*bytes)).at("post_processor").dump(), "null");
  EXPECT_THROW(hugging_face_files(*make_tokenizer("byte", "", 65), 512), DataError);
}

TEST(HuggingFaceFiles, GiveTheFileOfOthersBack) {
  std::ifstream file(TRIREME_TOKENIZERS "/llama3.json", std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(file), {}};
  const TokenizerPtr tokenizer = make_tokenizer("huggingface:<|eot_id|>", model);
  const auto files = hugging_face_files(*tokenizer, 1);
  EXPECT_EQ(files.at("tokenizer.json"), model);
  EXPECT_NE(files.at("tokenizer_config.json").find("\"eos_token\": \"<|eot_id|>\""),
            std::string::npos);
}

TEST(HuggingFaceFiles, AreRefusedForWhatTheyCannotSay) {
  const auto refused = [](std::string_view kind, const std::string& model, std::string_view why) {
    const std::string line = refusal(*make_tokenizer(kind, model));
    EXPECT_TRUE(line.starts_with("the tokenizer cannot become a tokenizer.json: ")) << line;
    EXPECT_NE(line.find(why), std::string::npos) << line;
  };
  const std::string bpe = trained(Algorithm::kBpe)->model();
  refused("numbers", "300 299", "its tokens are numbers");
  refused("sentencepiece", bpe + "\x1a\x02\x18\x01", "without the normalisation");
  const std::string exact = "sentencepiece:exact";
  refused(exact, bpe + "\x1a\x02\x20\x01", "remove_extra_whitespaces without add_dummy_prefix");
  // A SentencePiece: its text, score and type.
  const auto piece = [](std::string_view text, char type) {
    return fmt::format("\x0a{}\x0a{}{}\x15{}\x18{}", static_cast<char>(text.size() + 9),
                       static_cast<char>(text.size()), text, std::string_view("\0\0\xc0\xc2", 4),
                       type);
  };
  refused(exact, bpe + piece("qzqz", 5), "its piece 'qzqz' is marked as unused");
  refused(exact, bpe + piece("\u00e9\u00e8", 1), "has the character '\u00e9', which is no piece");
  refused(exact, bpe + piece("<think>", 4) + "\x1a\x02\x18\x01", "is user-defined in a BPE");
}

}  // namespace
}  // namespace trireme
