// Pictures into shards: what stands in them, whatever the threads, and what bad input gets.
#include "trireme/io/prepare_images.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/base/error.h"

#include "io/pictures/picture.h"
#include "io/pictures/resample.h"
#include "io/prepare/picture_folders.h"
#include "support/message_of.h"
#include "support/prepare_images_testing.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::classes_in;
using testing::JpegKind;
using testing::kSize;
using testing::make_jpeg;
using testing::make_png;
using testing::make_tar;
using testing::pictures_of;
using testing::PngKind;
using testing::PrepareImages;
using testing::sample_pixels;
using testing::Stored;

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string file_contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(PrepareImages, FoldersAreSplitsAndClasses) {
  write("pets/train/cat/notes.txt", "no picture");
  write("pets/train/cat/.hidden.png", "no picture");
  const PrepareImagesResult result = prepare_images(options({write_splits()}));
  EXPECT_EQ(pictures_of(result.train), (std::vector<Stored>{{"cat", sample_pixels(kSize, 3)},
                                                            {"cat", sample_pixels(kSize, 2)},
                                                            {"dog", sample_pixels(kSize, 1)}}));
  ASSERT_TRUE(result.validation);
  EXPECT_EQ(pictures_of(*result.validation),
            (std::vector<Stored>{{"cat", sample_pixels(kSize, 4)}}));
  EXPECT_EQ(result.train.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(result.validation->classes, result.train.classes);
  EXPECT_EQ(result.train.size, kSize);
  EXPECT_EQ(result.train.split, "train");
  EXPECT_EQ(result.validation->split, "validation");
  EXPECT_EQ(result.train.source, in("pets"));
  EXPECT_TRUE(result.train.has_record);
  EXPECT_GT(result.train.images_offset, 0);
  EXPECT_EQ(result.left_out, 2);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(in("out"))) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"train.h5", "validation.h5"}));  // nothing partial
}

TEST_F(PrepareImages, StatisticsAreThoseOfTheTrainingPictures) {
  const PrepareImagesResult result = prepare_images(options({write_splits()}));
  PixelStatistics expected;
  Bytes all;
  for (const Stored& picture : pictures_of(result.train)) {
    all.insert(all.end(), picture.pixels.begin(), picture.pixels.end());
  }
  const auto count = static_cast<double>(all.size() / 3);
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < all.size(); i += 3) sum += all[i];
    for (std::size_t i = c; i < all.size(); i += 3) squares += std::pow(all[i] - sum / count, 2);
    EXPECT_NEAR(result.train.statistics.mean[c], sum / count / 255, 1e-12);
    EXPECT_NEAR(result.train.statistics.deviation[c], std::sqrt(squares / count) / 255, 1e-9);
  }
  EXPECT_EQ(result.validation->statistics, result.train.statistics);
}

TEST_F(PrepareImages, LinksToFoldersAreFollowed) {
  write("pets/cat/1.png", make_png(kSize, 1));
  write("dogs/1.png", make_png(kSize, 2));
  fs::create_directory_symlink(folder_.path() / "dogs", folder_.path() / "pets/dog");
  fs::create_directory_symlink(folder_.path() / "pets", folder_.path() / "pets/cat/all");  // no end
  EXPECT_EQ(classes_in(prepare_images(options({(folder_.path() / "pets").string()})).train),
            (std::vector<std::string>{"cat", "dog"}));
}

