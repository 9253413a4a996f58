// A tokenizer.json gives the tokens that PyPI's `tokenizers` gives, or is refused in one line.
// tokenizers/record.py has recorded them.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/io/tokenizer.h"

#include "io/tokenizers/unicode_text.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

const std::vector<std::string> kNames = {"gpt2", "llama3", "qwen2", "bert_uncased", "bert_cased"};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string path_of(const std::string& name) {
  return fmt::format("{}/{}.json", TRIREME_TOKENIZERS, name);
}

TokenizerPtr recorded(const std::string& name) {
  return load_tokenizer(path_of(name), {.end_of_text = name == "llama3" ? "<|eot_id|>" : ""});
}

TokenizerPtr tokenizer_of(const std::string& model) {
  return make_tokenizer("huggingface", model);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

const Json& expected() {
  static const Json json = Json::parse_unique(contents(path_of("expected")));
  return json;
}

std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const Json& text : expected().at("texts").items()) all.push_back(text.text());
  return all;
}

TEST(HuggingFaceTokenizer, GivesTheTokensThatOthersGive) {
  const std::vector<std::string> all = texts();
  for (const std::string& name : kNames) {
    const TokenizerPtr tokenizer = recorded(name);
    const Json::Array& tokens = expected().at("tokens").at(name).items();
    ASSERT_EQ(tokens.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<std::int32_t> wanted;
      for (const Json& token : tokens[i].items()) wanted.push_back(token.small_integer());
      EXPECT_EQ(tokenizer->encode(all[i]), wanted) << name << ": " << all[i];
    }
  }
}

TEST(HuggingFaceTokenizer, BytesComeBack) {
  std::mt19937 random(1);
  std::vector<std::string> all = texts();
  for (int i = 0; i < 200; ++i) {
    std::string& bytes = all.emplace_back(static_cast<std::size_t>(i) * 3, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
  }
  all.push_back("a\xc3 \xff\xfe\xc3\xa9 \xf0\x9f\x98");
  for (const char* name : {"gpt2", "llama3"}) {
    const TokenizerPtr tokenizer = recorded(name);
    for (const std::string& text : all) {
      const std::vector<std::int32_t> tokens = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->decode(tokens), text) << name;
      EXPECT_EQ(std::ranges::count(tokens, tokenizer->end_of_text()), 0) << name;
    }
  }
  // A normalizer gives back the normal form.
  const TokenizerPtr qwen2 = recorded("qwen2");
  for (const std::string& text : texts()) {
    EXPECT_EQ(qwen2->decode(qwen2->encode(text)), normalised(text, NormalForm::kNfc));
  }
}

// A model in the manner of Llama 2: characters, and bytes for those that it does not know.
std::string bytes_and_characters() {
  std::string vocabulary = R"("<unk>":0,"<s>":1,"</s>":2)";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary += fmt::format(R"(,"<0x{:02X}>":{})", byte, byte + 3);
  }
  int next = 259;
  for (const char* piece : {"\u2581", "a", "b", "\u2581a", "\u2581ab"}) {
    vocabulary += fmt::format(R"(,"{}":{})", piece, next++);
  }
  return fmt::format(
      R"({{"added_tokens":[{{"id":2,"content":"</s>","special":true}}],"normalizer":)"
      R"({{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":"\u2581"}},)"
      R"({{"type":"Replace","pattern":{{"String":" "}},"content":"\u2581"}}]}},"decoder":)"
      R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"\u2581"}},)"
      R"("content":" "}},{{"type":"ByteFallback"}},{{"type":"Fuse"}},{{"type":"Strip","content":)"
      R"(" ","start":1,"stop":0}}]}},"model":{{"type":"BPE","byte_fallback":true,"fuse_unk":true,)"
      R"("unk_token":"<unk>","vocab":{{{}}},"merges":["\u2581 a","\u2581a b"]}}}})",
      vocabulary);
}

