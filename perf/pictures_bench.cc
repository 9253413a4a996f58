// Pictures per second: preparing them, compared with libjpeg-turbo's own decoding of the same
// files, and reading and augmenting them from the shard.
//
//     pictures_bench INPUT [SIZE [THREADS]]
//
// INPUT is a folder or an archive as `trireme prepare --images` takes it, SIZE the side of the
// pictures in the shard (default: that of the first), THREADS those of preparing (default: all).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <turbojpeg.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/io/image_dataset.h"
#include "trireme/io/prepare_images.h"

#include "io/prepare/picture_source.h"

namespace trireme {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of files that are kept in memory
constexpr double kLeastSeconds = 2;
constexpr std::size_t kBatch = 128;

void report(const std::string& what, double pictures, double seconds) {
  fmt::print("{:<52} {:>10.0f} pictures/s {:>9.1f} us each\n", what, pictures / seconds,
             1e6 * seconds / pictures);
}

// The JPEG files of the input, as many as memory should hold.
std::vector<std::vector<std::uint8_t>> jpegs_of(const std::string& input) {
  std::vector<std::vector<std::uint8_t>> files;
  std::uint64_t bytes = 0;
  PictureSource source({input}, 0);
  for (PictureFile file; bytes < kMostBytes && source.next(file);) {
    if (file.bytes.size() < 2 || file.bytes[0] != 0xff || file.bytes[1] != 0xd8) continue;
    bytes += file.bytes.size();
    files.push_back(std::move(file.bytes));
  }
  return files;
}

// libjpeg-turbo alone, in one thread: whole pictures, from memory to memory.
void decode_alone(const std::vector<std::vector<std::uint8_t>>& files) {
  const std::unique_ptr<void, decltype(&tjDestroy)> handle(tjInitDecompress(), tjDestroy);
  std::vector<std::uint8_t> pixels;
  double count = 0;
  const Stopwatch watch;
  do {
    for (const std::vector<std::uint8_t>& file : files) {
      int width = 0, height = 0, subsampling = 0, colours = 0;
      tjDecompressHeader3(handle.get(), file.data(), file.size(), &width, &height, &subsampling,
                          &colours);
      pixels.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
      tjDecompress2(handle.get(), file.data(), file.size(), pixels.data(), width, 0, height,
                    TJPF_RGB, TJFLAG_ACCURATEDCT);
      ++count;
    }
  } while (watch.seconds() < kLeastSeconds);
  report("libjpeg-turbo's decoding, 1 thread", count, watch.seconds());
}

// Reading, checking and augmenting, in one thread; the shard is in the page cache.
void read_alone(const ImageDataset& dataset, const std::string& what,
                const ImageTransform& transform) {
  const auto transformer = dataset.transformer(transform);
  std::vector<std::uint64_t> samples(kBatch);
  const PictureSize size = transform.size;
  std::vector<float> pixels(kBatch * static_cast<std::size_t>(size.height * size.width * 3));
  std::vector<std::int32_t> labels(kBatch);
  std::uint64_t next = 0;
  const auto batch = [&] {
    std::iota(samples.begin(), samples.end(), next);
    next += kBatch;
    dataset.read(samples, *transformer, pixels, labels);
  };
  while (next < dataset.samples()) batch();  // fills the page cache
  next = 0;
  const Stopwatch watch;
  while (watch.seconds() < kLeastSeconds) batch();
  report(fmt::format("reading, {}, 1 thread", what), static_cast<double>(next), watch.seconds());
}

void run(const std::string& input, const std::string& size, int threads) {
  const std::vector<std::vector<std::uint8_t>> files = jpegs_of(input);
  fmt::print("{} JPEG files of {}, {} cores\n", files.size(), input,
             std::thread::hardware_concurrency());
  if (!files.empty()) decode_alone(files);
  std::string folder = (std::filesystem::temp_directory_path() / "pictures_bench_XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw RunFolderError("cannot make " + folder);
  const std::unique_ptr<std::string, std::function<void(std::string*)>> remover(
      &folder, [](std::string* path) { std::filesystem::remove_all(*path); });
  PrepareImagesOptions options;
  options.inputs = {input};
  options.output = folder;
  if (!size.empty()) options.size = parse_picture_size(size);
  options.skip_bad = true;
  options.threads = threads;
  const PrepareImagesResult made = prepare_images(options);
  report(fmt::format("prepare --images, {} threads", threads),
         static_cast<double>(made.train.images + (made.validation ? made.validation->images : 0)),
         made.seconds);

  const auto dataset = ImageDataset::open({.data = {{made.train.path}}});
  ImageTransform transform;
  transform.size = dataset->size();
  transform.statistics = dataset->statistics();
  read_alone(*dataset, "whole pictures", transform);
  transform.crop = ImageTransform::Crop::kRandom;
  transform.padding = 4;
  transform.flip = true;
  read_alone(*dataset, "crop with padding 4 and flip", transform);
  transform.crop = ImageTransform::Crop::kRandomResized;
  read_alone(*dataset, "random resized crop and flip", transform);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: pictures_bench INPUT [SIZE [THREADS]]\n");
    return 2;
  }
  try {
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    trireme::run(argv[1], argc > 2 ? argv[2] : "", argc > 3 ? std::atoi(argv[3]) : cores);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
  return 0;
}
