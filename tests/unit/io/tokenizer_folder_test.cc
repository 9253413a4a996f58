// Which tokens come before and after documents, as the files of a tokenizer say it.
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/tokenizer.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::message_of;

class TokenizerFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  void take(const std::string& recorded, const std::string& name) {
    std::ifstream file(fmt::format("{}/{}.json", TRIREME_TOKENIZERS, recorded), std::ios::binary);
    write(name, {std::istreambuf_iterator<char>(file), {}});
  }
  // A model of the tokens a, b, <s>, </s>, <e> with the post-processor `part`.
  void write_small(const std::string& part) {
    write("tokenizer.json",
          fmt::format(R"({{"added_tokens":[)"
                      R"({{"id":2,"content":"<s>","special":true}},)"
                      R"({{"id":3,"content":"</s>","special":true}},)"
                      R"({{"id":4,"content":"<e>","special":true}}],)"
                      R"("post_processor":{},"model":{{"type":"BPE","vocab":{{"a":0,"b":1}},)"
                      R"("merges":[]}}}})",
                      part));
  }
  std::string contents() const {
    std::ifstream file(folder_.path() / "tokenizer.json", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
    return text;
  }
  std::string path(const std::string& name = "") const { return (folder_.path() / name).string(); }
  // "1 3 huggingface": begin, end, kind.
  std::string around(const DocumentTokens& named = {}) const {
    const TokenizerPtr tokenizer = load_tokenizer(path(), named);
    const auto begin = tokenizer->begin_of_text();
    return fmt::format("{} {} {}", begin ? std::to_string(*begin) : "none",
                       tokenizer->end_of_text(), tokenizer->kind());
  }
  std::string refusal(const DocumentTokens& named = {}) const {
    return message_of<DataError>([&] { load_tokenizer(path(), named); });
  }

  testing::TemporaryFolder folder_;
};

std::string put_before(const std::string& tokens) {
  return fmt::format(R"({{"type":"Sequence","processors":[{{"type":"ByteLevel"}},)"
                     R"({{"type":"TemplateProcessing","single":[{}{{"Sequence":{{"id":"A"}}}},)"
                     R"({{"SpecialToken":{{"id":"</s>"}}}}],"pair":[],"special_tokens":{{)"
                     R"("<s>":{{"id":"<s>","ids":[2],"tokens":["<s>"]}},)"
                     R"("</s>":{{"id":"</s>","ids":[3],"tokens":["</s>"]}}}}}}]}})",
                     tokens);
}
constexpr const char* kBegin = R"({"SpecialToken":{"id":"<s>"}},)";

TEST_F(TokenizerFolder, ThePostProcessorSaysWhatComesBeforeTexts) {
  write_small("null");
  EXPECT_EQ(around(), "none 3 huggingface");
  write_small(put_before(kBegin));
  EXPECT_EQ(around(), "2 3 huggingface");
  EXPECT_EQ(around({.begin_of_text = "none"}), "none 3 huggingface");
  EXPECT_EQ(around({.begin_of_text = "</s>"}), "3 3 huggingface");
  EXPECT_EQ(around({.begin_of_text = "<e>", .end_of_text = "<s>"}), "4 2 huggingface:<s>");
  EXPECT_EQ(load_tokenizer(path("tokenizer.json"))->begin_of_text(), 2);
  write_small(put_before(""));
  EXPECT_EQ(around(), "none 3 huggingface");
  // [CLS] is the first token of a sample, not of a document.
  take("bert_cased", "tokenizer.json");
  EXPECT_EQ(load_tokenizer(path())->begin_of_text(), std::nullopt);
}

TEST_F(TokenizerFolder, RobertaAndBertPutTokensAroundTexts) {
  const char* roberta = R"({"type":"RobertaProcessing","sep":["</s>",3],"cls":["<s>",2]})";
  write_small(roberta);
  EXPECT_EQ(around(), "2 3 huggingface");
  // The end is the one that is put there if the names do not tell.
  write_small(R"({"type":"BertProcessing","sep":["<e>",4],"cls":["<s>",2]})");
  EXPECT_EQ(around(), "2 3 huggingface");
  const std::string text = contents();
  write("tokenizer.json", replaced(text, R"("</s>")", R"("</x>")"));
  EXPECT_EQ(around(), "2 4 huggingface");
  const TokenizerPtr tokenizer = load_tokenizer(path());
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tokenizer->model())->end_of_text(), 4);
}