TEST(HuggingFaceTokenizer, BytesComeBackFromCharacters) {
  const TokenizerPtr tokenizer = tokenizer_of(bytes_and_characters());
  EXPECT_EQ(tokenizer->description(), "Hugging Face's BPE, 264 tokens");
  EXPECT_EQ(tokenizer->encode("ab a"), (std::vector<std::int32_t>{263, 262}));
  std::vector<std::int32_t> rest;
  tokenizer->encode(" a", rest, TextPart::kGoesOn);
  EXPECT_EQ(rest, (std::vector<std::int32_t>{262}));
  EXPECT_EQ(tokenizer->encode("\xff\n"), (std::vector<std::int32_t>{258, 13}));
  EXPECT_EQ(tokenizer->bytes_of(263), " ab");
  EXPECT_EQ(tokenizer->bytes_of(3 + 0xe2), "\xe2");
  for (const std::string& text : texts()) {
    if (text.find("\u2581") != std::string::npos) continue;  // it is a space
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  const std::string text = "a\xc3 \xff\xfe\xc3\xa9 \xf0\x9f\x98";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(HuggingFaceTokenizer, WordPieceReadsBytesThatAreNoTextAsOthersDo) {
  for (const char* name : {"bert_uncased", "bert_cased"}) {
    const TokenizerPtr tokenizer = recorded(name);
    EXPECT_EQ(tokenizer->encode("the \xff king\xc3s \xf0\x9f\x98"),
              tokenizer->encode("the \xef\xbf\xbd king\xef\xbf\xbds "
                                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"));
  }
  EXPECT_EQ(recorded("bert_uncased")->decode(recorded("bert_uncased")->encode("The king")),
            " the king");
}

// The tokens of a text that is encoded in pieces, each cut from so many bytes, or more where they
// have no place to cut.
std::vector<std::int32_t> in_pieces(const Tokenizer& tokenizer, std::string_view text,
                                    std::size_t window, int& cuts) {
  std::vector<std::int32_t> tokens;
  TextPart part = TextPart::kBegins;
  std::size_t size = window;
  while (text.size() > size) {
    const std::size_t end = tokenizer.cut(text.substr(0, size));
    EXPECT_LE(end, size);
    if (end == 0) {
      size *= 2;
      continue;
    }
    ++cuts;
    tokenizer.encode(text.substr(0, end), tokens, part);
    part = TextPart::kGoesOn;
    text.remove_prefix(end);
    size = window;
  }
  tokenizer.encode(text, tokens, part);
  return tokens;
}

TEST(HuggingFaceTokenizer, CutsWhereTheTokensStayTheSame) {
  constexpr std::string_view kFilling = " \n\t\xcc\x81";
  const std::vector<std::string> all = texts();
  std::mt19937 random(3);
  const auto below = [&](std::size_t count) { return random() % count; };
  for (const std::string& name : kNames) {
    const TokenizerPtr tokenizer = recorded(name);
    int cuts = 0;
    for (int round = 0; round < 60; ++round) {
      std::string text;
      while (text.size() < 4000) {
        const std::string& part = all[below(all.size())];
        const std::size_t begin = below(part.size() + 1);
        text += part.substr(begin, below(60));
        if (below(8) == 0) text += std::string(below(9), kFilling[below(5)]);
        for (std::size_t left = below(8) == 0 ? below(9) : 0; left > 0; --left) {
          text += kFilling[below(5)];
        }
        if (below(20) == 0) text += static_cast<char>(random());
      }
      const std::size_t window = 30 + below(400);
      EXPECT_EQ(in_pieces(*tokenizer, text, window, cuts), tokenizer->encode(text))
          << name << ", round " << round << ", window " << window;
    }
    EXPECT_GT(cuts, 300) << name;
  }
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

// What the end of a piece hides from looking ahead, from the normalizer and from added tokens.
TEST(HuggingFaceTokenizer, CutsWhereAPieceThatEndsThereHasTheSameTokens) {
  const std::string model =
      replaced(contents(path_of("qwen2")), R"("content":"<think>")", R"("content":"start|>")");
  const struct {
    TokenizerPtr tokenizer;
    std::string text;
  } cases[] = {
      {recorded("gpt2"), repeated(std::string(60, 'x') + "\n\n", 40)},
      {recorded("llama3"), repeated("\t\t" + std::string(60, '='), 40)},
      {recorded("qwen2"), repeated(repeated("it was the crown of ", 10) + "king's\xcc\x81 ", 6)},
      {tokenizer_of(model), repeated("what <|im_start|> says, start|> goes ", 40)},
  };
  for (const auto& [tokenizer, text] : cases) {
    const std::vector<std::int32_t> wanted = tokenizer->encode(text);
    int cuts = 0;
    for (std::size_t window = 60; window < 260; ++window) {
      EXPECT_EQ(in_pieces(*tokenizer, text, window, cuts), wanted)
          << text.substr(0, 70) << ", window " << window;
    }
    EXPECT_GT(cuts, 200);
  }
}

// Matches that are merged with what is beside them, in a text without white space as well.
TEST(HuggingFaceTokenizer, CutsWhereMergedMatchesStayTheSame) {
  const std::string all = [] {
    std::string joined;
    for (const std::string& text : texts()) joined += text + "a,,1b.,";
    return joined;
  }();
  const std::string text = all + repeated("x1,yz,,ab1;cde,", 200);
  for (const char* behavior : {"MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    for (const bool is_inverted : {false, true}) {
      const std::string split = fmt::format(
          R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":)"
          R"({{"Regex":"\\s+|\\p{{L}}?,"}},"behavior":"{}","invert":{}}},{{"type":"ByteLevel",)"
          R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false}}]}})",
          behavior, is_inverted);
      const TokenizerPtr tokenizer = tokenizer_of(replaced(
          contents(path_of("gpt2")),
          R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
          R"("use_regex":true})",
          split));
      const std::vector<std::int32_t> wanted = tokenizer->encode(text);
      int cuts = 0;
      for (std::size_t window = 30; window < 230; window += 3) {
        ASSERT_EQ(in_pieces(*tokenizer, text, window, cuts), wanted)
            << behavior << ", inverted " << is_inverted << ", window " << window;
      }
      EXPECT_GT(cuts, 700) << behavior << ", inverted " << is_inverted;
    }
  }
}