TEST_F(PrepareImages, EveryKindOfPictureBecomesRgb) {
  const auto decode = [&](const std::string& file) {
    const Picture picture = decode_picture("a picture", bytes_of(file));
    EXPECT_EQ(picture.size, kSize);
    return picture.pixels;
  };
  const auto expect_near = [](const Bytes& a, const Bytes& b, int most) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], most) << i;
  };
  expect_near(decode(make_jpeg({6, 8}, 1)), sample_pixels(kSize, 1), 12);
  EXPECT_EQ(decode(make_png(kSize, 1)), sample_pixels(kSize, 1));
  const Bytes grey = sample_pixels(kSize, 5, 1),
              grey_jpeg = decode(make_jpeg(kSize, 1, JpegKind::kGrey));
  const Bytes grey_png = decode(make_png(kSize, 5, PngKind::kGrey));
  for (std::size_t i = 0; i < grey.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(grey_png[3 * i + c], grey[i]);
      EXPECT_EQ(grey_jpeg[3 * i + c], grey_jpeg[3 * i]);
    }
  }
  const Bytes inks = sample_pixels(kSize, 1, 4),
              from_inks = decode(make_jpeg(kSize, 1, JpegKind::kCmyk));
  const Bytes alpha = sample_pixels(kSize, 2, 4),
              blended = decode(make_png(kSize, 2, PngKind::kRgba));
  for (std::size_t i = 0; i < inks.size() / 4; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(from_inks[3 * i + c], inks[4 * i + c] * inks[4 * i + 3] / 255, 12);
      const double share = alpha[4 * i + 3] / 255.0;  // of the picture; the rest is white
      EXPECT_NEAR(blended[3 * i + c], share * alpha[4 * i + c] + (1 - share) * 255, 0.501);
    }
  }
  EXPECT_EQ(decode(make_png(kSize, 1, PngKind::kPalette)).front(), 200);
  // Whatever the file says of its gamma, which is 1 here.
  EXPECT_EQ(decode(make_png(kSize, 1, PngKind::kRgb16)), sample_pixels(kSize, 1));
}

// Values of Pillow, which pastes the picture on white.
TEST_F(PrepareImages, TransparentPngsAreBlendedAsTheyAre) {
  using testing::PngSamples;
  const auto pixel = [](const PngSamples& samples) {
    return decode_picture("a picture", bytes_of(make_png({1, 1}, samples))).pixels;
  };
  EXPECT_EQ(pixel({.colour = 6, .row = {0, 0, 0, 128}}), (Bytes{127, 127, 127}));
  EXPECT_EQ(pixel({.colour = 6, .row = {10, 100, 250, 0}}), (Bytes{255, 255, 255}));
  EXPECT_EQ(pixel({.colour = 6, .row = {10, 100, 250, 255}}), (Bytes{10, 100, 250}));
  EXPECT_EQ(pixel({.colour = 6, .row = {10, 100, 250, 64}}), (Bytes{194, 216, 254}));
  EXPECT_EQ(pixel({.colour = 4, .row = {50, 128}}), (Bytes{152, 152, 152}));  // grey
  EXPECT_EQ(pixel({.colour = 4, .bits = 16, .row = {50, 50, 128, 128}}), (Bytes{152, 152, 152}));
  EXPECT_EQ(pixel({.colour = 6, .bits = 16, .row = {10, 10, 100, 100, 250, 250, 64, 64}}),
            (Bytes{194, 216, 254}));
  EXPECT_EQ(pixel({.colour = 6, .row = {0, 0, 0, 128}, .gamma = 100000}), (Bytes{127, 127, 127}));
  EXPECT_EQ(pixel({.colour = 2, .row = {10, 100, 250}, .gamma = 100000}), (Bytes{10, 100, 250}));
  // A palette whose second colour is half transparent.
  const Bytes palette{9, 9, 9, 10, 100, 250};
  EXPECT_EQ(pixel({.colour = 3, .row = {1}, .palette = palette, .transparent = {255, 64}}),
            (Bytes{194, 216, 254}));
  EXPECT_EQ(pixel({.colour = 3, .row = {0}, .palette = palette, .transparent = {255, 64}}),
            (Bytes{9, 9, 9}));
  // One colour that is transparent.
  EXPECT_EQ(pixel({.colour = 0, .row = {7}, .transparent = {0, 7}}), (Bytes{255, 255, 255}));
  EXPECT_EQ(pixel({.colour = 0, .row = {8}, .transparent = {0, 7}}), (Bytes{8, 8, 8}));
}

