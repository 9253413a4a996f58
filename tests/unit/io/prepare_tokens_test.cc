// Tokens that other programs have made become shards, whatever the files.
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/prepare_testing.h"
#include "support/sample_pictures.h"

namespace trireme {
namespace {

using testing::contents;
using testing::documents;
using testing::expect_fault;
using testing::Prepare;
using testing::Texts;

using Tokens = std::vector<std::int64_t>;

template <class T>
std::string packed(const Tokens& tokens) {
  std::string bytes;
  for (const std::int64_t token : tokens) {
    const T value = static_cast<T>(token);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  return bytes;
}

// What numpy.save writes.
template <class T>
std::string array(const Tokens& tokens, const std::string& type) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                   type, tokens.size());
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\0", 8) + packed<std::uint16_t>({118}) + header +
         packed<T>(tokens);
}

std::string llm_c(const Tokens& tokens, int magic, const std::string& bytes) {
  Tokens header(256);
  header[0] = magic;
  header[1] = magic == 20240801 ? 7 : 1;
  header[2] = static_cast<std::int64_t>(tokens.size());
  return packed<std::int32_t>(header) + bytes;
}

// Documents of one or two sequences, as IndexedDatasetBuilder writes them.
std::string index_of(const std::vector<Tokens>& sequences, const Tokens& ends, int code,
                     int width) {
  Tokens lengths, pointers, documents = {0};
  std::int64_t at = 0;
  for (const Tokens& sequence : sequences) {
    lengths.push_back(std::ssize(sequence));
    pointers.push_back(at);
    at += std::ssize(sequence) * width;
  }
  documents.insert(documents.end(), ends.begin(), ends.end());
  return std::string("MMIDIDX\0\0", 9) + packed<std::uint64_t>({1}) + static_cast<char>(code) +
         packed<std::uint64_t>({std::ssize(sequences), std::ssize(documents)}) +
         packed<std::int32_t>(lengths) + packed<std::int64_t>(pointers) +
         packed<std::int64_t>(documents);
}

class PrepareTokens : public Prepare {
 protected:
  PrepareOptions options(const std::vector<std::string>& inputs) const {
    PrepareOptions options = Prepare::options(inputs);
    options.tokens = true;
    options.tokenizer = parse_numbers_choice(50000, {.end_of_text = "9"});
    return options;
  }
  static std::string tokens_of(const PrepareResult& result) {
    verify_token_shard(result.train.path);
    std::string text;
    const auto file = hdf5::File::open(result.train.path);
    for (const auto token : file.dataset("/tokens").read<std::uint16_t>()) {
      text += fmt::format("{} ", token);
    }
    return text + fmt::format("/ {}", result.train.documents);
  }
};

TEST_F(PrepareTokens, AllFilesOfTokensAreRead) {
  const Tokens tokens = {1, 2, 300, 9, 4, 9, 40000, 6};
  const std::string expected = "1 2 300 9 4 9 40000 6 9 / 3";
  const Tokens first = {9, 1, 2, 300, 9, 4, 9, 40000, 6};  // llm.c ends texts at their beginning
  const std::vector<std::pair<std::string, std::string>> files = {
      {"nanogpt.bin", packed<std::uint16_t>(tokens)},
      {"llmc.bin", llm_c(first, 20240520, packed<std::uint16_t>(first))},
      {"llmc3.bin", llm_c(first, 20240801, packed<std::uint32_t>(first))},
      {"a.npy", array<std::uint16_t>(tokens, "<u2")},
      {"b.npy", array<std::int32_t>(tokens, "<i4")},
      {"c.npy", array<std::int64_t>(tokens, "<i8")},
      {"d.npy", array<std::uint64_t>(tokens, "<u8")}};
  for (const auto& [name, bytes] : files) {
    const PrepareResult result = prepare(options({write(name, bytes)}));
    EXPECT_EQ(tokens_of(result), expected) << name;
    EXPECT_EQ(result.train.vocabulary, 50000);
    EXPECT_EQ(result.train.end_of_text, 9);
    EXPECT_EQ(result.train.original_bytes, 0);
    EXPECT_EQ(result.train.tokenizer_kind, "numbers");
  }
  const std::vector<Tokens> sequences = {{1, 2}, {300}, {4, 9}, {}, {40000, 6}};
  const Tokens all = {1, 2, 300, 4, 9, 40000, 6};
  const std::string path = write("m/m.bin", packed<std::int32_t>(all));
  write("m/m.idx", index_of(sequences, {2, 3, 4, 5}, 4, 4));
  EXPECT_EQ(tokens_of(prepare(options({path}))), expected);
  write("m/m.bin", packed<std::uint16_t>(all));
  write("m/m.idx", index_of(sequences, {2, 3, 4, 5}, 8, 2));
  EXPECT_EQ(tokens_of(prepare(options({(folder_.path() / "m").string()}))), expected);
}

TEST_F(PrepareTokens, WithTheirTokenizerTheyAreText) {
  PrepareOptions made = Prepare::options({write("a.txt", "some text"), write("b.txt", "and more")});
  made.tokenizer = parse_tokenizer_choice(fmt::format("{}/gpt2.json", TRIREME_TOKENIZERS));
  const PrepareResult first = prepare(made);
  const auto file = hdf5::File::open(first.train.path).dataset("/tokens").read<std::uint16_t>();
  PrepareOptions options =
      this->options({write("a.bin", packed<std::uint16_t>({file.begin(), file.end()}))});
  options.tokenizer = made.tokenizer;
  options.output = output("again");
  const PrepareResult again = prepare(options);
  EXPECT_EQ(documents(again.train), (Texts{"some text", "and more"}));
  EXPECT_EQ(again.train.original_bytes, first.train.original_bytes);
  EXPECT_EQ(again.train.checksum, first.train.checksum);
}

// Documents longer than what is read at a time, and a tail in tokens.
TEST_F(PrepareTokens, LongDocumentsAreOne) {
  Tokens tokens(900000);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = 10 + static_cast<std::int64_t>(i % 40000);
  tokens[100] = tokens[899000] = 9;
  PrepareOptions options = this->options({write("a.bin", packed<std::uint16_t>(tokens))});
  options.validation = parse_validation_split("tail:1500");
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.train.documents, 2);
  EXPECT_EQ(result.train.tokens, 899001);
  EXPECT_EQ(result.validation->tokens, 1000);  // from a document's beginning
  EXPECT_EQ(verify_token_shard(result.validation->path).documents, 1);
}