// The same with more text than what is matched again near its end, and with a word longer than
// that.
TEST(HuggingFaceTokenizer, CutsLongTextsWhereTheTokensStayTheSame) {
  const TokenizerPtr tokenizer = recorded("gpt2");
  const std::string lines = repeated(std::string(60, 'x') + "\n\n", 700);
  const std::string text = lines + std::string(30000, 'y') + "\n\n" + lines;
  const std::vector<std::int32_t> wanted = tokenizer->encode(text);
  for (const std::size_t window : {20000, 30000, 44000, 50000, 60000, 65000}) {
    int cuts = 0;
    EXPECT_EQ(in_pieces(*tokenizer, text, window, cuts), wanted) << window;
    EXPECT_GT(cuts, 0);
  }
}

// A token that takes the white space beside it, in texts without a place to cut or with more of it.
TEST(HuggingFaceTokenizer, TokensThatStripMeetWhatIsBesideThem) {
  const auto with = [](const std::string& text) {
    return tokenizer_of(replaced(
        contents(path_of("qwen2")),
        R"("content":"<think>","single_word":false,"lstrip":false,"rstrip":false)",
        fmt::format(R"("content":"{}","single_word":false,"lstrip":true,"rstrip":true)", text)));
  };
  EXPECT_EQ(with("<think>")->cut(std::string(500, 'x')), 0);
  EXPECT_EQ(with("<think>")->cut(std::string(500, '\n')), 0);
  const std::vector<std::int32_t> spaces = {501};
  EXPECT_EQ(with("  ")->encode("  "), spaces);
  EXPECT_EQ(with("  ")->encode("     "), spaces);  // it strips what else it would be found in
}