TEST_F(PrepareImages, ABadPictureLeavesTheOthersAsTheyAre) {
  const std::string jpeg = make_jpeg({64, 64}, 1), png = make_png({64, 64}, 1);
  const Bytes alone = decode_picture("alone", bytes_of(jpeg)).pixels;
  for (const std::string& whole : {jpeg, png}) {
    for (std::size_t size = 0; size < whole.size(); size += 97) {
      EXPECT_THROW(decode_picture("cut", bytes_of(whole.substr(0, size))), DataError) << size;
      EXPECT_EQ(decode_picture("good", bytes_of(jpeg)).pixels, alone) << size;
      EXPECT_EQ(decode_picture("good", bytes_of(png)).pixels, sample_pixels({64, 64}, 1)) << size;
    }
  }
  // Tables of another picture are not its own.
  std::string bare = jpeg;
  const std::size_t tables = bare.find("\xff\xdb");  // of quantisation
  ASSERT_NE(tables, std::string::npos);
  bare[tables + 1] = '\xfe';  // now a comment
  EXPECT_THROW(decode_picture("bare", bytes_of(bare)), DataError);
  write("pets/a/1.jpg", jpeg.substr(0, jpeg.size() / 2));
  for (int i = 2; i < 9; ++i) write(fmt::format("pets/a/{}.jpg", i), jpeg);
  write("pets/b/1.jpg", jpeg);
  PrepareImagesOptions skipping = options({in("pets")});
  skipping.skip_bad = true;
  const PrepareImagesResult result = prepare_images(skipping);
  EXPECT_EQ(result.bad.size(), 1u);
  EXPECT_EQ(result.train.images, 8);
}

TEST_F(PrepareImages, ALargeJpegIsDecodedSmaller) {
  const Bytes file = bytes_of(make_jpeg({160, 240}, 1));
  EXPECT_EQ(decode_picture("x", file, PictureSize{10, 10}).size, (PictureSize{20, 30}));
  EXPECT_EQ(decode_picture("x", file, PictureSize{11, 11}).size, (PictureSize{40, 60}));
  EXPECT_EQ(decode_picture("x", file, PictureSize{80, 80}).size, (PictureSize{160, 240}));
}

TEST_F(PrepareImages, BadPicturesAreRefusedOrListed) {
  const std::string jpeg = make_jpeg({64, 64}, 1), png = make_png({64, 64}, 1);
  std::string bad_crc = png;
  bad_crc[png.size() / 2] ^= 1;
  struct Bad {
    std::string name, bytes, words;
  };
  const std::vector<Bad> all = {
      // bad input: `prepare --images`: a picture that is damaged, or was cut | pets/a/1.jpg:
      // damaged:
      // Premature end of JPEG file; --skip-bad true leaves such pictures out | 3
      {"1.jpg", jpeg.substr(0, jpeg.size() / 2), "damaged: Premature end of JPEG file"},
      {"2.jpg", jpeg.substr(0, 30), "damaged: "},
      {"3.png", png.substr(0, png.size() / 2), "damaged: "},
      {"4.png", bad_crc, "damaged: "},
      // bad input: `prepare --images`: a picture that is neither JPEG nor PNG, or empty |
      // pets/a/5.jpg: neither JPEG nor PNG; ... | 3
      {"5.jpg", "GIF89a and so on", "neither JPEG nor PNG"},
      {"6.png", "", "an empty file"},
      // bad input: `prepare --images`: a picture of too many pixels, whatever is in its file |
      // pets/a/7.png: 60000 x 60000 pixels; pictures of up to 100 million pixels are read; ... | 3
      {"7.png", testing::make_png_that_claims({60000, 60000}),
       "60000 x 60000 pixels; pictures of up to 100 million pixels are read"},
      {"8.png", testing::make_png_that_claims({0, 5}), "damaged: "}};
  for (const Bad& bad : all) {
    fs::remove_all(in("pets"));
    const std::string path = write("pets/a/" + bad.name, bad.bytes);
    write("pets/b/good.jpg", jpeg);
    const std::string said = data_fault({in("pets")});
    EXPECT_SAYS(said, path + ": " + bad.words);
    EXPECT_SAYS(said, "; --skip-bad true leaves such pictures out");
  }
  fs::remove_all(in("pets"));
  for (const Bad& bad : all) write("pets/a/" + bad.name, bad.bytes);
  write("pets/a/9.jpg", jpeg);
  write("pets/b/9.jpg", jpeg);
  PrepareImagesOptions skipping = options({in("pets")});
  skipping.skip_bad = true;
  const PrepareImagesResult result = prepare_images(skipping);
  EXPECT_EQ(result.train.images, 2);
  ASSERT_EQ(result.bad.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_SAYS(result.bad[i], "pets/a/" + all[i].name + ": " + all[i].words);
  }
  fs::remove(in("pets/a/9.jpg"));
  fs::remove(in("pets/b/9.jpg"));
  // bad input: `prepare --images --skip-bad true`: no good picture | none of the 8 pictures in ...
  // is good; the first: ... | 3
  EXPECT_SAYS(fault<DataError>(skipping), "none of the 8 pictures in ");
}

