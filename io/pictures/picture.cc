#include "io/pictures/picture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include <fmt/format.h>
#include <turbojpeg.h>

#include "trireme/base/error.h"
#include "trireme/base/rounding.h"

#include "io/pictures/png_decoder.h"

namespace trireme {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegMagic = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngMagic = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

template <std::size_t N>
bool begins_with(std::span<const std::uint8_t> bytes, const std::array<std::uint8_t, N>& magic) {
  return bytes.size() >= N && std::equal(magic.begin(), magic.end(), bytes.begin());
}

[[noreturn]] void refuse_picture(const std::string& name, const std::string& reason) {
  throw DataError(fmt::format("{}: {}", name, reason));
}

void check_pixels(const std::string& name, PictureSize size) {
  if (size.height < 1 || size.width < 1) refuse_picture(name, "damaged: its header tells no size");
  if (size.width > kMostPixels / size.height) {
    refuse_picture(name, fmt::format("{} x {} pixels; pictures of up to {} million pixels are read",
                                     size.height, size.width, kMostPixels / 1'000'000));
  }
}

Picture blank(PictureSize size, int channels) {
  return {size, std::vector<std::uint8_t>(static_cast<std::size_t>(size.height * size.width) *
                                          static_cast<std::size_t>(channels))};
}

// Programs write CMYK inverted into JPEG files: 255 is no ink.
void cmyk_to_rgb(Picture& picture) {
  std::vector<std::uint8_t>& pixels = picture.pixels;
  for (std::size_t from = 0, to = 0; from < pixels.size(); from += 4, to += 3) {
    const unsigned black = pixels[from + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      pixels[to + c] = static_cast<std::uint8_t>((pixels[from + c] * black + 127) / 255);
    }
  }
  pixels.resize(pixels.size() / 4 * 3);
}

// The size that the decoder makes of a picture: the smallest that is at least twice `needed`.
PictureSize decoded_size(PictureSize size, std::optional<PictureSize> needed) {
  PictureSize smallest = size;
  if (!needed) return smallest;
  for (const int divisor : {2, 4, 8}) {
    const PictureSize reduced{quotient_up(size.height, divisor), quotient_up(size.width, divisor)};
    if (reduced.height < 2 * needed->height || reduced.width < 2 * needed->width) break;
    smallest = reduced;
  }
  return smallest;
}

Picture decode_jpeg(const std::string& name, std::span<const std::uint8_t> bytes,
                    std::optional<PictureSize> needed) {
  // One for each picture: a decoder keeps tables and faults of what it has read.
  const std::unique_ptr<void, decltype(&tjDestroy)> decoder(tjInitDecompress(), tjDestroy);
  if (!decoder) throw OutOfMemoryError("out of memory for a JPEG decoder");
  const tjhandle handle = decoder.get();
  const auto refuse = [&] {
    refuse_picture(name, fmt::format("damaged: {}", tjGetErrorStr2(handle)));
  };
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(handle, bytes.data(), bytes.size(), &width, &height, &subsampling,
                          &colours) != 0) {
    refuse();
  }
  check_pixels(name, {height, width});
  const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  Picture picture = blank(decoded_size({height, width}, needed), inks ? 4 : 3);
  // A warning means that parts of the picture are missing or made up. A picture of many scans could
  // take hours.
  constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  if (tjDecompress2(handle, bytes.data(), bytes.size(), picture.pixels.data(),
                    static_cast<int>(picture.size.width), 0, static_cast<int>(picture.size.height),
                    inks ? TJPF_CMYK : TJPF_RGB, kFlags) != 0) {
    refuse();
  }
  if (inks) cmyk_to_rgb(picture);
  return picture;
}

// White shows through what is transparent. Values are blended as they are, as other programs do,
// not in linear light.
void blend_with_white(Picture& picture) {
  std::vector<std::uint8_t>& pixels = picture.pixels;
  for (std::size_t from = 0, to = 0; from < pixels.size(); from += 4, to += 3) {
    const unsigned alpha = pixels[from + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned sum = pixels[from + c] * alpha + 255 * (255 - alpha);
      pixels[to + c] = static_cast<std::uint8_t>((sum + 127) / 255);
    }
  }
  pixels.resize(pixels.size() / 4 * 3);
}

Picture decode_png(const std::string& name, std::span<const std::uint8_t> bytes) {
  PngDecoder decoder(bytes);
  const auto refuse = [&] { refuse_picture(name, fmt::format("damaged: {}", decoder.problem())); };
  if (!decoder.read_header()) refuse();
  check_pixels(name, decoder.size());
  Picture picture = blank(decoder.size(), decoder.channels());
  if (!decoder.read_pixels(picture.pixels)) refuse();
  if (decoder.channels() == 4) blend_with_white(picture);
  return picture;
}

}  // namespace

bool has_picture_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(name.substr(dot));
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

Picture decode_picture(const std::string& name, std::span<const std::uint8_t> bytes,
                       std::optional<PictureSize> needed) {
  if (begins_with(bytes, kJpegMagic)) return decode_jpeg(name, bytes, needed);
  if (begins_with(bytes, kPngMagic)) return decode_png(name, bytes);
  refuse_picture(name, bytes.empty() ? "an empty file" : "neither JPEG nor PNG");
}

}  // namespace trireme