TEST(HuggingFaceTokenizer, HasSpecialTokensAndAnEndOfText) {
  const TokenizerPtr bert = recorded("bert_uncased");
  EXPECT_EQ(bert->end_of_text(), bert->special_token("[SEP]"));
  EXPECT_EQ(bert->special_token("[MASK]"), 4);
  EXPECT_EQ(bert->special_token("[GONE]"), std::nullopt);
  EXPECT_EQ(bert->special_tokens().size(), 5u);
  EXPECT_EQ(bert->vocabulary(), 500);
  EXPECT_EQ(bert->bytes_of(4), "");
  const TokenizerPtr qwen2 = recorded("qwen2");
  EXPECT_EQ(qwen2->special_tokens().size(), 3u);  // <tool_call> is an ordinary one
  EXPECT_EQ(qwen2->end_of_text(), 0);
  EXPECT_EQ(qwen2->kind(), "huggingface");
  EXPECT_EQ(qwen2->bytes_of(499), "<tool_call>");
  const TokenizerPtr named = load_tokenizer(path_of("qwen2"), {.end_of_text = "<|im_end|>"});
  EXPECT_EQ(named->end_of_text(), 2);
  EXPECT_EQ(named->kind(), "huggingface:<|im_end|>");
  const TokenizerPtr again = make_tokenizer(named->kind(), named->model());
  EXPECT_EQ(again->end_of_text(), 2);
  EXPECT_EQ(again->encode("a <think> b"), named->encode("a <think> b"));
}

// Even a token that is not special is ordinary text once it ends texts.
TEST(HuggingFaceTokenizer, NeverYieldsItsEndOfText) {
  const TokenizerPtr named = load_tokenizer(path_of("qwen2"), {.end_of_text = "<think>"});
  const auto tokens = named->encode("<think>\n<think>");
  EXPECT_EQ(std::ranges::count(tokens, named->end_of_text()), 0);
  EXPECT_EQ(named->decode(tokens), "<think>\n<think>");
  // Nor does a word that is an added token as well.
  const std::string bert = contents(path_of("bert_uncased"));
  const TokenizerPtr plain = tokenizer_of(bert);
  const std::int32_t the = plain->encode("the").front();
  const TokenizerPtr words =
      make_tokenizer("huggingface:the",
                     replaced(bert, R"("added_tokens":[)",
                              fmt::format(R"("added_tokens":[{{"id":{},"content":"the"}},)", the)));
  EXPECT_EQ(words->end_of_text(), the);
  const auto made = words->encode("the king the");
  EXPECT_EQ(std::ranges::count(made, the), 0);
  EXPECT_EQ(std::ranges::count(plain->encode("the king the"), the), 2);
}

