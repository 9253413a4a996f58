// A data set opened by several ranks: rank 0 reads the headers, all know them, all fail alike.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/dataset.h"
#include "trireme/io/image_dataset.h"
#include "trireme/io/prepare.h"

#include "support/mpi_test.h"
#include "support/sample_text.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::runtime;

// One folder for all ranks, rank 0's.
class DatasetOnRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime().rank() == 0) folder_.emplace();
    path_ = runtime().world().broadcast_text(folder_ ? folder_->path().string() : "");
  }
  void TearDown() override { runtime().world().barrier().wait_host(); }

  std::optional<testing::TemporaryFolder> folder_;
  std::string path_;
};

TEST_F(DatasetOnRanks, AllKnowWhatRankZeroRead) {
  if (runtime().rank() == 0) {
    PrepareOptions options;
    options.inputs = {path_ + "/text"};
    std::ofstream(options.inputs[0]) << testing::sample_text(100000, 1);
    options.output = path_;
    options.tokenizer = parse_tokenizer_choice("bpe:350");  // a model with zero bytes in it
    options.validation = parse_validation_split("tail:10000");
    prepare(options);
  }
  runtime().world().barrier().wait_host();
  const DatasetOptions options{
      {{path_ + "/train.h5", 0.7}, {path_ + "/validation.h5", 0.3}}, "", 32};
  const auto shared = TokenDataset::open(options, runtime().world());
  const auto alone = TokenDataset::open(options);
  ASSERT_EQ(shared->shards().size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const TokenShardInfo &a = shared->shards()[i], &b = alone->shards()[i];
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.token_bytes, b.token_bytes);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.documents, b.documents);
    EXPECT_EQ(a.original_bytes, b.original_bytes);
    EXPECT_EQ(a.format_version, b.format_version);
    EXPECT_EQ(a.has_record, b.has_record);
    EXPECT_EQ(a.data_offset, b.data_offset);
    EXPECT_EQ(a.checksum_offset, b.checksum_offset);
    EXPECT_EQ(a.vocabulary, b.vocabulary);
    EXPECT_EQ(a.end_of_text, b.end_of_text);
    EXPECT_EQ(a.tokenizer_kind, b.tokenizer_kind);
    EXPECT_EQ(a.tokenizer_model, b.tokenizer_model);
    EXPECT_EQ(a.source, b.source);
    EXPECT_EQ(a.split, b.split);
    EXPECT_EQ(a.checksum, b.checksum);
  }
  std::vector<std::uint64_t> samples(200);
  std::iota(samples.begin(), samples.end(), 50 * static_cast<std::uint64_t>(runtime().rank()));
  EXPECT_EQ(shared->read(samples).tokens, alone->read(samples).tokens);
}

TEST_F(DatasetOnRanks, AllKnowTheHeadersOfImageShards) {
  const std::string path = path_ + "/images.h5";
  constexpr std::uint64_t kImages = 20;
  if (runtime().rank() == 0) {
    ImageShardWriter(path, {.size = {4, 5},
                            .images = kImages,
                            .classes = {"a", "\303\244"},
                            .source = "here",
                            .split = "train",
                            .fetch =
                                [](std::int64_t i, std::span<std::uint8_t> pixels) {
                                  std::iota(pixels.begin(), pixels.end(),
                                            static_cast<std::uint8_t>(i));
                                  return static_cast<std::int32_t>(i % 2);
                                },
                            .statistics = {},
                            .threads = 1})
        .commit();
  }
  runtime().world().barrier().wait_host();
  const auto shared = ImageDataset::open({.data = {{path}}}, runtime().world());
  const auto alone = ImageDataset::open({.data = {{path}}});
  ASSERT_EQ(shared->shards().size(), 1u);
  const ImageShardInfo &a = shared->shards()[0], &b = alone->shards()[0];
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.format_version, b.format_version);
  EXPECT_EQ(a.has_record, b.has_record);
  EXPECT_EQ(a.images, b.images);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_EQ(a.statistics, b.statistics);
  EXPECT_EQ(a.images_offset, b.images_offset);
  EXPECT_EQ(a.labels_offset, b.labels_offset);
  EXPECT_EQ(a.checksums_offset, b.checksums_offset);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.split, b.split);
  EXPECT_EQ(a.checksum, b.checksum);
  // Whoever reads a sample gets the same pixels.
  ImageTransform transform;
  transform.size = {3, 3};
  transform.crop = ImageTransform::Crop::kRandomResized;
  transform.flip = true;
  transform.statistics = shared->statistics();
  std::vector<std::uint64_t> samples(2 * kImages);
  std::iota(samples.begin(), samples.end(), 0);
  const ImageBatch all = alone->read(samples, *alone->transformer(transform));
  const auto first = static_cast<std::size_t>(runtime().rank());
  const ImageBatch own =
      shared->read(std::span(samples).subspan(first, 9), *shared->transformer(transform));
  EXPECT_TRUE(std::equal(own.pixels.begin(), own.pixels.end(),
                         all.pixels.begin() + static_cast<std::ptrdiff_t>(first * 27)));
  EXPECT_TRUE(std::equal(own.labels.begin(), own.labels.end(),
                         all.labels.begin() + static_cast<std::ptrdiff_t>(first)));
}

TEST_F(DatasetOnRanks, AllFailAlike) {
  const DatasetOptions missing{{{path_ + "/no.h5"}}, "train", 32};
  try {
    TokenDataset::open(missing, runtime().world());
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("no.h5"), std::string::npos) << error.what();
  }
  EXPECT_THROW(ImageDataset::open({.data = {{path_ + "/no.h5"}}}, runtime().world()), DataError);
  const DatasetOptions malformed{{{"a.h5", -1.0}}, "train", 32};
  EXPECT_THROW(TokenDataset::open(malformed, runtime().world()), ConfigError);
}

}  // namespace
}  // namespace trireme
