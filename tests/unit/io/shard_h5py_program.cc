// Writes text.txt, and shards of it under bytes/ and pieces/, into the folder it is given; and a
// shard of pictures under images/, with the pixels of each as images/0.raw and so on.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/prepare.h"
#include "trireme/io/prepare_images.h"

#include "support/sample_pictures.h"
#include "support/sample_text.h"

namespace {

void prepare_pictures(const std::string& folder) {
  using namespace trireme;
  constexpr PictureSize kSize{6, 8};
  for (unsigned i = 0; i < 5; ++i) {
    const std::string own = fmt::format("{}/pets/{}", folder, i < 2 ? "\303\244ffchen" : "dog");
    std::filesystem::create_directories(own);
    std::ofstream(fmt::format("{}/{}.png", own, i), std::ios::binary)
        << testing::make_png(kSize, i);
  }
  PrepareImagesOptions options;
  options.inputs = {folder + "/pets"};
  options.output = folder + "/images";
  prepare_images(options);
  for (unsigned i = 0; i < 5; ++i) {
    const testing::Bytes pixels = testing::sample_pixels(kSize, i);
    std::ofstream(fmt::format("{}/images/{}.raw", folder, i), std::ios::binary)
        .write(reinterpret_cast<const char*>(pixels.data()), std::ssize(pixels));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  try {
    PrepareOptions options;
    options.inputs = {folder + "/text.txt"};
    std::ofstream(options.inputs[0], std::ios::binary) << testing::sample_text(300000, 11);
    options.tokenizer = parse_tokenizer_choice("bpe:400");
    options.output = folder + "/pieces";
    prepare(options);
    options.tokenizer = parse_tokenizer_choice("byte");
    options.output = folder + "/bytes";
    options.document_separator = "\n\n";
    options.validation = parse_validation_split("hash:0.3");
    prepare(options);
    prepare_pictures(folder);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
  return 0;
}
