// Every tokenizer gives back every byte string.
#include "trireme/io/tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "support/sample_text.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Algorithm = SentencePieceTraining::Algorithm;

// Trained once for the whole program: it takes most of the time.
const TokenizerPtr& trained(Algorithm algorithm) {
  static const std::string text = testing::sample_text(200000, 1);
  static const TokenizerPtr bpe = train_sentencepiece(text, {Algorithm::kBpe, 500});
  static const TokenizerPtr unigram = train_sentencepiece(text, {Algorithm::kUnigram, 400});
  return algorithm == Algorithm::kBpe ? bpe : unigram;
}

std::vector<TokenizerPtr> all_tokenizers() {
  return {make_byte_tokenizer(), trained(Algorithm::kBpe), trained(Algorithm::kUnigram)};
}

void expect_lossless(const Tokenizer& tokenizer, const std::string& text, const std::string& what) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(tokens), text) << tokenizer.description() << ": " << what;
  for (const std::int32_t token : tokens) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, tokenizer.vocabulary());
    ASSERT_NE(token, tokenizer.end_of_text()) << what;
  }
}

std::string random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(count, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(Tokenizer, LosesNothing) {
  const std::vector<std::pair<const char*, std::string>> texts = {
      {"nothing", ""},
      {"words", "The quick brown fox jumps over the lazy dog."},
      {"newlines", "\n\na\r\n\n\nb\n"},
      {"runs of spaces", "  a   b    \n     c \t\t  d  "},
      {"zero bytes", std::string("\0a\0\0b \0", 7)},
      {"a literal U+2581",
       "a\xe2\x96\x81"
       "b \xe2\x96\x81\xe2\x96\x81 c"},
      {"halves of U+2581", "a\xe2\x96 \x96\x81 \xe2\x81"},
      {"a stray byte", "caf\xc3 \xff\xfe caf\xc3\xa9"},
      {"overlong, surrogate, too large", "\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80"},
      {"truncated at the end", "abc\xf0\x9f\x98"},
      {"other scripts",
       "\xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80 \xd0\x96 \xef\xbb\xbf x\xcc\x81"},
      {"names of special pieces", "<s></s><unk><pad><0x41><|endoftext|>\xe2\x96\x85"},
      {"replacement character", "\xef\xbf\xbd"},
  };
  for (const TokenizerPtr& tokenizer : all_tokenizers()) {
    for (const auto& [what, text] : texts) expect_lossless(*tokenizer, text, what);
    for (unsigned seed = 0; seed < 200; ++seed) {
      expect_lossless(*tokenizer, random_bytes(seed * 3, seed), "random bytes");
    }
    expect_lossless(*tokenizer, random_bytes(100000, 7), "many random bytes");
    expect_lossless(*tokenizer, std::string(100000, 'x'), "a long line");
    expect_lossless(*tokenizer, std::string(100000, ' '), "a long line of spaces");
    std::string wide;
    for (int i = 0; i < 30000; ++i) wide += "\xe6\x97\xa5";
    expect_lossless(*tokenizer, wide, "a long line of wide characters");
  }
}

// A real text, where one is given: TRIREME_TEST_TEXT=FILE.
TEST(Tokenizer, LosesNothingOfARealText) {
  const char* path = std::getenv("TRIREME_TEST_TEXT");
  if (!path) GTEST_SKIP() << "TRIREME_TEST_TEXT names no file";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty()) << path;
  for (const Algorithm algorithm : {Algorithm::kBpe, Algorithm::kUnigram}) {
    const auto tokenizer = train_sentencepiece(text.substr(0, 1000000), {algorithm, 1000});
    expect_lossless(*tokenizer, text, path);
    EXPECT_LT(tokenizer->encode(text).size(), text.size() / 2);
  }
}

TEST(Tokenizer, EveryByteAlone) {
  for (const TokenizerPtr& tokenizer : all_tokenizers()) {
    for (int b = 0; b < 256; ++b) {
      expect_lossless(*tokenizer, std::string(1, static_cast<char>(b)), fmt::format("byte {}", b));
    }
  }
}

