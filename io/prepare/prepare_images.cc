#include "trireme/io/prepare_images.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/base/printable.h"

#include "io/files/spool_file.h"
#include "io/pictures/fitted_picture.h"
#include "io/prepare/ordered_work.h"
#include "io/prepare/picture_folders.h"
#include "io/prepare/prepared_shards.h"

namespace trireme {
namespace {

constexpr std::size_t kBatchPictures = 64;
constexpr std::size_t kBatchFileBytes = std::size_t{1} << 20;
constexpr std::int64_t kBatchPixelBytes = std::int64_t{8} << 20;
constexpr std::int64_t kMostSide = 4096;

// A picture that was read, as RGB of the size of all; or why it is bad.
struct ReadPicture {
  std::string folder;
  std::vector<std::uint8_t> pixels;
  std::string problem;
};
using PictureBatch = std::vector<PictureFile>;
using ReadBatch = std::vector<ReadPicture>;

// What all pictures are made to be.
struct CommonSize {
  PictureSize size;
  std::string first;  // the picture that has decided; empty: the user has
};

// Another size than that of the first picture is no fault of the picture: all of them end the work.
class SizeError : public DataError {
 public:
  using DataError::DataError;
};

std::vector<std::uint8_t> read_picture(const PictureFile& file, const CommonSize& common) {
  if (common.first.empty()) {
    return fitted(decode_file(file, common.size), common.size);
  }
  Picture picture = decode_file(file, {});
  if (picture.size != common.size) {
    throw SizeError(
        fmt::format("{}: {} x {} pixels, but {} has {} x {}; --size makes all pictures alike",
                    file.name, picture.size.height, picture.size.width, common.first,
                    common.size.height, common.size.width));
  }
  return std::move(picture.pixels);
}

ReadBatch read_batch(const PictureBatch& files, const CommonSize& common) {
  ReadBatch batch;
  for (const PictureFile& file : files) {
    ReadPicture picture{file.folder, {}, {}};
    try {
      picture.pixels = read_picture(file, common);
    } catch (const SizeError&) {
      throw;
    } catch (const DataError& error) {
      picture.problem = error.what();
    }
    batch.push_back(std::move(picture));
  }
  return batch;
}

void check_image_options(const PrepareImagesOptions& options) {
  if (options.threads < 1) {
    throw ConfigError(fmt::format("prepare with {} threads; at least 1", options.threads));
  }
  if (options.output.empty()) throw ConfigError("prepare needs an output folder");
  check_validation(options);
}

// A side of the split: indices of pictures in the order in which they were read.
using Pictures = std::vector<std::uint64_t>;

class ImagePreparation {
 public:
  explicit ImagePreparation(const PrepareImagesOptions& options)
      : options_(options), source_(options.inputs, options.standard_input) {}

  PrepareImagesResult run() {
    folder_.emplace(options_.output, std::vector<std::string>{kValidationShard, kTrainShard});
    spool_.emplace(folder_->path(kTrainShard) + ".pictures.partial");
    read_all();
    label();
    split();
    return write();
  }

 private:
  std::string inputs() const { return fmt::format("{}", fmt::join(options_.inputs, ", ")); }

  // source -> batches -> pixels -> spool
  void read_all() {
    PictureBatch batch;
    std::size_t bytes = 0;
    decide_size(batch);
    OrderedWork<PictureBatch, ReadBatch> work(
        options_.threads, [this](const PictureBatch& files) { return read_batch(files, common_); },
        [this](ReadBatch&& read) { store(std::move(read)); });
    const std::int64_t most = kBatchPixelBytes / (common_.size.height * common_.size.width * 3 + 1);
    const std::size_t pictures =
        std::clamp<std::size_t>(static_cast<std::size_t>(most), 1, kBatchPictures);
    PictureFile file;
    while (source_.next(file)) {
      bytes += file.bytes.size();
      batch.push_back(std::move(file));
      if (batch.size() < pictures && bytes < kBatchFileBytes) continue;
      work.add(std::exchange(batch, {}));
      bytes = 0;
    }
    if (!batch.empty()) work.add(std::move(batch));
    work.finish();
    check_some();
  }

  // The size asked for, or that of the first picture that is good, which goes into `read`.
  void decide_size(PictureBatch& read) {
    if (options_.size) {
      common_ = {*options_.size, ""};
      return;
    }
    PictureFile file;
    while (read.empty() && source_.next(file)) {
      try {
        common_ = {decode_file(file, {}).size, file.name};
        read.push_back(std::move(file));
      } catch (const DataError& error) {
        add_bad(error.what());
      }
    }
    if (common_.size.height > kMostSide || common_.size.width > kMostSide) {
      throw DataError(fmt::format(
          "{}: {} x {} pixels, of at most {} x {} in a shard; --size makes "
          "pictures smaller",
          common_.first, common_.size.height, common_.size.width, kMostSide, kMostSide));
    }
  }

  void add_bad(const std::string& problem) {
    if (!options_.skip_bad) refuse_bad_picture(problem);
    bad_.push_back(problem);
  }

  void store(ReadBatch&& batch) {
    for (const ReadPicture& picture : batch) {
      if (!picture.problem.empty()) {
        add_bad(picture.problem);
        continue;
      }
      spool_->append(std::as_bytes(std::span(picture.pixels)));
      const auto number = static_cast<std::uint32_t>(folders_.size());
      const auto [at, is_new] = folder_numbers_.emplace(picture.folder, number);
      if (is_new) folders_.push_back(picture.folder);
      labels_.push_back(static_cast<std::int32_t>(at->second));
    }
    report("reading pictures");
  }

