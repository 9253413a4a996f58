// Image shards as samples: their order, what happens to pictures on the way, reading ahead.
#include "trireme/io/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/image_reader.h"

#include "io/shards/image_file.h"
#include "support/message_of.h"
#include "support/sample_pictures.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Crop = ImageTransform::Crop;
using testing::Bytes;
using testing::message_of;
using Samples = std::vector<std::uint64_t>;

constexpr PictureSize kSize{6, 8};

Samples range(std::uint64_t begin, std::uint64_t end) {
  Samples samples(end - begin);
  std::iota(samples.begin(), samples.end(), begin);
  return samples;
}

// Red is the column, green the row, blue the picture's number.
Bytes coordinates(PictureSize size, std::int64_t number) {
  Bytes pixels;
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      for (const std::int64_t value : {x + 1, y + 1, number}) {
        pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return pixels;
}

class Images : public ::testing::Test {
 protected:
  // A shard of `count` pictures with the numbers from `first` on; the label is the number modulo 3.
  std::string shard(const std::string& name, std::int64_t count, std::int64_t first = 0,
                    PictureSize size = kSize, std::vector<std::string> classes = {"a", "b", "c"},
                    const std::string& split = "train") {
    const std::string path = (folder_.path() / name).string();
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    ImageShardWriter(path, {.size = size,
                            .images = count,
                            .classes = std::move(classes),
                            .source = "test",
                            .split = split,
                            .fetch =
                                [&](std::int64_t i, std::span<std::uint8_t> pixels) {
                                  const Bytes picture = coordinates(size, first + i);
                                  std::copy(picture.begin(), picture.end(), pixels.begin());
                                  return static_cast<std::int32_t>((first + i) % 3);
                                },
                            .statistics = {},
                            .threads = 1})
        .commit();
    return path;
  }
  std::shared_ptr<const ImageDataset> open(std::vector<WeightedPath> data,
                                           SampleOrder order = SampleOrder::kShuffled,
                                           std::uint64_t seed = 1) const {
    return ImageDataset::open(
        {.data = std::move(data), .split = "train", .seed = seed, .order = order});
  }

  testing::TemporaryFolder folder_;
};

// Leaves the values 0 to 255 as they are.
ImageTransform plain(PictureSize size, Crop crop = Crop::kCentre) {
  ImageTransform transform;
  transform.size = size;
  transform.crop = crop;
  transform.statistics.deviation = {1.0 / 255, 1.0 / 255, 1.0 / 255};
  return transform;
}

std::vector<int> whole(std::span<const float> values) {
  std::vector<int> numbers;
  for (const float value : values) numbers.push_back(static_cast<int>(std::lround(value)));
  return numbers;
}

// One picture of the result.
std::vector<int> transformed(const Bytes& pixels, PictureSize size, const ImageTransform& transform,
                             std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  const ImageTransformer transformer(transform, size, seed);
  std::vector<float> to(static_cast<std::size_t>(transform.size.height * transform.size.width * 3));
  transformer.apply(pixels, epoch, sample, to);
  return whole(to);
}

TEST_F(Images, EachEpochVisitsEachPictureOnce) {
  const auto dataset = open({{shard("a.h5", 7)}, {shard("b.h5", 5, 7)}});
  EXPECT_EQ(dataset->samples(), 12u);
  EXPECT_EQ(dataset->size(), kSize);
  EXPECT_EQ(dataset->classes(), (std::vector<std::string>{"a", "b", "c"}));
  const auto transformer = dataset->transformer(plain(kSize));
  std::set<std::vector<int>> orders;
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    const ImageBatch batch = dataset->read(range(12 * epoch, 12 * epoch + 12), *transformer);
    std::vector<int> numbers;
    for (std::size_t i = 0; i < 12; ++i) {
      numbers.push_back(static_cast<int>(std::lround(batch.pixels[i * 6 * 8 * 3 + 2])));
      EXPECT_EQ(batch.labels[i], numbers.back() % 3);
      const ImageDataset::Place place = dataset->place_of(12 * epoch + i);
      EXPECT_EQ(static_cast<std::uint64_t>(numbers.back()), place.picture + 7 * place.shard);
    }
    orders.insert(numbers);
    std::sort(numbers.begin(), numbers.end());
    for (int i = 0; i < 12; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 4u);
}

TEST_F(Images, AnEvaluationSeesThemInTheirOrder) {
  const auto dataset = open({{shard("a.h5", 3)}, {shard("b.h5", 2, 3)}}, SampleOrder::kSequential);
  const ImageBatch batch = dataset->read(range(0, 5), *dataset->transformer(plain({2, 4})));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{0, 1, 2, 0, 1}));
  const std::vector<int> values = whole(batch.pixels);
  for (int i = 0; i < 5; ++i) {  // rows 2 and 3 of 6, columns 2 to 5 of 8
    const auto begin = values.begin() + i * 2 * 4 * 3;
    EXPECT_EQ(std::vector<int>(begin, begin + 12),
              (std::vector<int>{3, 3, i, 4, 3, i, 5, 3, i, 6, 3, i}));
  }
}