std::string refusal(const std::string& model) {
  try {
    tokenizer_of(model);
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "none";
}

struct Edit {
  const char *file, *from, *to, *message;
};

TEST(HuggingFaceTokenizer, RefusesByNameWhatItDoesNotRead) {
  const std::vector<Edit> edits = {
      // bad input: `prepare`: a tokenizer.json with a part that is not supported | ...: the model
      // WordLevel is not supported; ...: the pre-tokenizer UnicodeScripts is not supported; ... | 3
      {"gpt2", R"("type":"BPE")", R"("type":"WordLevel")", "the model WordLevel is not supported"},
      {"gpt2", R"("dropout":null)", R"("dropout":0.1)", "the model BPE with dropout"},
      {"gpt2", R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")",
       "with end_of_word_suffix"},
      {"gpt2", R"("continuing_subword_prefix":null)", R"("continuing_subword_prefix":"##")",
       "with continuing_subword_prefix"},
      {"gpt2", R"("pre_tokenizer":{"type":"ByteLevel")",
       R"("pre_tokenizer":{"type":"UnicodeScripts")", "the pre-tokenizer UnicodeScripts"},
      {"gpt2", R"("normalizer":null)", R"("normalizer":{"type":"Nmt"})", "the normalizer Nmt"},
      {"gpt2", R"("normalizer":null)",
       R"("normalizer":{"type":"Replace","pattern":{"Regex":"x*"},"content":""})",
       "matches nothing at all as well"},
      {"gpt2", R"("decoder":{"type":"ByteLevel")", R"("decoder":{"type":"CTC")", "the decoder CTC"},
      // bad input: `prepare`: a tokenizer.json whose precompiled_charsmap is damaged | ...: its
      // precompiled_charsmap is cut short; ...: ... is not in base 64 | 3
      {"gpt2", R"("normalizer":null)",
       R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"ALQCAACE"})", "is cut short"},
      {"gpt2", R"("normalizer":null)",
       R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"A-B"})", "base 64"},
      {"gpt2", R"("post_processor":null)", R"("post_processor":{"type":"Odd"})",
       "the post-processor Odd"},
      // bad input: `prepare`: a tokenizer.json whose numbers of tokens occur twice or leave some
      // out |
      // ...: the number 0 is that of two tokens: ...; ...: its 501 tokens leave out numbers: 'odd'
      // is
      // 999 | 3
      {"gpt2", R"("vocab":{)", R"("vocab":{"odd":0,)", "the number 0 is that of two tokens"},
      {"gpt2", R"("vocab":{)", R"("vocab":{"odd":999,)", "leave out numbers: 'odd' is 999"},
      {"gpt2", R"("vocab":{)", R"("vocab":{"odd":-1,)", "the token 'odd' has the number -1"},
      {"gpt2", R"("vocab":{)", R"("vocab":{"odd":2147483648,)", "has the number 2147483648"},
      {"gpt2", R"("vocab":{)", R"("vocab":{"odd":1e40,)", "an integer"},
      // bad input: `prepare`: a tokenizer.json with a merge of what is no token, or without a token
      // for a byte | ...: a merge of 'zz' is no token of its vocabulary; ...: its BPE has no token
      // for the byte 0x7e | 3
      {"gpt2", R"("merges":[)", R"("merges":[["zz","q"],)", "a merge of 'zz'"},
      {"gpt2", R"("merges":[)", R"("merges":[["!","!"],)", "a merge makes '!!'"},
      {"gpt2", R"("merges":[)", R"("merges":["a b c",)", "'a b c' is not of two tokens"},
      {"gpt2", R"("merges":[)", R"("merges":[["a"],)", "a merge is not of two tokens"},
      {"gpt2", R"("~":94)", R"("~~~~":94)", "no token for the byte 0x7e"},
      {"gpt2", R"({"id":0,)", R"({"id":1,)", "has two numbers: 0 and 1"},
      {"gpt2", R"("special":true)", R"("special":false,"lstrip":true,"x":0)", "occurs twice"},
      {"gpt2", R"("content":"<|endoftext|>")", R"("content":"!")", "has two numbers"},
      {"qwen2", R"("content":"<|endoftext|>")", R"("content":"<|im_start|>")", "two numbers"},
      {"llama3", R"("behavior":"Isolated")", R"("behavior":"Odd")", "Split with behavior Odd"},
      // bad input: `prepare`: a tokenizer.json whose regular expression is none, or is not read |
      // ...: the split pattern '...' has '(?<', which is not read | 3
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"(?<=a)(?i:)", "'(?<'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"\\b(?i:)", "'\\b'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"^(?i:)", "'^'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"\\p{Han}|(?i:)", "'\\p{Han}'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"[a&&b]|(?i:)", "'&& in a class'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"a{1,2}+|(?i:)", "'}+'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"a*|(?i:)", "matches nothing at all as well"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"((?i:)", "is no regular expression"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"[\\S]|(?i:)", "'\\S in a class'"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"(?i:ss|)", "'(?i:ss|"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"(?i:\u00df|)", "'(?i:\u00df|"},
      {"llama3", R"("Regex":"(?i:)", R"("Regex":"(?i:a+)|(?i:)", "'(?i:a+'"},
      // bad input: `prepare`: a tokenizer.json that lists an added token twice | ...: the added
      // token
      // '<|endoftext|>' is listed twice | 3
      {"gpt2", R"("added_tokens":[)", R"("added_tokens":[{"id":0,"content":"<|endoftext|>"},)",
       "the added token '<|endoftext|>' is listed twice"},
      {"bert_uncased", R"("type":"BertPreTokenizer")", R"("type":"ByteLevel")",
       "the model WordPiece with the pre-tokenizer ByteLevel"},
      {"bert_uncased", R"("unk_token":"[UNK]")", R"("unk_token":"[GONE]")",
       "its unk_token '[GONE]'"},
      {"bert_uncased", R"("content":"[SEP]")", R"("content":"[sep]")", "two tokens"},
      {"bert_uncased", R"("type":"WordPiece","unk_token")", R"("type":"WordLevel","unk_token")",
       "the model WordLevel"},
  };
  for (const Edit& edit : edits) {
    const std::string message = refusal(replaced(contents(path_of(edit.file)), edit.from, edit.to));
    EXPECT_NE(message.find(edit.message), std::string::npos)
        << edit.file << " with " << edit.to << ": " << message;
  }
  // bad input: `prepare`: a tokenizer.json with more than 32 pre-tokenizers or normalizers |
  // ...: more than 32 pre-tokenizers are not supported; ...: more than 32 normalizers are not
  // supported | 3
  const std::string split = R"({"type":"Split","pattern":{"String":"a"},"behavior":"Isolated"},)";
  const auto with_splits = [&](int count) {
    return refusal(replaced(contents(path_of("llama3")), R"("pretokenizers":[)",
                            R"("pretokenizers":[)" + repeated(split, count)));
  };
  EXPECT_NE(with_splits(32).find("more than 32 pre-tokenizers are not supported"),
            std::string::npos);
  EXPECT_EQ(with_splits(31).find("pre-tokenizers are"), std::string::npos);
  const auto with_normalizers = [&](int count) {
    return refusal(replaced(contents(path_of("qwen2")), R"("normalizer":{"type":"NFC"})",
                            R"("normalizer":{"type":"Sequence","normalizers":[)" +
                                repeated(R"({"type":"NFC"},)", count) + R"({"type":"NFC"}]})"));
  };
  EXPECT_NE(with_normalizers(32).find("more than 32 normalizers are not supported"),
            std::string::npos);
  EXPECT_EQ(with_normalizers(31), "none");
  // bad input: `prepare`: a tokenizer.json that is damaged, or something else | ...: not a
  // tokenizer.json that is read: no member is called 'model' | 3
  EXPECT_NE(refusal("{").find("not a tokenizer.json that is read"), std::string::npos);
  EXPECT_NE(refusal("{}").find("'model'"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '[')).find("nested too deeply"), std::string::npos);
}