// What --tokens does not take: text, other formats, numbers of another width.
TEST_F(PrepareTokens, OtherFilesAreRefused) {
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           const std::string& words) {
    expect_fault<DataError>(options({write(name, bytes)}), name + ": " + words);
  };
  // bad input: `prepare --tokens`: a text or another known format | ...: a text, not tokens:
  // --tokens takes .npy, llm.c's and nanoGPT's .bin, and Megatron's with its .idx | 3
  refused("a.txt", "Text of an even length.\n", "a text, not tokens: --tokens takes .npy, llm.c's");
  refused("b", "caf\xe9 " + std::string(600, 'x'), "a text, not tokens");
  refused("c.tar", testing::make_tar({{"a", "b"}}), "a tar archive, not tokens");
  refused("d.gz", testing::compressed(std::string(2000, 'x'), "gzip"), "gzip data, not tokens");
  refused("meta.pkl", std::string("\x80\x04\x95\x10\0\0\0\0", 8), "a pickle of Python, not tokens");
  // bad input: `prepare --tokens`: Megatron's .idx | ...: an index of Megatron's: name the .bin
  // that it tells of, beside it | 3
  refused("m.idx", index_of({{1}}, {1}, 8, 2), "an index of Megatron's: name the .bin");
  Tokens tokens(3000), small(3000);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = 10 + static_cast<std::int64_t>(i * i % 49000);
    small[i] = static_cast<std::int64_t>(i % 65);
  }
  // bad input: `prepare --tokens`: numbers of 4 bytes that nothing in the file tells | ...: its
  // numbers look like tokens of 4 bytes: --token-type uint32 | 3
  const std::string wide = packed<std::uint32_t>(tokens), name = write("w.bin", wide);
  refused("w.bin", wide, "its numbers look like tokens of 4 bytes: --token-type uint32");
  PrepareOptions options = this->options({name});
  options.raw_token_bytes = 4;
  const std::string as_words = tokens_of(prepare(options));
  options.raw_token_bytes = 2;
  options.inputs = {write("n.bin", packed<std::uint16_t>(tokens))};
  EXPECT_EQ(tokens_of(prepare(options)), as_words);
  options.inputs = {write("s.bin", packed<std::uint16_t>(small))};  // as UTF-16 looks
  EXPECT_EQ(prepare(options).train.documents, 47);
}

TEST_F(PrepareTokens, FoldersMayHoldOtherFiles) {
  const std::string folder = (folder_.path() / "f").string();
  write("f/train.bin", packed<std::uint16_t>({1, 2, 9}));
  write("f/a.npy", array<std::uint16_t>({3}, "<u2"));
  write("f/floats.npy", array<std::uint32_t>({1, 2}, "<f4"));
  write("f/README.md", "# How these were made");
  write("f/meta.pkl", std::string(100, '\1'));
  write("f/lone.idx", index_of({{1}}, {1}, 8, 2));
  write("f/.hidden", "x");
  const PrepareResult result = prepare(options({folder}));
  EXPECT_EQ(tokens_of(result), "3 9 1 2 9 / 2");
  EXPECT_EQ(result.left_out.hidden, 1);
  EXPECT_EQ(result.left_out.lacking, 4);
  EXPECT_EQ(result.left_out.first_lacking,
            folder + "/README.md: nothing in it says that it holds tokens, and it is no .bin");
  write("f/text.bin", "This is no file of tokens.");
  EXPECT_EQ(prepare(options({folder})).left_out.lacking, 5);
  write("f/wide.bin", packed<std::uint32_t>(Tokens(20, 1000)));
  expect_fault<DataError>(options({folder}), "wide.bin: its numbers look like tokens of 4 bytes");
  write("g/README.md", "# How these were made");
  // bad input: `prepare --tokens`: a folder without files of tokens | there are no files of tokens
  // in
  // ...: 1 other file (...: nothing in it says that it holds tokens, and it is no .bin) | 3
  expect_fault<DataError>(options({(folder_.path() / "g").string()}), "g: 1 other file (");
}

