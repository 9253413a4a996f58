// Text into shards: what stands in them, whatever the threads, and what is no text.
#include <algorithm>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/prepare_testing.h"
#include "support/sample_pictures.h"
#include "support/sample_text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

using testing::contents;
using testing::documents;
using testing::expect_fault;
using testing::message_of;
using testing::Prepare;
using testing::Texts;

TEST_F(Prepare, AFileIsADocument) {
  PrepareOptions options = this->options({write("a.txt", "first\n"), write("b.txt", "second")});
  const PrepareResult result = prepare(options);
  EXPECT_EQ(documents(result.train), (Texts{"first\n", "second"}));
  EXPECT_EQ(result.train.tokens, 6 + 1 + 6 + 1);
  EXPECT_EQ(result.train.original_bytes, 12);
  EXPECT_EQ(result.train.token_bytes, 2);
  EXPECT_EQ(result.train.vocabulary, 257);
  EXPECT_EQ(result.train.end_of_text, 256);
  EXPECT_EQ(result.train.split, "train");
  EXPECT_GT(result.train.data_offset, 0);
  EXPECT_FALSE(result.validation.has_value());
  for (const auto& entry : fs::directory_iterator(options.output)) {
    EXPECT_EQ(entry.path().filename(), "train.h5");  // nothing partial is left
  }
}

TEST_F(Prepare, WhatIsNoTextIsRefused) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> all = {
      // bad input: `prepare`: data packed otherwise, archives, pictures, containers of data | ...:
      // lz4
      // data, not text: take the text out of it first | 3
      {"lz4 data, not text", "\x04\x22\x4d\x18\x64"s},
      {"lz4 data, not text", "\x02\x21\x4c\x18\x64"s},
      {"a zip archive, not text", "PK\x03\x04\x14"s},
      {"an Arrow file, not text", "ARROW1\0\0"s},
      {"an HDF5 file, not text", "\x89HDF\r\n\x1a\n"s},
      {"an SQLite database, not text", "SQLite format 3\0"s},
      {"a PDF document, not text", "%PDF-1.7\n"s},
      // bad input: `prepare`: text in UTF-32, or in UTF-16 without its mark | ...: UTF-16 text:
      // convert it to UTF-8 first, as iconv does | 3
      {"UTF-16 text: convert it", "H\0i\0 \0y\0o\0u\0"s},
      {"UTF-32 text: convert it", "\xff\xfe\0\0H\0\0\0"s},
      {"UTF-32 text: convert it", "H\0\0\0\x16\x04\0\0\n\0\0\0"s},
      {"UTF-32 text: convert it", "\0\0\0H\0\1\xf6\0"s},
      // bad input: `prepare`: a zero byte near the beginning | ...: byte 3 is zero: binary data, or
      // text in another encoding than UTF-8 | 3
      {"byte 3 is zero: binary data, or text in another", "ab\0 and more of it"s},
      {"byte 8001 is zero", std::string(8000, 'x') + "\0"s},
      {"byte 6 is zero", "\x1f\x04@\x04 \0\x48\x04\n\0"s},  // UTF-16 that is not of Latin letters
      // bad input: `prepare`: binary data without a zero byte | ...: binary data, neither UTF-8 nor
      // another text | 3
      {"binary data, neither", "\x80\x04\x95\x10\x8c\x05hello\x94."s}};
  for (const auto& [words, bytes] : all) {
    const std::string path = write("folder/b.txt", bytes);
    write("folder/a.txt", "a text");
    PrepareOptions options = this->options({path});
    const std::string said = message_of<DataError>([&] { prepare(options); });
    EXPECT_NE(said.find(path + ": " + words), std::string::npos) << said;
    options.inputs = {fs::path(path).parent_path().string()};
    EXPECT_EQ(prepare(options).left_out.binary, 1) << words;
  }
  for (const std::string& text :
       {"PARENTS and ARROW1"s, "PK and BZh, %PDF\n"s, "caf\xe9 \x93quoted\x94, in cp1252\n\x1a"s,
        "\x1b[1mbold\x1b[0m \x01"s}) {
    EXPECT_EQ(documents(prepare(options({write("e.txt", text)})).train), Texts{text});
  }
}

