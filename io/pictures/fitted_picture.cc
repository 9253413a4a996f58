#include "io/pictures/fitted_picture.h"

#include "trireme/base/error.h"

#include "io/pictures/resample.h"

namespace trireme {

Picture decode_file(const PictureFile& file, std::optional<PictureSize> needed) {
  if (!file.problem.empty()) throw DataError(file.problem);
  return decode_picture(file.name, file.bytes, needed);
}

void refuse_bad_picture(const std::string& problem) {
  throw DataError(problem + "; --skip-bad true leaves such pictures out");
}

std::vector<std::uint8_t> fitted(const Picture& picture, PictureSize size) {
  if (picture.size == size) return picture.pixels;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * 3));
  resample(picture.pixels, picture.size, central_window(picture.size, size), size, pixels);
  return pixels;
}

}  // namespace trireme