// A file may go while others are read.
TEST_F(PrepareImages, AFileThatHasGoneIsLeftOut) {
  const std::string gone = write("pets/b/99.png", make_png(kSize, 1));
  write("pets/b/1.png", make_png(kSize, 1));
  for (int i = 0; i < 20; ++i) write(fmt::format("pets/a/{}.png", i), make_png(kSize, 1));
  PrepareImagesOptions skipping = options({in("pets")});
  // Two or three pictures are read at a time, and the first are done before the last are read.
  skipping.size = PictureSize{1024, 1024};
  skipping.progress = [&](const PrepareProgress& /*progress*/) { fs::remove(gone); };
  // bad input: `prepare --images`: a picture that cannot be read | ...: cannot be read: No such
  // file or directory; --skip-bad true leaves such pictures out | 3
  EXPECT_EQ(fault<DataError>(skipping),
            gone + ": cannot be read" +
                ": No such file or directory; --skip-bad true leaves such pictures out");
  write("pets/b/99.png", make_png(kSize, 1));
  skipping.skip_bad = true;
  const PrepareImagesResult result = prepare_images(skipping);
  EXPECT_EQ(result.train.images, 21);
  EXPECT_EQ(result.bad,
            (std::vector<std::string>{gone + ": cannot be read: No such file or directory"}));
}

TEST_F(PrepareImages, AHugeFileInAnArchiveIsNotRead) {
  std::string tar = make_tar({{"cat/1.png", ""}});
  tar.replace(124, 12, fmt::format("{:011o}", kMostPictureBytes + 1) + '\0');
  tar.replace(148, 8, "        ");
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[i]);
  tar.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  // bad input: `prepare --images`: a file of a picture that is too large | pets.tar: cat/1.png:
  // 268435457 bytes in one file; files of at most 268435456 are read; ... | 3
  EXPECT_SAYS(
      data_fault({write("pets.tar", tar)}),
      "pets.tar: cat/1.png: 268435457 bytes in one file; files of at most 268435456 are read");
}

TEST_F(PrepareImages, SizesAreAlikeOrMadeSo) {
  write("pets/cat/1.png", make_png({20, 20}, 1));
  write("pets/cat/2.jpg", make_jpeg({40, 100}, 2));
  write("pets/dog/3.png", make_png({5, 7}, 3));
  // bad input: `prepare --images`: pictures of several sizes without --size | ...: 40 x 100 pixels,
  // but ... has 20 x 20; --size makes all pictures alike | 3
  EXPECT_SAYS(data_fault({in("pets")}),
              "2.jpg: 40 x 100 pixels, but " + in("pets/cat/1.png") + " has 20 x 20; --size makes");
  for (const PictureSize size : {PictureSize{20, 20}, PictureSize{3, 9}, PictureSize{64, 32}}) {
    PrepareImagesOptions sized = options({in("pets")});
    sized.size = size;
    const ImageShardInfo info = prepare_images(sized).train;
    EXPECT_EQ(info.size, size);
    EXPECT_EQ(info.images, 3);
    if (size == PictureSize{20, 20}) {
      EXPECT_EQ(pictures_of(info)[0].pixels, sample_pixels({20, 20}, 1));
    }
  }
}