TEST(Tokenizer, MayBeCutAtNewlinesAndSegments) {
  std::string text = testing::sample_text(50000, 2);
  text += std::string(Tokenizer::kSegmentBytes * 3 + 5, 'e');  // one line
  for (const TokenizerPtr& tokenizer : all_tokenizers()) {
    const std::vector<std::int32_t> whole = tokenizer->encode(text);
    const std::size_t line = text.rfind('\n') + 1;
    for (const std::size_t cut :
         {text.find('\n', 20000) + 1, line, line + Tokenizer::kSegmentBytes * 2}) {
      std::vector<std::int32_t> parts = tokenizer->encode(text.substr(0, cut));
      tokenizer->encode(std::string_view(text).substr(cut), parts);
      EXPECT_EQ(parts, whole) << tokenizer->description() << " cut at " << cut;
    }
  }
}

TEST(Tokenizer, ComesBackFromItsModel) {
  const std::string text = testing::sample_text(5000, 3);
  for (const TokenizerPtr& tokenizer : all_tokenizers()) {
    const TokenizerPtr again = make_tokenizer(tokenizer->kind(), tokenizer->model());
    EXPECT_EQ(again->vocabulary(), tokenizer->vocabulary());
    EXPECT_EQ(again->end_of_text(), tokenizer->end_of_text());
    EXPECT_EQ(again->encode(text), tokenizer->encode(text));
  }
}

TEST(Tokenizer, HasTheVocabularyAskedForAndUsesIt) {
  EXPECT_EQ(make_byte_tokenizer()->vocabulary(), 257);
  EXPECT_EQ(trained(Algorithm::kBpe)->vocabulary(), 500);
  EXPECT_EQ(trained(Algorithm::kUnigram)->vocabulary(), 400);
  const std::string text = testing::sample_text(20000, 4);
  for (const Algorithm algorithm : {Algorithm::kBpe, Algorithm::kUnigram}) {
    EXPECT_LT(trained(algorithm)->encode(text).size(), text.size() / 2);
  }
}

TEST(Tokenizer, TellsItsSpecialTokensByName) {
  EXPECT_TRUE(make_byte_tokenizer()->special_tokens().empty());
  const Tokenizer& bpe = *trained(Algorithm::kBpe);
  EXPECT_EQ(bpe.special_token("<|endoftext|>"), bpe.end_of_text());
  EXPECT_EQ(bpe.special_token("<unk>"), 0);
  EXPECT_EQ(bpe.special_token("[MASK]"), std::nullopt);
  EXPECT_EQ(bpe.special_tokens().size(), 2u);
}

TEST(Tokenizer, TrainingIsAFunctionOfTheSample) {
  const std::string text = testing::sample_text(100000, 5);
  for (const Algorithm algorithm : {Algorithm::kBpe, Algorithm::kUnigram}) {
    EXPECT_EQ(train_sentencepiece(text, {algorithm, 350})->model(),
              train_sentencepiece(text, {algorithm, 350})->model());
  }
}

TEST(Tokenizer, LoadsAModelFile) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "x.model").string();
  std::ofstream(path, std::ios::binary) << trained(Algorithm::kBpe)->model();
  const TokenizerPtr loaded = load_tokenizer(path);
  const std::string text = "  two  spaces and\xff\n";
  EXPECT_EQ(loaded->encode(text), trained(Algorithm::kBpe)->encode(text));
  expect_lossless(*loaded, text, "a loaded model");
}

// Models made by others often add a space in front and fold characters. tokenizer_pypi_test
// compares their tokens with SentencePiece's.
TEST(Tokenizer, LoadsAModelWithItsNormalisation) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "x.model").string();
  const auto loaded = [&](std::string_view normalizer) {
    std::ofstream(path, std::ios::binary) << trained(Algorithm::kBpe)->model() << normalizer;
    return load_tokenizer(path);
  };
  const TokenizerPtr plain = trained(Algorithm::kBpe);
  // NormalizerSpec: add_dummy_prefix, remove_extra_whitespaces.
  const TokenizerPtr prefix = loaded({"\x1a\x04\x18\x01\x20\x00", 6});
  EXPECT_EQ(prefix->kind(), "sentencepiece:exact");
  EXPECT_EQ(prefix->encode("word  two "), plain->encode(" word  two "));
  EXPECT_EQ(prefix->decode(prefix->encode("word  two ")), "word  two ");
  EXPECT_EQ(prefix->decode(prefix->encode("a\xff\n b\xc3")), "a\xff\n b\xc3");
  const TokenizerPtr both = loaded({"\x1a\x04\x18\x01\x20\x01", 6});
  EXPECT_EQ(both->encode("  word  two \n "), plain->encode(" word two \n"));
  EXPECT_EQ(both->encode("  "), std::vector<std::int32_t>());
  const TokenizerPtr again = make_tokenizer(both->kind(), both->model());
  EXPECT_EQ(again->encode(" a  b"), both->encode(" a  b"));
  // bad input: `prepare`: a SentencePiece model that is not supported, or whose map of characters
  // is damaged | PATH: treat_whitespace_as_suffix of SentencePiece is not supported; PATH: its
  // precompiled_charsmap is cut short | 3
  EXPECT_THROW(loaded({"\x12\x03\xc0\x01\x01", 5}), DataError);
  EXPECT_THROW(loaded({"\x1a\x02\x28\x00", 4}), DataError);
  EXPECT_THROW(loaded({"\x1a\x05\x12\x03"
                       "abc",
                       7}),
               DataError);
}

