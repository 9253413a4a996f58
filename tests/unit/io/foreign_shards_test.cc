// Shards that are damaged, contradict themselves or were written by other programs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/dataset.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "support/message_of.h"
#include "support/token_shards.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

using testing::Ints;
using testing::message_of;
using testing::range;

class ForeignShards : public testing::TokenShards {};

// The shard as another program may write it: compressed, with tokens of any type, strings of
// variable length and no closing record. `missing` tokens before the others are claimed, but not
// there.
template <class T>
void rewrite(const std::string& path, const std::string& to, hdf5::ElementType type,
             const std::vector<T>& tokens, std::int64_t version = 1, std::int64_t missing = 0,
             std::size_t tokenizer_bytes = 0) {
  hdf5::File file = hdf5::File::create(to);
  const hdf5::File from = hdf5::File::open(path);
  file.create_dataset("/tokens", type, {missing}, {100, 4}).append(std::span<const T>(tokens));
  const std::vector<std::uint64_t> starts = {0};
  file.create_dataset("/documents", hdf5::ElementType::kU64, {1})
      .write(0, std::span<const std::uint64_t>(starts));
  if (tokenizer_bytes == 0) {
    file.create_dataset("/tokenizer", hdf5::ElementType::kU8, {0});
  } else {
    const std::vector<std::uint8_t> tokenizer(tokenizer_bytes);
    file.create_dataset("/tokenizer", hdf5::ElementType::kU8, {0}, {1 << 20, 4})
        .append(std::span<const std::uint8_t>(tokenizer));
  }
  for (const std::string& name : from.attributes("/")) {
    if (name == "tokenizer" || name == "source" || name == "split" || name == "checksum") {
      file.set_attribute("/", name, from.string_attribute("/", name));
    } else {
      file.set_attribute("/", name, from.integer_attribute("/", name));
    }
  }
  file.set_attribute("/", "format_version", version);
  if (version >= 2) {
    const auto checksums = from.dataset("/token_checksums").read<std::uint64_t>();
    file.create_dataset("/token_checksums", hdf5::ElementType::kU64, {0}, {64, 4})
        .append(std::span<const std::uint64_t>(checksums));
    file.set_attribute("/token_checksums", "block_bytes", std::int64_t{4096});
  }
  file.close();
}

TEST_F(ForeignShards, ChunkedAndCompressedTokensReadTheSame) {
  const std::string path = shard("a.h5", {5000});
  const Ints tokens = tokens_of(path);
  const std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  const std::string other = (folder_.path() / "b.h5").string();
  for (const std::int64_t version : {1, 2}) {
    rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, version);
    const TokenShardInfo info = verify_token_shard(other);
    EXPECT_EQ(info.data_offset, -1);
    EXPECT_EQ(info.format_version, version);
    EXPECT_FALSE(info.has_record);
    const auto a = open({{path}}, 16), b = open({{other}}, 16);
    EXPECT_EQ(a->read(range(0, 300)).tokens, b->read(range(0, 300)).tokens);
  }
}

// Changes one byte of a file.
void flip(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}
TEST_F(ForeignShards, AFlippedTokenIsFoundByWhoReadsIt) {
  const std::string whole = shard("a.h5", {9000});  // 9001 tokens: blocks of 2048, the last of 809
  const TokenShardInfo info = read_token_shard_info(whole);
  EXPECT_EQ(info.format_version, 2);
  EXPECT_TRUE(info.has_record);
  for (const std::int64_t token : {0, 2047, 2048, 5000, 8192, 9000}) {
    const std::string path = (folder_.path() / "b.h5").string();
    fs::copy_file(whole, path, fs::copy_options::overwrite_existing);
    flip(path, info.data_offset + 2 * token);
    const std::int64_t block = token / 2048;
    // bad input: a shard with a flipped token | ...: damaged: tokens 2048 to 4095 (block 1) do not
    // match their checksum | 3
    const std::string words =
        fmt::format("b.h5: damaged: tokens {} to {} (block {}) do not match their checksum",
                    block * 2048, std::min<std::int64_t>(block * 2048 + 2047, 9000), block);
    const auto dataset = open({{path}}, 100, SampleOrder::kSequential);
    for (std::uint64_t n = 0; n < dataset->samples(); ++n) {
      const std::int64_t begin = std::max<std::int64_t>(100 * static_cast<std::int64_t>(n) - 1, 0);
      const std::int64_t end =
          std::min<std::int64_t>(100 * static_cast<std::int64_t>(n) + 99, 9000);
      const bool touched = begin / 2048 <= block && block <= end / 2048;
      const std::string what = message_of<DataError>([&] { dataset->read(std::vector{n}); });
      if (touched) {
        EXPECT_NE(what.find(words), std::string::npos) << what;
      } else {
        EXPECT_EQ(what, "no error") << "token " << token << ", sample " << n;
      }
    }
    EXPECT_NE(message_of<DataError>([&] { verify_token_shard(path); }).find(words),
              std::string::npos);
  }
}