// What a beginning does not tell becomes tokens, and is told.
TEST_F(Prepare, ZeroBytesFurtherOnAreTold) {
  using namespace std::string_literals;
  const std::string text = std::string(1500000, 'x') + "\0y\0"s;
  for (const int standard_input : {0, ::open(write("b.txt", text).c_str(), O_RDONLY)}) {
    PrepareOptions options = this->options({write("a.txt", "a"), write("b.txt", text)});
    options.standard_input = standard_input;
    if (standard_input > 0) options.inputs[1] = "-";
    const PrepareResult result = prepare(options);
    EXPECT_EQ(documents(result.train), (Texts{"a", text}));
    EXPECT_EQ(result.zero_bytes.count, 2u);
    EXPECT_EQ(result.zero_bytes.first, 1500001u);
    EXPECT_EQ(result.zero_bytes.first_in,
              standard_input > 0 ? "standard input" : options.inputs[1]);
  }
  EXPECT_EQ(prepare(options({write("a.txt", "a")})).zero_bytes.count, 0u);
}

TEST_F(Prepare, FoldersAreReadInOrderOfPaths) {
  write("in/b/2.txt", "two");
  write("in/a/1.txt", "one");
  write("in/c.txt", "three");
  write("in/empty.txt", "");
  EXPECT_EQ(documents(prepare(options({(folder_.path() / "in").string()})).train),
            (Texts{"one", "two", "three"}));
}

TEST_F(Prepare, SeparatorsCutDocuments) {
  PrepareOptions options =
      this->options({write("a.txt", "==one==two====three="), write("b", "=x==")});
  options.document_separator = "==";
  EXPECT_EQ(documents(prepare(options).train), (Texts{"one", "two", "three=", "=x"}));
}

TEST_F(Prepare, SeparatorsAreFoundWhereverChunksEnd) {
  // Chunks are 1 MiB: the k-th separator begins k bytes before a chunk ends.
  Texts expected;
  std::string text;
  for (std::size_t k = 1; k <= 6; ++k) {
    expected.push_back(std::string((k << 20) - k - text.size(), static_cast<char>('a' + k)));
    text += expected.back() + "<sep>";
  }
  PrepareOptions options = this->options({write("a.txt", text)});
  options.document_separator = "<sep>";
  EXPECT_EQ(documents(prepare(options).train), expected);
}