TEST_F(Images, ValuesAreNormalisedByTheShard) {
  const auto dataset = open({{shard("a.h5", 9)}}, SampleOrder::kSequential);
  ImageTransform transform;
  transform.size = kSize;
  transform.statistics = dataset->statistics();
  const ImageBatch batch = dataset->read(range(0, 9), *dataset->transformer(transform));
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < batch.pixels.size(); i += 3) {
      sum += batch.pixels[i];
      squares += double{batch.pixels[i]} * batch.pixels[i];
    }
    const auto count = static_cast<double>(batch.pixels.size() / 3);
    EXPECT_NEAR(sum / count, 0, 1e-5);
    EXPECT_NEAR(squares / count, 1, 1e-5);
  }
  // Two shards together have the statistics of all pictures.
  const auto both = open({{shard("b.h5", 2)}, {shard("c.h5", 7, 2)}});
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(both->statistics().mean[c], dataset->statistics().mean[c], 1e-12);
    EXPECT_NEAR(both->statistics().deviation[c], dataset->statistics().deviation[c], 1e-9);
  }
  // One colour has no deviation but what rounding gives it, and stays as it is.
  transform.statistics.deviation = {0, 5e-9, 9e-6};
  for (const float value : dataset->read(range(0, 9), *dataset->transformer(transform)).pixels) {
    EXPECT_LE(std::abs(value), 1.0f);
  }
  EXPECT_EQ((PixelStatistics{.mean = {}, .deviation = {0, 5e-9, 2e-5}}).divisor(1), 1.0);
  EXPECT_EQ((PixelStatistics{.mean = {}, .deviation = {0, 5e-9, 2e-5}}).divisor(2), 2e-5);
}

TEST_F(Images, AColourThatNeverChangesHasNoDeviation) {
  const auto write = [this](const std::string& name, std::int64_t count, std::uint8_t blue) {
    const std::string path = (folder_.path() / name).string();
    ImageShardWriter(path, {.size = kSize,
                            .images = count,
                            .classes = {"a", "b"},
                            .source = "test",
                            .split = "train",
                            .fetch =
                                [&](std::int64_t i, std::span<std::uint8_t> pixels) {
                                  for (std::size_t at = 0; at < pixels.size(); ++at) {
                                    pixels[at] = at % 3 == 2   ? blue
                                                 : at % 3 == 1 ? 200
                                                               : static_cast<std::uint8_t>(at);
                                  }
                                  return static_cast<std::int32_t>(i % 2);
                                },
                            .statistics = {},
                            .threads = 1})
        .commit();
    return path;
  };
  const auto same = open({{write("a.h5", 5, 77)}, {write("b.h5", 6, 77)}, {write("c.h5", 7, 77)}});
  EXPECT_GT(same->statistics().deviation[0], 0.1);
  EXPECT_EQ(same->statistics().deviation[1], 0);
  EXPECT_EQ(same->statistics().deviation[2], 0);
  // Shards that differ in a constant.
  const auto other = open({{write("d.h5", 5, 77)}, {write("e.h5", 5, 78)}});
  EXPECT_EQ(other->statistics().deviation[1], 0);
  EXPECT_NEAR(other->statistics().deviation[2], 0.5 / 255, 1e-12);
}

// What a crop of `picture` that begins at (top, left) is; outside of the picture all is black.
std::vector<int> cut(PictureSize picture, PictureSize size, std::int64_t top, std::int64_t left,
                     bool flipped) {
  std::vector<int> values;
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t i = 0; i < size.width; ++i) {
      const std::int64_t column = left + (flipped ? size.width - 1 - i : i), row = top + y;
      const bool inside = column >= 0 && column < picture.width && row >= 0 && row < picture.height;
      for (const std::int64_t value : {column + 1, row + 1, std::int64_t{9}}) {
        values.push_back(inside ? static_cast<int>(value) : 0);
      }
    }
  }
  return values;
}

