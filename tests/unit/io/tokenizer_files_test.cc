// Files that came with a tokenizer, and other tokens around the texts that a model has learned.
#include "trireme/io/tokenizer_files.h"

#include <filesystem>
#include <fstream>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Files = std::map<std::string, std::string>;

// A model of the tokens a, b, <s>, </s>, <e> with the post-processor `part`.
std::string small(const std::string& part) {
  return fmt::format(R"({{"added_tokens":[{{"id":2,"content":"<s>","special":true}},)"
                     R"({{"id":3,"content":"</s>","special":true}},)"
                     R"({{"id":4,"content":"<e>","special":true}}],)"
                     R"("post_processor":{},)"
                     R"("model":{{"type":"BPE","vocab":{{"a":0,"b":1}},"merges":[]}}}})",
                     part);
}

std::string special(const std::string& name) {
  return fmt::format(R"({{"SpecialToken":{{"id":"{}","type_id":0}}}})", name);
}
std::string text(const std::string& which, int type) {
  return fmt::format(R"({{"Sequence":{{"id":"{}","type_id":{}}}}})", which, type);
}
std::string put_around(const std::string& single, const std::string& pair) {
  return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"pair":[{}],)"
                     R"("special_tokens":{{"<s>":{{"id":"<s>","ids":[2],"tokens":["<s>"]}},)"
                     R"("</s>":{{"id":"</s>","ids":[3],"tokens":["</s>"]}}}}}})",
                     single, pair);
}

FilesForOthers changed(const Files& brought, std::optional<std::int32_t> begin,
                       const std::string& kind = "huggingface") {
  const TokenizerPtr tokenizer = make_tokenizer(kind, brought.at("tokenizer.json"), begin);
  return files_for_others({tokenizer, brought}, 8);
}

// "<s> A </s>", of a list of a template's pieces.
std::string words(const Json& pieces) {
  std::string all;
  for (const Json& one : pieces.items()) {
    const Json* token = one.find("SpecialToken");
    all += (all.empty() ? "" : " ") + (token ? *token : one.at("Sequence")).at("id").text();
  }
  return all;
}

TEST(TokenizerFiles, StayAsTheyCameWhereTextsBeginAndEndAsTheySay) {
  const Files brought = {
      {"tokenizer.json", small(put_around(special("<s>") + "," + text("A", 0), ""))},
      {"tokenizer_config.json", "{ \"eos_token\": \"<e>\"}\r\n"},
      {"generation_config.json", R"({"eos_token_id": 1, "bos_token_id":9})"}};
  const FilesForOthers made = changed(brought, 2, "huggingface:<e>");
  EXPECT_EQ(made.files, brought);
  EXPECT_EQ(made.remark, "");
}

TEST(TokenizerFiles, ATemplateGetsAnotherBeginning) {
  const std::string both = special("<s>") + "," + text("A", 0) + "," + special("</s>") + "," +
                           special("<s>") + "," + text("B", 1);
  const std::string part =
      put_around(special("<s>") + "," + text("A", 0) + "," + special("</s>"), both);
  const auto made = [&](std::optional<std::int32_t> begin) {
    const Files files = {{"tokenizer.json", small(part)}, {"tokenizer_config.json", "{}"}};
    return Json::parse(changed(files, begin).files.at("tokenizer.json")).at("post_processor");
  };
  EXPECT_EQ(words(made({}).at("single")), "A </s>");
  EXPECT_EQ(words(made({}).at("pair")), "A </s> B");
  EXPECT_EQ(words(made(4).at("single")), "<e> A </s>");
  EXPECT_EQ(words(made(4).at("pair")), "<e> A </s> <e> B");
  EXPECT_EQ(made(4).at("pair").at(3).dump(), R"({"SpecialToken":{"id":"<e>","type_id":1}})");
  EXPECT_EQ(made(4).at("special_tokens").at("<e>").dump(),
            R"({"id":"<e>","ids":[4],"tokens":["<e>"]})");
}