TEST_F(Prepare, StandardInputIsStreamed) {
  const std::string text = testing::sample_text(3000000, 1);
  const std::string path = write("a.txt", text);
  std::FILE* pipe = ::popen(("cat " + path).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  PrepareOptions options = this->options({"-"});
  options.standard_input = ::fileno(pipe);
  options.tokenizer = parse_tokenizer_choice("bpe:320");
  options.sample_bytes = 50000;
  options.validation = parse_validation_split("tail:100000");
  const PrepareResult result = prepare(options);
  ::pclose(pipe);
  EXPECT_EQ(documents(result.train), Texts{text.substr(0, 2900000)});
  EXPECT_EQ(documents(*result.validation), Texts{text.substr(2900000)});
}

TEST_F(Prepare, PiecesDoNotShow) {
  // Lines short, long, and longer than a piece.
  const std::string text = testing::sample_text(2500000, 2) + std::string(3000000, 'e') + "\n" +
                           testing::sample_text(1200000, 3);
  PrepareOptions options = this->options({write("a.txt", text)});
  options.tokenizer = parse_tokenizer_choice("bpe:400");
  options.sample_bytes = 100000;
  const PrepareResult result = prepare(options);
  std::vector<std::int32_t> expected = result.tokenizer->encode(text);
  expected.push_back(result.tokenizer->end_of_text());
  const auto raw = hdf5::File::open(result.train.path).dataset("/tokens").read<std::uint16_t>();
  EXPECT_TRUE(std::vector<std::int32_t>(raw.begin(), raw.end()) == expected);
}

// A tokenizer.json cuts long documents only where that changes no token.
TEST_F(Prepare, PiecesDoNotShowWithATokenizerFile) {
  std::string text = testing::sample_text(1500000, 4);
  for (std::size_t at = 0; at < text.size(); at += 997)
    text.insert(at, " <think>\n\n 1234 e\xcc\x81");
  text += std::string(1500000, ' ') + testing::sample_text(1200000, 5) + "\xff\xc3" +
          text.substr(0, 70000);
  // The pattern of GPT-2 takes two line ends for one part only where nothing follows.
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += std::string(60, 'x') + "\n\n";
  PrepareOptions options = this->options({});
  for (const std::string& document : {text, lines}) {
    options.inputs = {write("a.txt", document)};
    for (const char* name : {"gpt2", "llama3", "qwen2", "bert_uncased"}) {
      options.tokenizer =
          parse_tokenizer_choice(fmt::format("{}/{}.json", TRIREME_TOKENIZERS, name));
      options.threads = 2;
      const PrepareResult result = prepare(options);
      std::vector<std::int32_t> expected;
      if (const auto begin = result.tokenizer->begin_of_text()) expected.push_back(*begin);
      EXPECT_EQ(expected.size(), name == std::string("llama3") ? 1 : 0) << name;
      result.tokenizer->encode(document, expected);
      expected.push_back(result.tokenizer->end_of_text());
      const auto raw = hdf5::File::open(result.train.path).dataset("/tokens").read<std::uint16_t>();
      EXPECT_TRUE(std::vector<std::int32_t>(raw.begin(), raw.end()) == expected)
          << name << ": " << document.substr(0, 70);
      EXPECT_EQ(read_token_shard_info(result.train.path).tokenizer_model,
                contents(options.tokenizer.path));
    }
  }
  // bad input: `prepare`: 64 MiB of text that is one word to a tokenizer.json | 64 MiB of a
  // document have no place where the tokenizer (...) can cut them: is this text?
  // --document-separator cuts files into documents (read as far as word.txt) | 3
  options.inputs = {write("before.txt", "a word"),
                    write("word.txt", std::string(std::size_t{65} << 20, 'a'))};
  expect_fault<DataError>(options, "(read as far as " + options.inputs.back() + ")");
}

TEST_F(Prepare, DocumentsBeginWithTheirToken) {
  PrepareOptions options = this->options({write("a.txt", "one\x01two\x01three")});
  options.document_separator = "\x01";
  const auto shard = [&](const DocumentTokens& around) {
    options.tokenizer =
        parse_tokenizer_choice(fmt::format("{}/llama3.json", TRIREME_TOKENIZERS), around);
    return prepare(options).train;
  };
  const TokenShardInfo plain = shard({.begin_of_text = "none"});
  EXPECT_EQ(plain.begin_of_text, std::nullopt);
  const TokenShardInfo begun = shard({});
  EXPECT_EQ(begun.tokens, plain.tokens + 3);
  EXPECT_EQ(begun.original_bytes, plain.original_bytes);
  EXPECT_EQ(documents(begun), (Texts{"one", "two", "three"}));
  const auto file = hdf5::File::open(begun.path);
  const auto tokens = file.dataset("/tokens").read<std::uint16_t>();
  for (const std::uint64_t start : file.dataset("/documents").read<std::uint64_t>()) {
    EXPECT_EQ(tokens[start], begun.begin_of_text);
  }
  // One token that begins and ends texts stands once between two.
  const std::string end = "<|end_of_text|>";
  const TokenShardInfo both = shard({.begin_of_text = end, .end_of_text = end});
  EXPECT_EQ(both.tokens, plain.tokens);
  EXPECT_EQ(both.begin_of_text, both.end_of_text);
  // bad input: `prepare`: --begin-of-text with a tokenizer that is made here | --begin-of-text is
  // for a tokenizer that others made; bpe:400 has no begin of text | 2
  EXPECT_THROW(parse_tokenizer_choice("bpe:400", {.begin_of_text = "<s>"}), ConfigError);
  EXPECT_NO_THROW(parse_tokenizer_choice("byte", {.begin_of_text = "none"}));
}

TEST_F(Prepare, ThreadsDoNotShow) {
  std::string text;
  for (unsigned i = 0; i < 300; ++i) text += testing::sample_text(100 + 97 * i, i) + "\x01";
  PrepareOptions options = this->options({write("a.txt", text)});
  options.document_separator = "\x01";
  options.tokenizer = parse_tokenizer_choice("unigram:350");
  options.sample_bytes = 150000;
  options.validation = parse_validation_split("hash:0.2");
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    options.output = output(fmt::format("out{}", threads));
    prepare(options);
  }
  for (const char* name : {"train.h5", "validation.h5"}) {
    const std::string first = contents(output("out1") + "/" + name);
    EXPECT_FALSE(first.empty());
    EXPECT_TRUE(contents(output("out2") + "/" + name) == first) << name;
    EXPECT_TRUE(contents(output("out5") + "/" + name) == first) << name;
  }
}

TEST_F(Prepare, LimitTakesTheFirstBytesOfAllInputs) {
  PrepareOptions options = this->options({write("a", "aaaa"), write("b", "bbbb"), write("c", "c")});
  options.input_limit = 6;
  EXPECT_EQ(documents(prepare(options).train), (Texts{"aaaa", "bb"}));
  options.input_limit = 8;
  EXPECT_EQ(documents(prepare(options).train), (Texts{"aaaa", "bbbb"}));
}

TEST_F(Prepare, ReportsProgress) {
  const std::string text = testing::sample_text(3000000, 1);
  PrepareOptions options = this->options({write("a.txt", text)});
  std::vector<PrepareProgress> reports;
  options.progress = [&](const PrepareProgress& report) { reports.push_back(report); };
  prepare(options);
  ASSERT_GE(reports.size(), 4u);
  EXPECT_EQ(reports.back().bytes_read, text.size());
  EXPECT_EQ(reports.back().bytes_total, text.size());
  EXPECT_EQ(reports.back().made, text.size() + 1);
}