TEST(ImageTransforms, RandomCropsAreEveryWhereAndFlipped) {
  const Bytes pixels = coordinates(kSize, 9);
  for (const PictureSize size : {kSize, PictureSize{3, 5}, PictureSize{10, 12}}) {
    ImageTransform transform = plain(size, Crop::kRandom);
    transform.padding = 2;
    transform.flip = true;
    std::map<std::vector<int>, int> seen;
    std::size_t expected = 0;
    for (std::int64_t top = -2; top <= kSize.height + 2 - size.height; ++top) {
      for (std::int64_t left = -2; left <= kSize.width + 2 - size.width; ++left) {
        for (const bool flipped : {false, true}) {
          seen[cut(kSize, size, top, left, flipped)] = 0;
          ++expected;
        }
      }
    }
    EXPECT_EQ(seen.size(), expected);
    constexpr int kDraws = 6000;
    for (std::uint64_t sample = 0; sample < kDraws; ++sample) {
      const auto found =
          seen.find(transformed(pixels, kSize, transform, 1, sample / 100, sample % 100));
      ASSERT_NE(found, seen.end()) << sample;
      ++found->second;
    }
    const double mean = kDraws / static_cast<double>(expected);
    for (const auto& [values, count] : seen) EXPECT_NEAR(count, mean, 6 * std::sqrt(mean));
  }
}

TEST(ImageTransforms, DrawsDependOnSeedEpochAndSampleAlone) {
  const Bytes pixels = coordinates(kSize, 9);
  for (const Crop crop : {Crop::kRandom, Crop::kRandomResized}) {
    ImageTransform transform = plain({4, 4}, crop);
    transform.flip = true;
    std::map<std::uint64_t, std::vector<int>> by_number;
    for (std::uint64_t number = 0; number < 24; ++number) {
      by_number[number] =
          transformed(pixels, kSize, transform, number % 2, number / 2 % 3, number / 6);
      EXPECT_EQ(transformed(pixels, kSize, transform, number % 2, number / 2 % 3, number / 6),
                by_number[number]);
    }
    std::set<std::vector<int>> different;
    for (const auto& [number, values] : by_number) different.insert(values);
    EXPECT_GT(different.size(), 12u);
    // An evaluation draws nothing.
    EXPECT_EQ(transformed(pixels, kSize, plain({4, 4}), 1, 2, 3),
              transformed(pixels, kSize, plain({4, 4}), 4, 5, 6));
  }
}

TEST(ImageTransforms, ResizedCropsHaveAreasAndShapesAsAskedFor) {
  const PictureSize size{100, 120};
  const Bytes pixels = coordinates(size, 9);
  ImageTransform transform = plain({50, 50}, Crop::kRandomResized);
  transform.least_area = 0.2;
  transform.most_area = 0.5;
  double least = 1, most = 0, narrowest = 9, widest = 0;
  for (std::uint64_t sample = 0; sample < 400; ++sample) {
    const std::vector<int> values = transformed(pixels, size, transform, 1, 0, sample);
    const auto at = [&](int y, int x, int c) {
      return static_cast<double>(values[static_cast<std::size_t>((y * 50 + x) * 3 + c)]);
    };
    EXPECT_EQ(at(25, 25, 2), 9);
    EXPECT_EQ(at(0, 10, 1), at(0, 40, 1));  // rows stay level
    // 49 of 50 steps lie between the first pixel's middle and the last one's.
    const double width = (at(0, 49, 0) - at(0, 0, 0)) * 50 / 49;
    const double height = (at(49, 0, 1) - at(0, 0, 1)) * 50 / 49;
    least = std::min(least, width * height / 12000);
    most = std::max(most, width * height / 12000);
    narrowest = std::min(narrowest, width / height);
    widest = std::max(widest, width / height);
  }
  EXPECT_NEAR(least, 0.2, 0.02);
  EXPECT_NEAR(most, 0.5, 0.02);
  EXPECT_NEAR(narrowest, 0.75, 0.04);
  EXPECT_NEAR(widest, 4.0 / 3, 0.07);
  // No window of this shape fits into a strip: the middle is taken.
  const PictureSize strip{4, 200};
  transform.least_area = transform.most_area = 1;
  const std::vector<int> middle = transformed(coordinates(strip, 9), strip, transform, 1, 0, 0);
  EXPECT_NEAR(middle.front(), 99, 1);
}