TEST_F(ForeignShards, AFlippedTokenIsFoundInOtherFormsOfAShard) {
  const std::string path = shard("a.h5", {5000});
  const Ints tokens = tokens_of(path);
  std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  raw[3000] ^= 1;
  const std::string other = (folder_.path() / "b.h5").string();
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 2);  // compressed
  const auto row = std::vector<std::uint64_t>{187};                      // tokens 2992 to 3007
  EXPECT_NE(message_of<DataError>([&] {
              open({{other}}, 16, SampleOrder::kSequential)->read(row);
            }).find("tokens 2048 to 4095 (block 1)"),
            std::string::npos);
  // Version 1 has no checksums of blocks: that of the whole finds it.
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 1);
  EXPECT_NO_THROW(open({{other}}, 16, SampleOrder::kSequential)->read(row));
  EXPECT_NE(message_of<DataError>([&] {
              verify_token_shard(other);
            }).find("the tokens are damaged: their checksum is"),
            std::string::npos);
}
TEST_F(ForeignShards, DocumentsThatDoNotRiseAreRefused) {
  const auto with = [&](const std::vector<std::uint64_t>& starts) {
    const std::string path = shard("a.h5", {10, 10, 10});
    hdf5::File file = hdf5::File::open_to_write(path);
    file.dataset("/documents").write(0, std::span<const std::uint64_t>(starts));
    file.close();
    return message_of<DataError>([&] { open({{path}}, 4); });
  };
  EXPECT_EQ(with({0, 11, 22}), "no error");
  // bad input: a shard whose `/documents` do not begin at 0, rise, or end before the tokens | ...:
  // /documents is damaged: number 2 starts at token 11; expected 23 to 32 | 3
  EXPECT_NE(with({1, 11, 22}).find("/documents is damaged: the first one starts at token 1"),
            std::string::npos);
  EXPECT_NE(with({0, 22, 11}).find("number 2 starts at token 11; expected 23 to 32"),
            std::string::npos);
  EXPECT_NE(with({0, 0, 22}).find("number 1 starts at token 0"), std::string::npos);
  EXPECT_NE(with({0, 11, 33}).find("number 2 starts at token 33"), std::string::npos);
  EXPECT_NE(with({0, 11, std::uint64_t{1} << 63}).find("number 2 starts at token"),
            std::string::npos);
}

TEST_F(ForeignShards, SizesThatTheFileCannotHoldAreRefused) {
  const std::string path = shard("a.h5", {50});
  const std::string other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  const std::int64_t many = std::int64_t{1} << 50;
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, {tokens.begin(), tokens.end()}, 1,
                         many - std::ssize(tokens));
  {
    hdf5::File file = hdf5::File::open_to_write(other);
    file.set_attribute("/", "tokens", many);
    file.close();
  }
  const std::string what = message_of<DataError>([&] { open({{other}}, 4); });
  // bad input: a shard that claims more tokens than its file can hold | ...: /tokens claims
  // 2251799813685248 bytes, of which the file holds 118 | 3
  EXPECT_NE(what.find("/tokens claims 2251799813685248 bytes"), std::string::npos) << what;
}