// transformers looks at the numbers, not at the names.
TEST_F(TokenizerFolder, APostProcessorPutsItsNumbers) {
  write_small(put_before(kBegin));
  const std::string text = contents();
  write("tokenizer.json", replaced(text, R"("ids":[2])", R"("ids":[4])"));
  EXPECT_EQ(around(), "4 3 huggingface");
  write("tokenizer.json", replaced(text, R"("ids":[2])", R"("ids":[1])"));
  EXPECT_NE(refusal().find("'b' is none of its special tokens"), std::string::npos) << refusal();
  // bad input: `prepare --tokenizer`: a post-processor that puts a token around texts that is none
  // | PATH: its post-processor puts the token 5 around texts, which is none | 3
  write("tokenizer.json", replaced(text, R"("ids":[2])", R"("ids":[5])"));
  EXPECT_NE(refusal().find("puts the token 5 around texts, which is none"), std::string::npos)
      << refusal();
}

TEST_F(TokenizerFolder, TheConfigurationHasTheLastWord) {
  const std::string begins = put_before(kBegin), begins_not = put_before("");
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {begins_not, R"({"add_bos_token":true,"bos_token":"<s>"})", "2 3 huggingface"},
      {begins, R"({"add_bos_token":false,"bos_token":"<s>"})", "none 3 huggingface"},
      {begins, R"({"add_bos_token":null,"bos_token":null})", "2 3 huggingface"},
      {begins_not, R"({"bos_token":"<s>"})", "none 3 huggingface"},
      {begins_not, R"({"bos_token":{"content":"<s>"},"tokenizer_class":"LlamaTokenizerFast"})",
       "2 3 huggingface"},
      {begins_not, R"({"tokenizer_class":"LlamaTokenizer"})", "2 3 huggingface"},
      {begins, R"({"eos_token":"</s>"})", "2 3 huggingface"},
      {begins, R"({"eos_token":{"content":"<e>","lstrip":false}})", "2 4 huggingface:<e>"}};
  for (const auto& [part, config, expected] : cases) {
    write_small(part);
    write("tokenizer_config.json", config);
    EXPECT_EQ(around(), expected) << config;
  }
  EXPECT_EQ(around({.end_of_text = "</s>"}), "2 3 huggingface:</s>");
}

TEST_F(TokenizerFolder, AStoredTokenizerKeepsItsBegin) {
  write_small(put_before(kBegin));
  const TokenizerPtr tokenizer = load_tokenizer(path());
  // Shards from before there was one have none.
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tokenizer->model())->begin_of_text(), std::nullopt);
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tokenizer->model(), 2)->begin_of_text(), 2);
  EXPECT_THROW(make_tokenizer(tokenizer->kind(), tokenizer->model(), 5), DataError);
}

TEST_F(TokenizerFolder, ASentencePieceModelHasItsOwnEnd) {
  SentencePieceTraining training;
  training.vocabulary = kSmallestSentencePieceVocabulary;
  std::string sample;
  for (int i = 0; i < 2000; ++i) sample += fmt::format("{} times {}\n", i, i * i);
  write("a.model", train_sentencepiece(sample, training)->model());
  // bad input: `prepare --tokenizer`: an end of text that is no control piece of a SentencePiece
  // model | PATH: 'x' is none of its control pieces (<|endoftext|>), so it cannot end texts | 3
  const std::string said =
      message_of<DataError>([&] { load_tokenizer(path("a.model"), {.end_of_text = "x"}); });
  EXPECT_NE(said.find("'x' is none of its control pieces (<|endoftext|>), so it cannot end texts"),
            std::string::npos)
      << said;
  EXPECT_EQ(load_tokenizer(path("a.model"), {.end_of_text = "<|endoftext|>"})->kind(),
            "sentencepiece");
}