TEST(ImageTransforms, ThatCannotBeAreRefused) {
  const auto said = [](const ImageTransform& transform) {
    return message_of([&] { check_transform(transform, kSize); });
  };
  // bad input: pictures of a shard that are smaller than what is to be cut out of them | pictures
  // of 6 x 8 cannot give parts of 6 x 9; prepare them with a larger --size, or give the model
  // smaller ones (--model.image) | 2
  EXPECT_EQ(said(plain({6, 9})),
            "pictures of 6 x 8 cannot give parts of 6 x 9; prepare them with a larger --size, or "
            "give the model smaller ones (--model.image)");
  ImageTransform transform = plain({12, 8}, Crop::kRandom);
  transform.padding = 2;
  EXPECT_EQ(said(transform).find("pictures of 6 x 8 cannot give parts of 12 x 8 with 2 pixels"),
            0u);
  transform.padding = 3;
  EXPECT_EQ(said(transform), "no error");
  for (const std::int64_t padding : {-1, 5000}) {
    transform.padding = padding;
    EXPECT_EQ(said(transform).find("padding of"), 0u);
  }
  EXPECT_EQ(said(plain({0, 8})), "parts of 0 x 8 pixels");
  EXPECT_EQ(said(plain({99, 99}, Crop::kRandomResized)), "no error");
  transform = plain({4, 4}, Crop::kRandomResized);
  for (const auto& [least, most] : {std::pair(0.0, 1.0), {0.5, 0.4}, {0.5, 1.5}, {NAN, 1.0}}) {
    transform.least_area = least;
    transform.most_area = most;
    EXPECT_NE(said(transform).find("of a picture; expected 0 < least <= most <= 1"),
              std::string::npos);
  }
  transform = plain({4, 4}, Crop::kRandomResized);
  transform.least_ratio = 2;
  EXPECT_NE(said(transform).find("times as wide as high"), std::string::npos);
}

TEST_F(Images, ReadingAheadGivesWhatReadingGives) {
  const auto dataset = open({{shard("a.h5", 40)}});
  ImageTransform transform = plain({4, 5}, Crop::kRandom);
  transform.flip = true;
  const auto transformer = dataset->transformer(transform);
  const auto plan = [](std::uint64_t step) { return range(step * 5, step * 5 + step % 6); };
  for (const int threads : {1, 2, 5}) {
    ImageReader reader(
        dataset, transform,
        [&](std::uint64_t step) { return step < 40 ? std::optional(plan(step)) : std::nullopt; },
        {.first_step = 3, .batches_ahead = threads, .threads = threads});
    for (std::uint64_t step = 3; step < 40; ++step) {
      const auto batch = reader.next();
      ASSERT_TRUE(batch.has_value());
      const ImageBatch direct = dataset->read(plan(step), *transformer);
      EXPECT_EQ(batch->samples, direct.samples);
      EXPECT_EQ(batch->pixels, direct.pixels);
      EXPECT_EQ(batch->labels, direct.labels);
    }
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_FALSE(reader.next().has_value());
  }
  // The pictures of a batch do not depend on who reads the others.
  const ImageBatch all = dataset->read(range(80, 90), *transformer);
  const ImageBatch some = dataset->read(range(85, 87), *transformer);
  EXPECT_TRUE(std::equal(some.pixels.begin(), some.pixels.end(), all.pixels.begin() + 5 * 60));
}

// What is not wanted is not made, and its room is not taken.
TEST_F(Images, PartsAreReadAlone) {
  const auto dataset = open({{shard("a.h5", 10)}});
  const ImageTransform transform = plain({4, 5}, Crop::kRandom);
  const auto transformer = dataset->transformer(transform);
  const ImageBatch both = dataset->read(range(3, 8), *transformer);
  for (const ImageParts& parts :
       {ImageParts{true, false}, ImageParts{false, true}, ImageParts{false, false}}) {
    ImageReader reader(
        dataset, transform,
        [](std::uint64_t step) { return step == 0 ? std::optional(range(3, 8)) : std::nullopt; },
        {}, parts);
    const auto batch = reader.next();
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->samples, both.samples);
    EXPECT_EQ(batch->pixels, parts.pixels ? both.pixels : std::vector<float>());
    EXPECT_EQ(batch->labels, parts.labels ? both.labels : std::vector<std::int32_t>());
  }
}