TEST_F(Prepare, LargeVocabulariesTakeFourBytes) {
  // A vocabulary above 65536 by hand: byte tokens plus many pieces would take minutes to train.
  class Wide final : public Tokenizer {
   public:
    Wide() { set_vocabulary(std::vector<std::string>(70000, "x"), 69999, {}); }
    std::string_view kind() const override { return "byte"; }
    std::string description() const override { return "wide"; }
    const std::string& model() const override { return model_; }
    void add_tokens(std::string_view, TextPart, std::vector<std::int32_t>&) const override {}

   private:
    std::string model_;
  };
  TokenShardWriter writer(output() + ".h5", std::make_shared<Wide>(), "train", "test");
  const std::vector<std::int32_t> tokens = {0, 65535, 65536, 69998, 69999};
  const std::vector<std::uint64_t> starts = {0};
  writer.append(tokens, starts, 4);
  const TokenShardInfo info = writer.commit();
  EXPECT_EQ(info.token_bytes, 4);
  verify_token_shard(info.path);
  EXPECT_EQ(hdf5::File::open(info.path).dataset("/tokens").read<std::uint32_t>(),
            (std::vector<std::uint32_t>{0, 65535, 65536, 69998, 69999}));
}

TEST_F(Prepare, RefusesBadInput) {
  const std::string missing = output("missing.txt");
  expect_fault<DataError>(options({missing}), missing);
  expect_fault<DataError>(options({}), "no input");
  const std::string empty = write("empty.txt", "");
  expect_fault<DataError>(options({empty}), "no text in " + empty);
  fs::create_directories(folder_.path() / "nothing");
  expect_fault<DataError>(options({output("nothing")}), "no files in");
  PrepareOptions trained = options({empty});
  trained.tokenizer = parse_tokenizer_choice("bpe:400");
  expect_fault<DataError>(trained, "no text");
  EXPECT_FALSE(fs::exists(output() + "/train.h5"));

  const std::string text = write("text.txt", "some text");
  if (::geteuid() != 0) {  // root reads everything
    fs::permissions(text, fs::perms::none);
    expect_fault<DataError>(options({text}), text);
    fs::permissions(text, fs::perms::owner_all);
  }
  PrepareOptions split = options({text});
  split.validation = parse_validation_split("tail:9");
  expect_fault<DataError>(split, "takes all");
  split.validation = parse_validation_split("hash:0.000001");
  expect_fault<DataError>(split, "draws none");
  PrepareOptions threads = options({text});
  threads.threads = 0;
  expect_fault<ConfigError>(threads, "threads");
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(Prepare, WhatCannotBeReadIsNotLeftOut) {
  write("in/a.txt", "some text");
  fs::create_symlink("nowhere", folder_.path() / "in/dangling");
  expect_fault<DataError>(options({(folder_.path() / "in").string()}),
                          "in/dangling: it is a link, and what it names does not exist");
  fs::remove(folder_.path() / "in/dangling");
  fs::create_symlink("loop", folder_.path() / "in/loop");
  expect_fault<DataError>(options({(folder_.path() / "in").string()}), "in/loop: cannot be read");
  fs::remove(folder_.path() / "in/loop");
  fs::create_symlink("..", folder_.path() / "in/above");  // is not followed for ever
  EXPECT_EQ(documents(prepare(options({(folder_.path() / "in").string()})).train),
            (Texts{"some text"}));
}

TEST(PrepareOptions, AreParsed) {
  EXPECT_EQ(parse_validation_split("none").rule, ValidationSplit::Rule::kNone);
  EXPECT_EQ(parse_validation_split("hash:0.25").fraction, 0.25);
  EXPECT_EQ(parse_validation_split("tail:2000000").bytes, 2000000u);
  for (const char* bad : {"", "hash", "hash:", "hash:0", "hash:1", "hash:-0.1", "hash:x",
                          "tail:", "tail:0", "tail:-1", "tail:1.5", "tail:5x", "head:3"}) {
    EXPECT_THROW(parse_validation_split(bad), ConfigError) << bad;
  }
  EXPECT_EQ(parse_tokenizer_choice("byte").kind, TokenizerChoice::Kind::kByte);
  EXPECT_EQ(parse_tokenizer_choice("bpe:4096").training.vocabulary, 4096);
  EXPECT_EQ(parse_tokenizer_choice("unigram:500").training.algorithm,
            SentencePieceTraining::Algorithm::kUnigram);
  for (const char* bad : {"", "bpe", "bpe:", "bpe:0", "bpe:-5", "bpe:4k", "/no/such.model"}) {
    EXPECT_THROW(parse_tokenizer_choice(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace trireme
