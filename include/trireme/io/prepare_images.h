// Turns pictures into image shards, as `trireme prepare --images` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/image_shard.h"
#include "trireme/io/prepare.h"

namespace trireme {

// Reads "224" (a square) or "192x256" (height x width). Throws ConfigError.
PictureSize parse_picture_size(const std::string& text);
// The same for a text that is no flag: returns nothing for what is no such size.
std::optional<PictureSize> read_picture_size(std::string_view text);

// Which folder names the class of the pictures below it, where folders lie in folders: the outer
// one, where paths part or in which a split's pictures lie; or the inner one, which holds the
// picture itself. kClear: the outer one, unless the inner ones may well be the classes.
enum class ClassFolder { kClear, kOuter, kInner };

struct PrepareImagesOptions {
  // Folders, tar archives (of plain bytes, or compressed with gzip, bzip2, xz or zstd) and "-",
  // which is an archive from the file descriptor standard_input.
  std::vector<std::string> inputs;
  int standard_input = 0;
  std::string output;               // folder for train.h5 and validation.h5; created if missing
  std::optional<PictureSize> size;  // none: that of the first picture, which all must have
  // kNone or kClass. With kNone the folders decide.
  ValidationSplit validation;
  ClassFolder class_folder = ClassFolder::kClear;
  bool skip_bad = false;   // leave bad pictures out, and list them
  std::uint64_t seed = 1;  // for the split by class
  int threads = 1;
  std::function<void(const PrepareProgress&)> progress;  // called from the calling thread
};

struct PrepareImagesResult {
  ImageShardInfo train;
  std::optional<ImageShardInfo> validation;
  std::vector<std::string> bad;  // a line for each bad picture that was left out
  std::int64_t left_out = 0;     // files that are no pictures by their names
  std::uint64_t bytes = 0;       // of the inputs
  double seconds = 0.0;
};

// Throws ConfigError for a rule that is not for pictures. prepare_images() checks it too, but this
// makes no folder.
void check_validation(const PrepareImagesOptions& options);

// Turns the pictures of folders and archives into shards. io/DATA_SHARDS.md says which folder
// becomes which class and which split. The shards depend on the inputs and the options, not on the
// number of threads. Pictures are kept in the output folder until all are read; memory holds some
// bytes for each.
//
// Throws DataError if an input is missing, unreadable or no archive, if a picture is bad and
// skip_bad is not set, if sizes differ and no size is asked for, or if folders or a split leave one
// side empty; RunFolderError if the output cannot be written; ConfigError for an impossible value.
PrepareImagesResult prepare_images(const PrepareImagesOptions& options);

}  // namespace trireme