TEST(Resample, KeepsWhatItNeedNotChange) {
  const PictureSize size{9, 7};
  const Bytes pixels = sample_pixels(size, 3);
  Bytes same(pixels.size());
  resample(pixels, size, central_window(size, size), size, same);
  EXPECT_EQ(same, pixels);
  // A window of whole pixels is cut out.
  Bytes part(2 * 3 * 3);
  resample(pixels, size, {4, 2, 2, 3}, {2, 3}, part);
  for (std::size_t y = 0; y < 2; ++y) {
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(part[9 * y + i], pixels[(4 + y) * 21 + 6 + i]);
    }
  }
  // One colour stays one colour, smaller and larger.
  const Bytes plain(pixels.size(), 93);
  for (const PictureSize other : {PictureSize{2, 2}, PictureSize{31, 5}}) {
    Bytes made(static_cast<std::size_t>(other.height * other.width * 3));
    resample(plain, size, central_window(size, other), other, made);
    EXPECT_EQ(made, Bytes(made.size(), 93));
  }
}

TEST(Resample, AveragesAllPixelsOfTheWindowAndNoOthers) {
  const PictureSize size{4, 8};
  Bytes pixels(4 * 8 * 3, 0);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t x = i / 3 % 8;
    if (x < 2 || x >= 6) pixels[i] = 255;  // outside of the central square
  }
  Bytes one(3);
  resample(pixels, size, central_window(size, {1, 1}), {1, 1}, one);
  EXPECT_EQ(one, Bytes(3, 0));
  pixels[3 * (8 * 0 + 2)] = 255;  // a corner of the square counts
  resample(pixels, size, central_window(size, {1, 1}), {1, 1}, one);
  EXPECT_GT(one[0], 0);
  EXPECT_EQ(one[1], 0);
}

TEST_F(PrepareImages, AFractionOfEachClassIsHeldOut) {
  for (unsigned i = 0; i < 40; ++i) {
    write(fmt::format("pets/cat/{}.png", i), make_png(kSize, i));
    if (i < 10) write(fmt::format("pets/dog/{}.png", i), make_png(kSize, 100 + i));
    if (i < 2) write(fmt::format("pets/emu/{}.png", i), make_png(kSize, 200 + i));
  }
  write("pets/yak/0.png", make_png(kSize, 300));
  PrepareImagesOptions drawn = options({in("pets")});
  drawn.validation = parse_validation_split("class:0.2");
  const auto held_out = [&](std::uint64_t seed) {
    drawn.seed = seed;
    const PrepareImagesResult result = prepare_images(drawn);
    const std::vector<std::string> names = classes_in(*result.validation);
    EXPECT_EQ(std::count(names.begin(), names.end(), "cat"), 8);
    EXPECT_EQ(std::count(names.begin(), names.end(), "dog"), 2);
    EXPECT_EQ(std::count(names.begin(), names.end(), "emu"), 1);
    EXPECT_EQ(std::count(names.begin(), names.end(), "yak"), 0);
    EXPECT_EQ(result.train.images + result.validation->images, 53);
    std::vector<Stored> all = pictures_of(result.train);
    for (Stored& picture : pictures_of(*result.validation)) {
      EXPECT_EQ(std::count(all.begin(), all.end(), picture), 0);
      all.push_back(std::move(picture));
    }
    EXPECT_EQ(all.size(), 53u);
    return pictures_of(*result.validation);
  };
  const auto first = held_out(1);
  EXPECT_EQ(held_out(1), first);
  EXPECT_NE(held_out(2), first);
}

