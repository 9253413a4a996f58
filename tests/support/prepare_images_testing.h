// Folders of pictures that `trireme prepare --images` reads, and what it has made of them, for
// tests.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/prepare_images.h"

#include "support/sample_pictures.h"
#include "support/temporary_folder.h"

namespace trireme::testing {

inline constexpr PictureSize kSize{6, 8};

// A picture of a shard: the name of its class, and its pixels.
struct Stored {
  std::string class_name;
  Bytes pixels;
  bool operator==(const Stored&) const = default;
};

inline std::vector<Stored> pictures_of(const ImageShardInfo& info) {
  verify_image_shard(info.path);
  const hdf5::File file = hdf5::File::open(info.path);
  const Bytes pixels = file.dataset("/images").read<std::uint8_t>();
  const auto labels = file.dataset("/labels").read<std::int32_t>();
  const std::vector<std::string> classes = file.strings("/classes");
  EXPECT_EQ(classes, info.classes);
  std::vector<Stored> all;
  const std::ptrdiff_t each = info.picture_bytes();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto begin = pixels.begin() + static_cast<std::ptrdiff_t>(i) * each;
    all.push_back({classes.at(static_cast<std::size_t>(labels[i])), Bytes(begin, begin + each)});
  }
  return all;
}

inline std::vector<std::string> classes_in(const ImageShardInfo& info) {
  std::vector<std::string> names;
  for (const Stored& picture : pictures_of(info)) names.push_back(picture.class_name);
  return names;
}

class PrepareImages : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  std::string in(const std::string& name) const { return (folder_.path() / name).string(); }
  PrepareImagesOptions options(const std::vector<std::string>& inputs) const {
    PrepareImagesOptions options;
    options.inputs = inputs;
    options.output = in("out");
    return options;
  }
  // Two classes to train on and to test.
  std::string write_splits(const std::string& root = "pets") {
    write(root + "/train/dog/1.png", make_png(kSize, 1));
    write(root + "/train/cat/2.png", make_png(kSize, 2));
    write(root + "/train/cat/1.PNG", make_png(kSize, 3));
    write(root + "/test/cat/1.png", make_png(kSize, 4));
    return in(root);
  }
  // What an earlier call has left under a temporary name.
  std::ptrdiff_t partial_files() const {
    if (!std::filesystem::exists(in("out"))) return 0;
    return std::count_if(std::filesystem::directory_iterator(in("out")),
                         std::filesystem::directory_iterator(),
                         [](const auto& entry) { return entry.path().extension() == ".partial"; });
  }
  // The message of the error, which must be one of this class.
  template <class Fault>
  std::string fault(const PrepareImagesOptions& options) {
    try {
      prepare_images(options);
    } catch (const Fault& error) {
      EXPECT_EQ(partial_files(), 0);
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string data_fault(const std::vector<std::string>& inputs) {
    return fault<DataError>(options(inputs));
  }

  TemporaryFolder folder_;
};

#define EXPECT_SAYS(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)

}  // namespace trireme::testing