TEST(HuggingFaceTokenizer, AsksWhichTokenEndsTexts) {
  const auto message_of = [](const std::string& model, const std::string& kind) -> std::string {
    try {
      make_tokenizer(kind, model);
    } catch (const DataError& error) {
      return error.what();
    }
    return "none";
  };
  const std::string qwen2 = contents(path_of("qwen2"));
  // bad input: `prepare`: an end of text that is no added token of the tokenizer.json | ...: 'x' is
  // none of its added tokens (...), so it cannot end texts | 3
  EXPECT_NE(
      message_of(qwen2, "huggingface:<|gone|>").find("'<|gone|>' is none of its added tokens"),
      std::string::npos);
  // bad input: `prepare`: a tokenizer.json with no token, or several, that may end texts | ...:
  // several of its tokens may end texts (</s>, [SEP]): --end-of-text TOKEN names one | 3
  std::string several = replaced(qwen2, "<|im_end|>", "</s>");
  several = replaced(several, "<|im_end|>", "</s>");
  EXPECT_NE(message_of(several, "huggingface").find("may end texts (<|endoftext|>, </s>)"),
            std::string::npos);
  EXPECT_EQ(message_of(several, "huggingface:</s>"), "none");
  // bad input: `prepare`: an end of text that stands for unknown words | ...: '[UNK]' stands for
  // unknown words, so it cannot end texts | 3
  EXPECT_NE(message_of(contents(path_of("bert_cased")), "huggingface:[UNK]")
                .find("'[UNK]' stands for unknown words, so it cannot end texts"),
            std::string::npos);
  std::string none = replaced(qwen2, "<|endoftext|>", "<|x|>");
  none = replaced(none, "<|endoftext|>", "<|x|>");
  EXPECT_NE(
      message_of(none, "huggingface").find("--end-of-text TOKEN names one of its added tokens"),
      std::string::npos);
}