template <class Fault>
void expect_fault(const DatasetOptions& options, const std::string& words) {
  const std::string what = message_of<Fault>([&] { TokenDataset::open(options); });
  EXPECT_NE(what.find(words), std::string::npos) << what << ", expected: " << words;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;
}

TEST_F(ForeignShards, RefusesBadFiles) {
  const std::string path = shard("a.h5", {50});
  const auto with = [](const std::string& data) { return DatasetOptions{{{data}}, "train", 4}; };
  expect_fault<DataError>(with((folder_.path() / "no.h5").string()), "no.h5");
  const std::string text = (folder_.path() / "text.h5").string();
  std::ofstream(text) << "this is not HDF5, but text";
  expect_fault<DataError>(with(text), "not an HDF5 file but a text; trireme prepare makes shards");
  for (const auto& [bytes, kind] :
       {std::pair(std::string("PAR1\x15\x04"), "a Parquet file"),
        std::pair(std::string("\x11\0\x22\0\x33\x01", 6), "binary data"),
        std::pair(std::string("\x28\xb5\x2f\xfd\x04"), "zstd data"),
        std::pair(std::string(), "an empty file")}) {
    std::ofstream(text, std::ios::trunc) << bytes;
    expect_fault<DataError>(with(text), std::string("not an HDF5 file but ") + kind);
  }
  // What macOS and editors leave beside files.
  const fs::path beside = folder_.path() / "beside";
  fs::create_directories(beside);
  fs::copy(path, beside / "a.h5");
  std::ofstream(beside / "._a.h5") << "no shard";
  EXPECT_EQ(token_shard_files(beside.string()), std::vector{(beside / "a.h5").string()});
  const std::string foreign = (folder_.path() / "foreign.h5").string();
  hdf5::File::create(foreign).close();
  expect_fault<DataError>(with(foreign), "not a token shard");
  for (const double part : {0.1, 0.5, 0.9, 0.99}) {
    const std::string cut = (folder_.path() / "cut.h5").string();
    fs::copy_file(path, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut,
                    static_cast<std::uintmax_t>(part * static_cast<double>(fs::file_size(path))));
    expect_fault<DataError>(with(cut), "cut.h5");
  }
  const std::string real = (folder_.path() / "real.h5").string();
  rewrite<float>(path, real, hdf5::ElementType::kF32, std::vector<float>(51, 1.0f));
  // bad input: `train`: a shard of another dtype | ...: /tokens is float32, not uint16 or uint32 |
  // 3
  expect_fault<DataError>(with(real), "/tokens is float32, not uint16 or uint32");
  expect_fault<DataError>({{{path}}, "train", 51}, "less than one sample");
  fs::create_directories(folder_.path() / "none");
  expect_fault<DataError>(with((folder_.path() / "none").string()), "no shards");
}