TEST_F(TokenizerFolder, AConfigurationBesideASentencePieceModelSaysWhatIsAroundTexts) {
  const auto piece = [](std::string_view text, int type) {
    return fmt::format("\x0a{}\x0a{}{}\x18{}", static_cast<char>(text.size() + 4),
                       static_cast<char>(text.size()), text, static_cast<char>(type));
  };
  // Types: 1 normal, 2 unknown, 3 control.
  write("tokenizer.model", piece("<unk>", 2) + piece("a", 1) + piece("</s>", 3) +
                               piece("<bos>", 3) + piece("<end_of_turn>", 3));
  EXPECT_EQ(around(), "none 2 sentencepiece:exact");
  const auto with = [&](const std::string& config) { write("tokenizer_config.json", config); };
  with(R"({"eos_token":"</s>","add_bos_token":true,"bos_token":"<bos>"})");
  EXPECT_EQ(around(), "3 2 sentencepiece:exact");
  with(R"({"eos_token":{"content":"<end_of_turn>"},"tokenizer_class":"GemmaTokenizer"})");
  EXPECT_EQ(around(), "3 4 sentencepiece:exact:<end_of_turn>");
  EXPECT_EQ(around({.begin_of_text = "none", .end_of_text = "</s>"}), "none 2 sentencepiece:exact");
  const TokenizerPtr tokenizer = load_tokenizer(path());
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tokenizer->model())->end_of_text(), 4);
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tokenizer->model())->kind(), tokenizer->kind());
  with(R"({"eos_token":"a"})");
  EXPECT_NE(refusal().find("'a' is none of its control pieces (</s>, <bos>, <end_of_turn>)"),
            std::string::npos)
      << refusal();
  // bad input: `prepare --tokenizer`: a tokenizer_config.json with add_bos_token, but without
  // bos_token | PATH: the tokenizer_config.json beside it has add_bos_token, but no bos_token:
  // --begin-of-text TOKEN names one, or none | 3
  with(R"({"add_bos_token":true})");
  EXPECT_NE(refusal().find("has add_bos_token, but no bos_token"), std::string::npos) << refusal();
  EXPECT_EQ(around({.begin_of_text = "none"}), "none 2 sentencepiece:exact");
  // bad input: `prepare --tokenizer`: a SentencePiece model whose tokenizer_class has other numbers
  // for its pieces, without a tokenizer.json | PATH: XLMRobertaTokenizer gives its pieces other
  // numbers; ... | 3
  with(R"({"tokenizer_class":"XLMRobertaTokenizer"})");
  EXPECT_NE(refusal().find("XLMRobertaTokenizer gives its pieces other numbers"),
            std::string::npos);
}

TEST_F(TokenizerFolder, RefusesWhatItCannotTell) {
  // bad input: `prepare --tokenizer`: a post-processor that puts two tokens before texts, a
  // `bos_token` or --begin-of-text that is no special token, a broken tokenizer_config.json | PATH:
  // its post-processor puts several tokens before a text (<s>, <s>): --begin-of-text TOKEN names
  // one, or none; PATH: 'a' is none of its special tokens (</s>, <e>, <s>), so it cannot begin
  // texts; PATH: not a tokenizer_config.json that is read: ... | 3
  write_small(put_before(std::string(kBegin) + kBegin));
  EXPECT_NE(refusal().find("puts several tokens before a text (<s>, <s>)"), std::string::npos);
  EXPECT_EQ(around({.begin_of_text = "<s>"}), "2 3 huggingface");
  EXPECT_NE(refusal({.begin_of_text = "a"})
                .find("'a' is none of its special tokens (</s>, <e>, <s>), so it cannot begin"),
            std::string::npos);
  write("tokenizer_config.json", R"({"add_bos_token":true,"bos_token":"<bos>"})");
  write_small("null");
  EXPECT_NE(refusal().find("'<bos>' is none of its special tokens"), std::string::npos);
  write("tokenizer_config.json", R"({"eos_token":"<none>"})");
  EXPECT_NE(refusal().find("'<none>' is none of its added tokens"), std::string::npos);
  for (const char* broken : {"{", "[]", R"({"eos_token":3})", R"({"add_bos_token":"yes"})"}) {
    write("tokenizer_config.json", broken);
    EXPECT_NE(refusal().find("not a tokenizer_config.json that is read"), std::string::npos)
        << broken;
  }
}

TEST_F(TokenizerFolder, RefusesAFolderWithoutATokenizer) {
  // bad input: `prepare --tokenizer`: a folder that holds no tokenizer, or GPT-2's two files |
  // PATH: the folder holds no tokenizer (tokenizer.json, tekken.json or tokenizer.model);
  // transformers makes a tokenizer.json of its vocab.json: ... | 2
  const auto missing = [&] { return message_of<ConfigError>([&] { load_tokenizer(path()); }); };
  EXPECT_NE(missing().find("the folder holds no tokenizer (tokenizer.json,"), std::string::npos);
  EXPECT_EQ(missing().find("vocab.json"), std::string::npos);
  write("vocab.json", "{}");
  EXPECT_NE(missing().find("of its vocab.json"), std::string::npos);
  take("gpt2", "original/tokenizer.model");
  EXPECT_EQ(load_tokenizer(path())->kind(), "huggingface");
}

}  // namespace
}  // namespace trireme