TEST_F(PrepareImages, SplitsThatCannotBeAreRefused) {
  write_splits();
  PrepareImagesOptions drawn = options({in("pets")});
  drawn.validation = parse_validation_split("class:0.5");
  // bad input: `prepare --images`: `--validation class:F` where a folder is held out already |
  // --validation class:FRACTION draws from the pictures to train on, but a folder is held out
  // already: leave one of the two out | 3
  EXPECT_SAYS(fault<DataError>(drawn), "but a folder is held out already");
  drawn.inputs = {in("pets/test")};
  EXPECT_SAYS(fault<DataError>(drawn), "there is test, but no folder train beside it");
  write("few/cat/1.png", make_png(kSize, 1));
  write("few/dog/1.png", make_png(kSize, 2));
  drawn.inputs = {in("few")};
  EXPECT_SAYS(fault<DataError>(drawn), "no class has two pictures");
  drawn.validation = parse_validation_split("hash:0.5");
  // bad input: `prepare --images`: a validation split that is for text, and the other way round |
  // pictures are held out by --validation class:FRACTION, ...; text is held out by ... | 2
  EXPECT_SAYS(fault<ConfigError>(drawn), "pictures are held out by --validation class:FRACTION");
  // The pictures to train on alone may be split.
  drawn.inputs = {in("pets/train")};
  drawn.validation = parse_validation_split("class:0.5");
  EXPECT_EQ(prepare_images(drawn).validation->images, 1);
  // A file from an earlier call belongs to other pictures.
  drawn.validation = {};
  EXPECT_FALSE(prepare_images(drawn).validation);
  EXPECT_FALSE(fs::exists(in("out/validation.h5")));
  fs::create_directory(in("none"));
  // bad input: `prepare --images`: no pictures at all | there are no pictures (.jpg, .jpeg, .png)
  // in
  // ... | 3
  EXPECT_SAYS(testing::message_of<DataError>([&] { prepare_images(options({in("none")})); }),
              "there are no pictures (");
}

// The classes of some folders, with a letter for the split.
std::string meanings(const std::vector<std::string>& folders,
                     ClassFolder which = ClassFolder::kClear) {
  std::string text;
  for (const FolderMeaning& meaning : meanings_of_folders(folders, which)) {
    const char splits[] = {'-', 'r', 'e'};
    text += fmt::format("{}{} ", splits[static_cast<int>(meaning.split)], meaning.class_name);
  }
  return text;
}

TEST(PictureFolders, SayClassAndSplit) {
  EXPECT_EQ(meanings({"cifar10/test/cat", "cifar10/train/cat", "cifar10/train/dog"}),
            "ecat rcat rdog ");
  EXPECT_EQ(meanings({"train/n01/images", "train/n02", "val/n01"}), "rn01 rn02 en01 ");
  EXPECT_EQ(meanings({"pets/cat", "pets/dog/small", "pets/dog/big"}), "-cat -dog -dog ");
  EXPECT_EQ(meanings({"cat", "dog"}), "-cat -dog ");
  EXPECT_EQ(meanings({"y/Train/a", "y/Train/b", "y/Test/a"}), "ra rb ea ");
  for (const char* held_out : {"Testing", "VAL", "Valid", "eval", "Evaluation", "dev"}) {
    EXPECT_EQ(meanings({"Training/a", "Training/b", fmt::format("{}/b", held_out)}), "ra rb eb ");
  }
  // A whole set below a folder of such a name.
  EXPECT_EQ(meanings({"dev/train/a", "dev/train/b", "dev/val/a"}), "ra rb ea ");
  EXPECT_EQ(meanings({"test/train/a", "test/train/b"}), "ra rb ");
  EXPECT_EQ(meanings({"train/a/test", "train/b/test"}), "ra rb ");
  EXPECT_EQ(meanings({"pets/test", "pets/control"}), "-test -control ");  // classes
}