TEST_F(ForeignShards, RefusesHeadersThatContradictTheFile) {
  const auto altered = [&](const std::string& name, std::int64_t value) {
    const std::string path = shard("a.h5", {50});
    hdf5::File file = hdf5::File::open_to_write(path);
    file.set_attribute("/", name, value);
    file.close();
    return DatasetOptions{{{path}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(altered("tokens", 51)));
  expect_fault<DataError>(altered("tokens", 52), "51");
  expect_fault<DataError>(altered("tokens", -1), "tokens");
  expect_fault<DataError>(altered("documents", 2), "documents");
  expect_fault<DataError>(altered("vocabulary", 0), "vocabulary");
  expect_fault<DataError>(altered("vocabulary", 300), "vocabulary");
  expect_fault<DataError>(altered("end_of_text", 257), "end of text");
  // bad input: a shard whose end of text is not its tokenizer's | ...: the header says that end of
  // text is token 65, its tokenizer says 256 | 3
  expect_fault<DataError>(altered("end_of_text", 65), "its tokenizer says 256");
  expect_fault<DataError>(altered("original_bytes", -3), "original bytes");
  expect_fault<DataError>(altered("format_version", 9), "version 9");
}

TEST_F(ForeignShards, RefusesATokenizerBeyondItsLimitBeforeItIsRead) {
  const std::string path = shard("a.h5", {50}), other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  const auto with = [&](std::size_t tokenizer_bytes) {
    rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, {tokens.begin(), tokens.end()}, 1,
                           0, tokenizer_bytes);
    return DatasetOptions{{{other}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(with(0)));
  // bad input: a shard with a tokenizer of more than 64 MiB | ...: /tokenizer has 67108865 bytes;
  // at most 67108864 are read | 3
  expect_fault<DataError>(with(Tokenizer::kMaxModelBytes + 1),
                          "/tokenizer has 67108865 bytes; at most 67108864 are read");
}

// Stands for another tokenizer: only its header is read.
class OtherTokenizer final : public Tokenizer {
 public:
  OtherTokenizer(std::string kind, std::size_t vocabulary, std::int32_t end, std::string model)
      : kind_(std::move(kind)), model_(std::move(model)) {
    set_vocabulary(std::vector<std::string>(vocabulary, "x"), end, {});
  }
  std::string_view kind() const override { return kind_; }
  std::string description() const override { return kind_; }
  const std::string& model() const override { return model_; }
  void add_tokens(std::string_view, TextPart, std::vector<std::int32_t>&) const override {}

 private:
  std::string kind_, model_;
};

TEST_F(ForeignShards, RefusesShardsThatDoNotBelongTogether) {
  const std::string bytes = shard("a.h5", {50});
  const auto with = [&](const OtherTokenizer& other) {
    const std::string path = (folder_.path() / "b.h5").string();
    TokenShardWriter writer(path, std::make_shared<OtherTokenizer>(other), "train", "test");
    writer.append(std::vector<std::int32_t>(50, 1), std::vector<std::uint64_t>{0}, 50);
    writer.commit();
    return DatasetOptions{{{bytes}, {path}}, "train", 4};
  };
  EXPECT_NO_THROW(TokenDataset::open(with({"byte", 257, 256, ""})));
  expect_fault<DataError>(with({"byte", 300, 256, ""}), "vocabularies of 257 and 300");
  expect_fault<DataError>(with({"byte", 70000, 256, ""}), "257 and 70000");
  expect_fault<DataError>(with({"byte", 257, 3, ""}), "end of text is 256 and 3");
  expect_fault<DataError>(with({"sentencepiece", 257, 256, ""}), "byte and sentencepiece");
  expect_fault<DataError>(with({"byte", 257, 256, "a model"}), "two models");
}

TEST_F(ForeignShards, TakesAnOpenTokenizerIfItIsTheSame) {
  const std::string path = shard("a.h5", {20});
  const auto train = TokenDataset::open({{{path}}, "train", 4});
  const auto with = [&](TokenizerPtr open) {
    return TokenDataset::open({.data = {{path}}, .context = 4, .tokenizer = std::move(open)})
        ->tokenizer();
  };
  EXPECT_EQ(with(train->tokenizer()), train->tokenizer());
  EXPECT_NE(with(nullptr), train->tokenizer());
  for (const OtherTokenizer& differs : {OtherTokenizer{"sentencepiece", 257, 256, ""},
                                        OtherTokenizer{"byte", 257, 256, "a model"}}) {
    const auto other = std::make_shared<OtherTokenizer>(differs);
    EXPECT_NE(with(other), other);
    EXPECT_EQ(with(other)->kind(), "byte");
  }
}
TEST_F(ForeignShards, RefusesTokensOutsideTheVocabulary) {
  const std::string path = shard("a.h5", {50}), other = (folder_.path() / "b.h5").string();
  const Ints tokens = tokens_of(path);
  std::vector<std::uint16_t> raw(tokens.begin(), tokens.end());
  raw[17] = 257;
  rewrite<std::uint16_t>(path, other, hdf5::ElementType::kU16, raw, 1);
  const std::string what =
      message_of<DataError>([&] { open({{other}}, 50)->read(std::vector<std::uint64_t>{0}); });
  EXPECT_NE(what.find("token 17 is 257, outside the vocabulary of 257"), std::string::npos) << what;
}
}  // namespace
}  // namespace trireme