// tokenizer_pypi_test compares the tokens of whole ones with tiktoken's.
TEST(HuggingFaceTokenizer, ReadsRankFiles) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto byte_in_base64 = [&](std::size_t byte) {
    return std::string{kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
  };
  std::string entries;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    entries += fmt::format(R"({{"rank":{},"token_bytes":"{}"}},)", byte, byte_in_base64(byte));
  }
  const std::string tekken = R"({"config":{"pattern":"\\s+|\\S+","default_vocab_size":260,)"
                             R"("default_num_special_tokens":3},"vocab":[)" +
                             entries + R"({"rank":256,"token_bytes":"YWI="}]})";
  const TokenizerPtr tokenizer = tokenizer_of(tekken);
  EXPECT_EQ(tokenizer->kind(), "tekken");
  EXPECT_EQ(tokenizer->description(), "Mistral's byte-level BPE, 260 tokens");
  EXPECT_EQ(tokenizer->encode("ab\xff"), (std::vector<std::int32_t>{259, 258}));
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  EXPECT_EQ(tokenizer->special_token("<s>"), 1);
  EXPECT_EQ(make_tokenizer(tokenizer->kind(), tekken)->encode("ab"), tokenizer->encode("ab"));
  // bad input: `prepare`: a tekken.json or a rank file of tiktoken with a token that is none, or of
  // another model than Llama 3 | ...: entry 2 is not a token in base 64 with the rank 1; ...: line
  // 2 is not a token ...; ...: a rank file of 2 tokens does not say how it splits texts; ... | 3
  EXPECT_NE(refusal(replaced(tekken, "AQ==", "A-Q=")).find("entry 2 is not a token in base 64"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(tekken, "AQ==", "AA==")).find("is listed twice"), std::string::npos);
  EXPECT_NE(refusal(replaced(tekken, ":260", ":990")).find("do not come from 257 tokens"),
            std::string::npos);
  EXPECT_NE(refusal("AA== 0\nAQ== 1\n").find("rank file of 2 tokens"), std::string::npos);
  EXPECT_NE(refusal("AA== 0\r\nAQ== 1\r\n").find("rank file of 2 tokens"), std::string::npos);
  EXPECT_NE(refusal("AA== 0\nAQ== 7\n").find("line 2 is not a token"), std::string::npos);
}