TEST(PictureFolders, OneOfSeveralOnAPathMayNameTheClass) {
  const std::vector<std::string> parts = {"foo/cat", "foo/dog", "bar/cat", "bar/dog"};
  EXPECT_EQ(meanings(parts, ClassFolder::kOuter), "-foo -foo -bar -bar ");
  EXPECT_EQ(meanings(parts, ClassFolder::kInner), "-cat -dog -cat -dog ");
  EXPECT_EQ(meanings({"train/x/cat", "train/y/dog", "test/z/cat"}, ClassFolder::kInner),
            "rcat rdog ecat ");
  EXPECT_EQ(meanings({"train/x/cat", "train/y/dog", "test/x"}, ClassFolder::kOuter), "rx ry ex ");
  // Clear without being asked: other folders inside, one alone, or pictures beside them.
  EXPECT_EQ(meanings({"cat/black", "cat/white", "dog/brown", "dog/spotted"}),
            "-cat -cat -dog -dog ");
  EXPECT_EQ(meanings({"n01/images", "n02/images"}), "-n01 -n02 ");
  EXPECT_EQ(meanings({"cat", "cat/old", "cat/young", "dog/old", "dog/young"}),
            "-cat -cat -cat -dog -dog ");
  EXPECT_EQ(meanings({"a/old", "a/young", "b/old", "b/young", "c/x", "d/y"}), "-a -a -b -b -c -d ");
}

TEST(PictureFolders, ThatSayNothingAreRefused) {
  const auto said = [](const std::vector<std::string>& folders) {
    return testing::message_of<DataError>(
        [&] { meanings_of_folders(folders, ClassFolder::kClear); });
  };
  // bad input: `prepare --images`: pictures outside of the folders of classes | there are pictures
  // in the folder pets, which is no folder of a class; expected CLASS/PICTURE, or ... | 3
  EXPECT_SAYS(said({"pets", "pets/cat"}), "there are pictures in the folder pets, which is no");
  EXPECT_SAYS(said({"", "cat", "dog"}), "there are pictures in the input itself, which is no");
  EXPECT_SAYS(said({""}), "there are pictures in the input itself, which is no folder of a class");
  // bad input: `prepare --images`: some pictures below train, and others that are not | there are
  // pictures in the folder pets/other, but others are below train or test; ... | 3
  EXPECT_SAYS(said({"pets/train/cat", "pets/other"}), "in the folder pets/other, but others are");
  // bad input: `prepare --images`: both val and test beside train | there are both test and val,
  // but one of them becomes validation.h5: name the folders to use, as in PATH/train PATH/test | 3
  EXPECT_SAYS(said({"train/cat", "val/cat", "test/cat"}), "there are both test and val, but one");
  // bad input: `prepare --images`: pictures of one class, or without folders of classes | all
  // pictures to train on are of one class, cat, so that there is nothing to learn; expected a
  // folder for each of several classes, as in CLASS/PICTURE | 3
  EXPECT_SAYS(said({"pets/cat"}), "all pictures to train on are of one class, cat, so that there");
  EXPECT_SAYS(said({"train/cat", "test/cat"}),
              "all pictures to train on are of one class, cat, so");
  // bad input: `prepare --images`: the same folders in each of others | the same folders (cat, dog)
  // are in each of bar, foo: which of them are classes? --class-folder outer: bar, foo; inner: cat,
  // dog, and what is to be held out belongs below test, the rest below train | 3
  const std::string which =
      "the same folders (cat, dog) are in each of bar, foo: which of them are classes? "
      "--class-folder outer: bar, foo; inner: cat, dog, and what is to be held out belongs below "
      "test, the rest below train";
  EXPECT_EQ(said({"pets/foo/cat", "pets/foo/dog", "pets/bar/cat", "pets/bar/dog"}), which);
  EXPECT_EQ(said({"foo/x/cat", "foo/dog", "foo/bird", "bar/x/cat", "bar/dog"}), which);
  EXPECT_SAYS(
      said({"train/foo/cat", "train/foo/dog", "train/bar/cat", "train/bar/dog", "test/foo/cat"}),
      "the same folders (cat, dog) are in each of bar, foo: ");
  // bad input: `prepare --images`: train and test in each class | test, train are in each of cat,
  // dog; expected train/CLASS and test/CLASS the other way round (--class-folder outer ...) | 3
  EXPECT_SAYS(said({"cat/train", "cat/test", "dog/train", "dog/test"}),
              "test, train are in each of cat, dog; expected train/CLASS and test/CLASS");
  // bad input: `prepare --images`: a class of test that train lacks | the class dog is to be
  // tested, but train has no such folder | 3
  EXPECT_SAYS(said({"train/cat", "test/dog"}), "the class dog is to be tested, but train has no");
}