// tokenizer_pypi_test compares the tokens of whole models with SentencePiece's.
TEST(Tokenizer, ReadsAModelWithoutBytes) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "x.model").string();
  // ModelProto with the pieces <unk> (unknown) and "a" (normal), and then </s> (control).
  std::string model(
      "\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x03\x0a\x01"
      "a",
      16);
  std::ofstream(path, std::ios::binary) << model;
  // bad input: `prepare --tokenizer`: a SentencePiece model without an end-of-text, begin-of-text
  // or padding piece | PATH: the SentencePiece model has no piece that can end a text | 3
  const std::string said = testing::message_of<DataError>([&] { load_tokenizer(path); });
  EXPECT_NE(said.find("has no piece that can end a text"), std::string::npos) << said;
  // Without dummy prefix and removal of spaces.
  model += std::string("\x0a\x08\x0a\x04</s>\x18\x03\x1a\x04\x18\x00\x20\x00", 16);
  std::ofstream(path, std::ios::binary) << model;
  const TokenizerPtr tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->kind(), "sentencepiece:exact");
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  // Unknown characters beside each other are one piece, also where texts are taken in units.
  const std::vector<std::int32_t> tokens = tokenizer->encode(
      "ab \n c\xff\xc3\xa9"
      "a a");
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 0, 1, 0, 1}));
  EXPECT_EQ(tokenizer->decode(tokens), "a \u2047 a \u2047 a");
  // A cut between two of them would make two pieces.
  EXPECT_EQ(tokenizer->cut("ab c d e"), 0u);
  EXPECT_EQ(tokenizer->cut("ba c d e"), 2u);
  EXPECT_THROW(make_tokenizer("sentencepiece", tokenizer->model()), DataError);
}

TEST(Tokenizer, RefusesWhatIsNoModel) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "x.model").string();
  EXPECT_THROW(load_tokenizer(path), ConfigError);
  // A file without an end, as a wrong path may be, is not read to its end.
  // bad input: `prepare`: a tokenizer's file of more than 63 MiB | the tokenizer PATH: cannot be
  // read: it is longer than 63 MiB | 2
  try {
    load_tokenizer("/dev/zero");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "the tokenizer /dev/zero: cannot be read: it is longer than 63 MiB");
  }
  std::ofstream(path) << "";
  EXPECT_THROW(load_tokenizer(path), DataError);
  std::ofstream(path) << "this is not a model";
  EXPECT_THROW(load_tokenizer(path), DataError);
  EXPECT_THROW(make_tokenizer("morse", ""), DataError);
  EXPECT_THROW(make_tokenizer("sentencepiece", "rubbish"), DataError);
  EXPECT_THROW(make_tokenizer("sentencepiece", ""), DataError);
  EXPECT_THROW(train_sentencepiece("text", {Algorithm::kBpe, 299}), ConfigError);
  EXPECT_THROW(train_sentencepiece("too short", {Algorithm::kBpe, 4096}), DataError);
  EXPECT_THROW(train_sentencepiece("too short", {Algorithm::kUnigram, 4096}), DataError);
  EXPECT_THROW(train_sentencepiece("", {Algorithm::kBpe, 400}), DataError);
}

TEST(Tokenizer, ChecksTokens) {
  const TokenizerPtr tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->bytes_of(65), "A");
  EXPECT_EQ(tokenizer->bytes_of(256), "");
  EXPECT_THROW(tokenizer->bytes_of(257), InternalError);
  EXPECT_THROW(tokenizer->bytes_of(-1), InternalError);
}

}  // namespace
}  // namespace trireme