  void check_some() const {
    if (!labels_.empty()) return;
    if (!bad_.empty()) {
      throw DataError(fmt::format("none of the {} pictures in {} is good; the first: {}",
                                  bad_.size(), inputs(), bad_.front()));
    }
    throw DataError(fmt::format("there are no pictures (.jpg, .jpeg, .png) in {}", inputs()));
  }

  // So far a picture's label is the number of its folder.
  void label() {
    const std::vector<FolderMeaning> meanings =
        meanings_of_folders(folders_, options_.class_folder);
    std::map<std::string, std::int32_t> numbers;
    for (const FolderMeaning& meaning : meanings) numbers.emplace(meaning.class_name, 0);
    for (auto& [name, number] : numbers) {
      number = static_cast<std::int32_t>(classes_.size());
      classes_.push_back(name);
    }
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      const FolderMeaning& meaning = meanings[static_cast<std::size_t>(labels_[i])];
      labels_[i] = numbers.at(meaning.class_name);
      (meaning.split == FolderMeaning::Split::kTest ? held_out_ : train_).push_back(i);
    }
  }

  void split() {
    if (options_.validation.rule == ValidationSplit::Rule::kNone) return;
    if (!held_out_.empty()) {
      throw DataError(
          "--validation class:FRACTION draws from the pictures to train on, but a folder is held "
          "out already: leave one of the two out");
    }
    std::vector<std::uint64_t> counts(classes_.size());
    for (const std::int32_t label : labels_) ++counts[static_cast<std::size_t>(label)];
    std::vector<std::uint64_t> seen(classes_.size());
    train_.clear();
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      const auto label = static_cast<std::size_t>(labels_[i]);
      (is_held_out(label, counts[label], seen[label]++) ? held_out_ : train_).push_back(i);
    }
    if (held_out_.empty()) {
      throw DataError(fmt::format("no class has two pictures: none can be held out by class:{}",
                                  options_.validation.fraction));
    }
  }

  // Whether to hold out number `index` of the pictures of a class: a fraction of them, but at least
  // one, and not all.
  bool is_held_out(std::size_t label, std::uint64_t count, std::uint64_t index) const {
    if (count < 2) return false;
    const auto wanted = static_cast<std::uint64_t>(
        std::llround(static_cast<double>(count) * options_.validation.fraction));
    const std::uint64_t key = philox_key(options_.seed, "validation.class " + classes_[label]);
    return permuted_index(key, count, index) < std::clamp<std::uint64_t>(wanted, 1, count - 1);
  }

  PrepareImagesResult write() {
    report("writing");
    const std::string train_path = folder_->path(kTrainShard);
    const std::string validation_path = folder_->path(kValidationShard);
    ImageShardWriter train(train_path, contents("train", train_, {}));
    std::optional<ImageShardWriter> validation;
    if (!held_out_.empty()) {
      validation.emplace(validation_path, contents("validation", held_out_, train.statistics()));
      validation->finish();
    }
    train.finish();
    name_shards(*folder_, 1, validation.has_value());
    PrepareImagesResult result;
    if (validation) result.validation = read_image_shard_info(validation_path);
    result.train = read_image_shard_info(train_path);
    result.bad = std::move(bad_);
    result.left_out = source_.left_out();
    result.bytes = source_.bytes_read();
    result.seconds = watch_.seconds();
    return result;
  }

  ImageShardContents contents(const char* split, const Pictures& pictures,
                              const std::optional<PixelStatistics>& statistics) {
    return {.size = common_.size,
            .images = std::ssize(pictures),
            .classes = classes_,
            .source = printable(inputs()),
            .split = split,
            .fetch =
                [this, &pictures](std::int64_t i, std::span<std::uint8_t> pixels) {
                  const std::uint64_t picture = pictures[static_cast<std::size_t>(i)];
                  spool_->read(picture * pixels.size(), std::as_writable_bytes(pixels));
                  return labels_[picture];
                },
            .statistics = statistics,
            .threads = options_.threads};
  }

  void report(const char* phase) const {
    if (!options_.progress) return;
    options_.progress({phase, source_.bytes_read(), source_.bytes_total(), labels_.size(),
                       "pictures", watch_.seconds()});
  }

  const PrepareImagesOptions& options_;
  Stopwatch watch_;
  PictureSource source_;
  CommonSize common_;
  std::optional<SetFolder> folder_;
  std::optional<SpoolFile> spool_;  // the pixels of all good pictures
  std::vector<std::int32_t> labels_;
  std::vector<std::string> folders_;
  std::unordered_map<std::string, std::uint32_t> folder_numbers_;
  std::vector<std::string> classes_, bad_;
  Pictures train_, held_out_;
};

}  // namespace

std::optional<PictureSize> read_picture_size(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (!whole || value < 1 || value > kMostSide) return {};
    return value;
  };
  const std::size_t cross = text.find('x');
  const auto height = number(text.substr(0, cross));
  const auto width = cross == std::string_view::npos ? height : number(text.substr(cross + 1));
  if (!height || !width) return {};
  return PictureSize{*height, *width};
}

PictureSize parse_picture_size(const std::string& text) {
  if (const auto size = read_picture_size(text)) return *size;
  throw ConfigError(fmt::format(
      "--size {}: expected a side of 1 to {} pixels, as in 224, or height x width, as in 192x256",
      shown(text), kMostSide));
}

void check_validation(const PrepareImagesOptions& options) {
  using Rule = ValidationSplit::Rule;
  if (options.validation.rule != Rule::kNone && options.validation.rule != Rule::kClass) {
    throw ConfigError(
        "pictures are held out by --validation class:FRACTION, or by a folder test beside train; "
        "hash:FRACTION and tail:BYTES are for text");
  }
}

PrepareImagesResult prepare_images(const PrepareImagesOptions& options) {
  check_image_options(options);
  return ImagePreparation(options).run();
}

}  // namespace trireme