TEST(TokenizerFiles, OtherPostProcessorsGetATemplate) {
  const auto made = [&](const std::string& part) {
    const Files files = {{"tokenizer.json", small(part)}, {"tokenizer_config.json", "{}"}};
    return changed(files, 2);
  };
  for (const char* part : {"null", R"({"type":"ByteLevel"})",
                           R"({"type":"Sequence","processors":[{"type":"ByteLevel"}]})"}) {
    const Json file = Json::parse(made(part).files.at("tokenizer.json"));
    const Json* post = file.find("post_processor");
    if (const Json* parts = post->find("processors")) {
      EXPECT_EQ(parts->at(0).dump(), R"({"type":"ByteLevel"})");
      post = &parts->at(1);
    }
    EXPECT_EQ(words(post->at("single")), "<s> A");
  }
  const char* bert = R"({"type":"BertProcessing","sep":["<e>",4],"cls":["</s>",3]})";
  EXPECT_NE(made(bert).remark.find("still as they came: tokenizer.json"), std::string::npos);
  const Files roberta = {{"tokenizer.json", small(bert)}, {"tokenizer_config.json", "{}"}};
  EXPECT_NE(changed(roberta, {}).remark.find("still as they came: tokenizer.json"),
            std::string::npos);
}

TEST(TokenizerFiles, WhatIsNoJsonIsNamed) {
  const Files files = {{"tokenizer.json", small("null")},
                       {"tokenizer_config.json", R"({"add_bos_token":false})"},
                       {"special_tokens_map.json", "{"},
                       {"generation_config.json", "[]"}};
  const FilesForOthers made = changed(files, 2);
  EXPECT_EQ(made.files.at("special_tokens_map.json"), "{");
  EXPECT_EQ(Json::parse(made.files.at("tokenizer_config.json")).dump(),
            R"({"add_bos_token":true,"bos_token":"<s>"})");
  EXPECT_EQ(made.remark,
            "the model's texts begin with <s> and end with </s>, but the files that came with it "
            "say that they begin with no token and end with </s>; changed in that: "
            "tokenizer_config.json, tokenizer.json; still as they came: special_tokens_map.json");
}

TEST(TokenizerFiles, AFolderThatCannotBeWrittenLeavesNothing) {
  const testing::TemporaryFolder run;
  const std::string path = run.path().string();
  write_tokenizer_folder(path, {{"a", "old"}});
  EXPECT_THROW(write_tokenizer_folder(path, {{"a", "new"}, {"no/folder", ""}}), RunFolderError);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "tokenizer.partial"));
  std::string text;
  std::ifstream(run.path() / "tokenizer" / "a") >> text;
  EXPECT_EQ(text, "old");
}

TEST(TokenizerFiles, ErrorsNameTheFileAndTheField) {
  // bad input: a file of a tokenizer that is a pointer of Git LFS, or has a field of another type;
  // a damaged tekken.json; NaN in JSON | PATH: a pointer of Git LFS in place of the file: git lfs
  // pull fetches it; PATH: not a tokenizer_config.json that is read: eos_token: expected text;
  // PATH: not a tekken.json that is read: no member is called 'config'; ... (NaN and Infinity are
  // not JSON) | 3
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"tokenizer.json", pointer, "tokenizer.json: a pointer of Git LFS in place of the file: "},
      {"tokenizer.model", pointer, "tokenizer.model: a pointer of Git LFS in place of the file: "},
      {"tokenizer_config.json", pointer, "tokenizer_config.json: a pointer of Git LFS in place"},
      {"tekken.json", "{", "not a tekken.json that is read: parse error"},
      {"tekken.json", R"({"vocab":[]})",
       "not a tekken.json that is read: no member is called 'con"},
      {"tekken.json",
       R"({"config":{"default_vocab_size":2,"default_num_special_tokens":1},"vocab":[{"rank":"0"}]})",
       "tekken.json: entry 1 is not a token in base 64 with the rank 0"},
      {"tokenizer.json", R"({"model":{"vocab":{"a":"x"},"merges":[]}})",
       "not a tokenizer.json that is read: model: expected an integer"},
      {"tokenizer.json", R"({"model":NaN})", "(NaN and Infinity are not JSON)"},
      {"tokenizer.json", R"({"model":-Infinity})", "(NaN and Infinity are not JSON)"},
      {"tokenizer_config.json", R"({"eos_token":3})",
       "not a tokenizer_config.json that is read: eos_token: expected"},
      {"tokenizer_config.json", R"({"tokenizer_class":3})", "read: tokenizer_class: expected"},
      {"tokenizer_config.json", R"({"add_bos_token":"yes"})",
       "read: add_bos_token: expected true or false"}};
  for (const auto& [name, content, expected] : cases) {
    const testing::TemporaryFolder folder;
    const auto write = [&](const std::string& file, const std::string& text) {
      std::ofstream(folder.path() / file, std::ios::binary) << text;
    };
    if (name == "tokenizer_config.json") write("tokenizer.json", small("null"));
    write(name, content);
    const std::string said =
        testing::message_of<DataError>([&] { load_tokenizer(folder.path().string()); });
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace trireme