TEST_F(PrepareTokens, BadFilesAreRefused) {
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           const std::string& words) {
    expect_fault<DataError>(options({write(name, bytes)}), name + ": " + words);
  };
  // bad input: `prepare --tokens`: a token that is not in the vocabulary | ...: token 2 of 3
  // (tokens as uint16) is 60000, of a vocabulary of 50000 | 3
  refused("a.bin", packed<std::uint16_t>({1, 60000, 2}),
          "token 2 of 3 (tokens as uint16) is 60000, of a vocabulary of 50000");
  refused("a.npy", array<std::int32_t>({-1}, "<i4"), "token 1 of 1 (a NumPy array) is -1");
  // bad input: `prepare --tokens`: a file that is cut or damaged | ...: damaged: tokens of llm.c of
  // 3 tokens of 2 bytes, in 1028 bytes | 3
  refused("b.bin", llm_c({1, 2, 3}, 20240520, packed<std::uint16_t>({1, 2})),
          "damaged: tokens of llm.c of 3 tokens of 2 bytes, in 1028 bytes");
  refused("b.bin", llm_c({1}, 20240520, "").substr(0, 600),
          "damaged: the header of llm.c's tokens takes 1024 bytes, and it has 600");
  refused("c.bin", "abc", "3 bytes are no tokens of 2 bytes");
  const std::string whole = array<std::uint16_t>({1, 2}, "<u2");
  for (std::size_t size = 8; size < whole.size(); ++size)
    refused("c.npy", whole.substr(0, size), "");
  // bad input: `prepare --tokens`: an array of other numbers, or of several dimensions | ...: an
  // array of type '<f4' and shape (2,); tokens are one row of integers, little-endian | 3
  refused("d.npy", array<std::uint32_t>({1, 2}, "<f4"),
          "an array of type '<f4' and shape (2,); tokens");
  refused("e.npz", "PK\x03\x04zzzz", "a zip archive, such as .npz");
  // bad input: `prepare --tokens`: an index of Megatron's that is damaged | ...: damaged: it tells
  // of 2 tokens, and its .bin has 3 | 3
  const std::string bin = write("m.bin", packed<std::uint16_t>({1, 2, 3}));
  const auto index = [&](const std::string& bytes, const std::string& words) {
    write("m.idx", bytes);
    expect_fault<DataError>(options({bin}), "m.idx: " + words);
  };
  const std::string good = index_of({{1, 2}, {3}}, {2}, 8, 2);
  index(index_of({{1, 2}}, {1}, 8, 2), "damaged: it tells of 2 tokens, and its .bin has 3");
  index(index_of({{1, 2}, {3, 4}}, {2}, 8, 2), "damaged: it tells of more than the 3 tokens");
  index(index_of({{1, 2}, {3}}, {2}, 7, 2),
        "its tokens have the type 7, which is none of integers");
  index(index_of({{1, 2}, {3}}, {2}, 8, 4), "damaged: its sequence 2 does not follow");
  index(index_of({{1, 2}, {3}}, {3}, 8, 2), "damaged: its documents overlap");
  for (std::size_t size = 0; size < good.size(); ++size) index(good.substr(0, size), "");
  PrepareOptions nameless = options({bin});
  // bad input: `prepare --tokens` without a tokenizer | tokens that are made already need their
  // tokenizer:
  // --tokenizer PATH, or --vocabulary N --end-of-text TOKEN | 2
  nameless.tokenizer = {};
  expect_fault<ConfigError>(nameless, "tokens that are made already need their tokenizer");
  for (const char* end : {"", "x", "-1", "10"}) {
    // bad input: `prepare --vocabulary`: no end of text, or one that is none of its numbers |
    // --vocabulary 10 --end-of-text 10: expected 2 to 4194304 tokens, and the number of one of them
    // | 2
    EXPECT_THROW(parse_numbers_choice(10, {.end_of_text = end}), ConfigError) << end;
    if (*end == '\0') continue;
    EXPECT_THROW(parse_numbers_choice(10, {.begin_of_text = end, .end_of_text = "1"}), ConfigError);
  }
  for (const char* model : {"", "5", "5 5", "5 4 ", "a b", "5  4", "99999999 1"}) {
    EXPECT_THROW(make_tokenizer("numbers", model), DataError) << model;
  }
  EXPECT_THROW(make_tokenizer("numbers", "5 4")->encode("text"), DataError);
}

}  // namespace
}  // namespace trireme