// A damaged or odd model of Unigram.
TEST(HuggingFaceTokenizer, RefusesUnigramThatHasNoSense) {
  const auto model_of = [](const std::string& vocabulary, const std::string& unknown) {
    return fmt::format(
        R"({{"model":{{"type":"Unigram","vocab":[{}],"unk_id":{}}},"added_tokens":[)"
        R"({{"id":1,"content":"</s>","special":true}}],"pre_tokenizer":{{"type":"Metaspace",)"
        R"("replacement":"\u2581"}},"decoder":{{"type":"Metaspace","replacement":"\u2581"}}}})",
        vocabulary, unknown);
  };
  const std::string good =
      R"(["<unk>",0],["</s>",0],["\u2581a",-1.5],["a",-2],["b",-3],["ab",-2.5])";
  const TokenizerPtr tokenizer = tokenizer_of(model_of(good, "0"));
  EXPECT_EQ(tokenizer->encode("a abxyb"), (std::vector<std::int32_t>{2, 2, 4, 0, 4}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a ab")), "a ab");
  EXPECT_EQ(tokenizer->description(), "Hugging Face's Unigram, 6 tokens");
  // bad input: `prepare`: a tokenizer.json of Unigram without its unknown piece, with a piece
  // twice, or a score that is none | ...: the model Unigram with no unk_id is not supported; ...:
  // the piece 'a' is listed twice; ...: its unk_id is 6 | 3
  EXPECT_NE(refusal(model_of(good, "null")).find("Unigram with no unk_id"), std::string::npos);
  EXPECT_NE(refusal(model_of(good, "6")).find("its unk_id is 6"), std::string::npos);
  EXPECT_NE(refusal(model_of(good + R"(,["a",-1])", "0")).find("'a' is listed twice"),
            std::string::npos);
  EXPECT_NE(refusal(model_of(good + R"(,["c"])", "0")).find("not a tokenizer.json"),
            std::string::npos);
  EXPECT_NE(refusal(model_of(good, "1")).find("'</s>' stands for unknown characters"),
            std::string::npos);
}

// bad input: `prepare`: a tokenizer.json whose regular expression backtracks without end on the
// text | the split pattern '...' of the tokenizer takes too long on the text '...': match limit
// exceeded | 3
TEST(HuggingFaceTokenizer, GivesUpOnAPatternThatBacktracksWithoutEnd) {
  const auto tokenizer = tokenizer_of(
      replaced(contents(path_of("llama3")), R"("Regex":"(?i:)", R"("Regex":"(a|aa)+c|(?i:)"));
  EXPECT_NO_THROW(tokenizer->encode("aaaaaaaac"));
  EXPECT_THROW(tokenizer->encode(std::string(5000, 'a')), DataError);
  EXPECT_THROW(tokenizer->cut(std::string(5000, 'a') + " " + std::string(5000, 'b')), DataError);
}

// It takes time that grows with the length, not with its square: the timeout of the test is the
// limit.
TEST(HuggingFaceTokenizer, EncodesWordsWithoutEnd) {
  for (const std::string& name : kNames) {
    const TokenizerPtr tokenizer = recorded(name);
    for (const char* part : {"a", " ", "of", "\n", "\xc3\xa9", "\xcc\x81", "1", "#"}) {
      std::string text;
      while (text.size() < 300000) text += part;
      EXPECT_FALSE(tokenizer->encode(text).empty() && *part != ' ' && *part != '\n' &&
                   *part != '\xcc')
          << name;
    }
  }
}

// Damage anywhere is refused in one line, or gives a tokenizer that works.
TEST(HuggingFaceTokenizer, StandsDamage) {
  const std::string text = "The king's crown, 1623: caf\xc3\xa9 <think>\n\n";
  std::mt19937 random(5);
  int refused = 0, taken = 0;
  for (const char* name : {"gpt2", "qwen2", "bert_cased"}) {
    const std::string whole = contents(path_of(name));
    for (std::size_t at = 0; at < whole.size(); at += 1 + random() % 12) {
      std::string damaged = whole;
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.resize(at);
          break;
        case 2:
          damaged.erase(at, 1 + random() % 20);
          break;
        default:
          damaged.insert(at, whole.substr(random() % whole.size(), random() % 30));
      }
      try {
        const TokenizerPtr tokenizer = tokenizer_of(damaged);
        for (const std::int32_t token : tokenizer->encode(text)) {
          ASSERT_GE(token, 0);
          ASSERT_LT(token, tokenizer->vocabulary());
          ASSERT_NE(token, tokenizer->end_of_text());
        }
        tokenizer->cut(text + text + text);
        ++taken;
      } catch (const DataError& error) {
        EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 20);
}

}  // namespace
}  // namespace trireme