TEST_F(PrepareImages, ThreadsDoNotShow) {
  for (unsigned i = 0; i < 200; ++i) {
    write(fmt::format("pets/{}/{}.jpg", i % 3, i), make_jpeg({20 + i % 7, 30}, i));
  }
  PrepareImagesOptions made = options({in("pets")});
  made.size = PictureSize{16, 16};
  made.validation = parse_validation_split("class:0.3");
  for (const int threads : {1, 2, 5}) {
    made.threads = threads;
    made.output = in(fmt::format("out{}", threads));
    prepare_images(made);
  }
  for (const char* name : {"/train.h5", "/validation.h5"}) {
    const std::string first = file_contents(in("out1") + name);
    EXPECT_FALSE(first.empty());
    EXPECT_TRUE(file_contents(in("out2") + name) == first) << name;
    EXPECT_TRUE(file_contents(in("out5") + name) == first) << name;
  }
}

TEST_F(PrepareImages, ReportsProgress) {
  write_splits();
  PrepareImagesOptions told = options({in("pets")});
  std::vector<PrepareProgress> reports;
  told.progress = [&](const PrepareProgress& report) { reports.push_back(report); };
  const PrepareImagesResult result = prepare_images(told);
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports.back().made, 4u);
  EXPECT_EQ(std::string(reports.back().unit), "pictures");
  EXPECT_EQ(reports.back().bytes_read, reports.back().bytes_total);
  EXPECT_EQ(result.bytes, reports.back().bytes_total);
}

TEST_F(PrepareImages, AFullDiskLeavesNothing) {
  for (unsigned i = 0; i < 100; ++i) {
    write(fmt::format("pets/{}/{}.png", i % 2, i), make_png({64, 64}, i));
  }
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  // One is too small for the pixels, the other for the file around them.
  for (const rlim_t limit : {rlim_t{100'000}, rlim_t{100 * 64 * 64 * 3 + 100}}) {
    const rlimit small{limit, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string said = fault<RunFolderError>(options({in("pets")}));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_SAYS(said, ".partial");
    EXPECT_FALSE(fs::exists(in("out")));
  }
}

TEST_F(PrepareImages, DamageIsFound) {
  const ImageShardInfo info = prepare_images(options({write_splits()})).train;
  const std::string whole = file_contents(info.path);
  const auto said_of = [&](std::int64_t offset) {
    std::string damaged = whole;
    damaged[static_cast<std::size_t>(offset)] ^= 1;
    const std::string path = write("damaged.h5", damaged);
    return testing::message_of<DataError>([&] { verify_image_shard(path); });
  };
  // bad input: an image shard with a flipped pixel or label | ...: damaged: picture 1 or its label
  // does not match its checksum | 3
  EXPECT_SAYS(said_of(info.images_offset + info.picture_bytes() + 5), "damaged: picture 1 or its");
  EXPECT_SAYS(said_of(info.labels_offset), "damaged: picture 0 or its label does not match");
  EXPECT_SAYS(said_of(info.checksums_offset + 17), "damaged: picture 2 or its label");
  EXPECT_SAYS(said_of(40), "damaged: its headers do not match their checksum");
  for (std::size_t size = 0; size < whole.size(); size += 501) {
    const std::string path = write("cut.h5", whole.substr(0, size));
    EXPECT_THROW(verify_image_shard(path), DataError) << size;
  }
}

TEST(PrepareImagesOptions, SizesAreParsed) {
  EXPECT_EQ(parse_picture_size("224"), (PictureSize{224, 224}));
  EXPECT_EQ(parse_picture_size("192x256"), (PictureSize{192, 256}));
  for (const char* bad :
       {"", "x", "0", "-3", "3x", "x3", "4097", "3x4x5", "1e2", "99999999999999999999"}) {
    EXPECT_THROW(parse_picture_size(bad), ConfigError) << bad;
    EXPECT_FALSE(read_picture_size(bad)) << bad;
  }
}

}  // namespace
}  // namespace trireme