TEST_F(Images, AReaderStopsWhereverItIs) {
  const auto dataset = open({{shard("a.h5", 40)}});
  for (int taken = 0; taken < 12; ++taken) {
    ImageReader reader(dataset, plain(kSize),
                       [](std::uint64_t step) { return std::optional(range(step, step + 3)); },
                       {.threads = 1 + taken % 3});
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(reader.next().has_value());
  }
}

TEST_F(Images, ReadersThatRaceFindOneEnd) {
  const auto dataset = open({{shard("a.h5", 4)}});
  for (int again = 0; again < 300; ++again) {
    ImageReader reader(dataset, plain(kSize),
                       [](std::uint64_t step) {
                         return step < 2 ? std::optional(range(step, step + 1)) : std::nullopt;
                       },
                       {.batches_ahead = 4, .threads = 4});
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(reader.next().has_value());
    ASSERT_FALSE(reader.next().has_value());
  }
}

TEST_F(Images, DamageComesFromNextAtItsStep) {
  const std::string path = shard("a.h5", 40);
  const ImageShardInfo info = read_image_shard_info(path);
  const auto dataset = open({{path}}, SampleOrder::kSequential);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(info.images_offset + 21 * info.picture_bytes() + 7);
  file.put('\x77');
  file.close();
  for (const int threads : {1, 3}) {
    ImageReader reader(
        dataset, plain(kSize),
        [](std::uint64_t step) { return std::optional(range(4 * step, 4 * step + 4)); },
        {.threads = threads});
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(reader.next().has_value()) << step;
    for (int again = 0; again < 2; ++again) {
      EXPECT_NE(message_of<DataError>([&] { reader.next(); }).find("damaged: picture 21 or its"),
                std::string::npos);
    }
  }
}

TEST_F(Images, AShardThatHasChangedSinceIsRefused) {
  ImageShardInfo info = read_image_shard_info(shard("train.h5", 4));
  info.images_offset = info.labels_offset = info.checksums_offset = -1;  // read by HDF5
  Bytes pixels(static_cast<std::size_t>(info.picture_bytes()));
  EXPECT_EQ(ImageFile(info).read(2, pixels), 2);
  EXPECT_EQ(pixels, coordinates(kSize, 2));
  info.size = {3, 8};  // smaller pictures than the file has now
  pixels.resize(static_cast<std::size_t>(info.picture_bytes()));
  EXPECT_EQ(message_of<DataError>([&] { ImageFile(info).read(0, pixels); }),
            info.path + ": /images has changed since the shard was opened");
}

TEST_F(Images, FoldersAndMixturesAreRead) {
  shard("data/train.h5", 10);
  shard("data/validation.h5", 4, 50, kSize, {"a", "b", "c"}, "validation");
  EXPECT_EQ(open({{(folder_.path() / "data").string()}})->samples(), 10u);
  const auto mixed = open({{shard("a.h5", 4), 3}, {shard("b.h5", 4, 4), 1}});
  std::vector<int> drawn(2);
  for (std::uint64_t n = 0; n < 400; ++n) ++drawn[mixed->place_of(n).shard];
  EXPECT_EQ(drawn, (std::vector<int>{300, 100}));
  EXPECT_TRUE(mixed->contents().starts_with("weight 3, shards 1, pictures 4, xxh64:"));
}

TEST_F(Images, ShardsThatDifferAreRefused) {
  const std::string good = shard("a.h5", 4);
  const auto said = [&](const std::string& other) {
    return message_of<DataError>([&] { open({{good}, {other}}); });
  };
  // bad input: image shards of several sizes, or of other classes | ... and ... cannot be used
  // together: pictures of 6 x 8 and 8 x 8; class 1 is b and x | 3
  EXPECT_NE(said(shard("b.h5", 4, 0, {8, 8})).find("together: pictures of 6 x 8 and 8 x 8"),
            std::string::npos);
  EXPECT_NE(said(shard("c.h5", 4, 0, kSize, {"a", "x", "c"})).find("class 1 is b and x"),
            std::string::npos);
  EXPECT_NE(
      said(shard("d.h5", 4, 0, kSize, {"a", "b", "c", "d"})).find("numbers of classes 3 and 4"),
      std::string::npos);
  EXPECT_EQ(message_of([&] { open({}); }), "data: no path is given");
}

}  // namespace
}  // namespace trireme
