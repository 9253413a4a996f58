#include "support/sample_pictures.h"

#include <cstring>
#include <memory>
#include <stdexcept>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

namespace trireme::testing {
namespace {

std::string written(png_image& image, const void* pixels, const void* palette = nullptr) {
  png_alloc_size_t bytes = 0;
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels, 0, palette) == 0) {
    throw std::runtime_error(image.message);
  }
  std::string file(bytes, '\0');
  png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels, 0, palette);
  file.resize(bytes);
  return file;
}

png_image image_of(PictureSize size, png_uint_32 format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = format;
  return image;
}

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

const std::string kPngMagic = "\x89PNG\r\n\x1a\n";

std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string png_chunk(const std::string& kind, const std::string& bytes) {
  const std::string body = kind + bytes;
  const auto sum =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(bytes.size()) + body + big_endian(sum);
}

std::string png_header(PictureSize size, int bits, int colour) {
  return png_chunk("IHDR", big_endian(static_cast<std::uint64_t>(size.width)) +
                               big_endian(static_cast<std::uint64_t>(size.height)) +
                               static_cast<char>(bits) + static_cast<char>(colour) +
                               std::string(3, '\0'));
}

// A header, and the file's bytes filled up to whole blocks.
std::string tar_entry(const std::string& name, char type, const std::string& bytes) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 8, std::string("0000644\0", 8));
  header.replace(124, 12, fmt::format("{:011o}", bytes.size()) + '\0');
  header.replace(136, 12, std::string("00000000000\0", 12));
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

}  // namespace

Bytes sample_pixels(PictureSize size, unsigned seed, int channels) {
  Bytes pixels;
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const std::int64_t slope = 1 + (seed >> c) % 3;
        pixels.push_back(static_cast<std::uint8_t>(
            (40 * seed + 70u * static_cast<unsigned>(c) +
             static_cast<unsigned>(slope * (c % 2 == 0 ? x : y) * 96 / size.width)) %
            256));
      }
    }
  }
  return pixels;
}

std::string make_jpeg(PictureSize size, unsigned seed, JpegKind kind) {
  const bool inks = kind == JpegKind::kCmyk;
  const Bytes pixels = sample_pixels(size, seed, inks ? 4 : 3);
  const std::unique_ptr<void, decltype(&tjDestroy)> handle(tjInitCompress(), tjDestroy);
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  if (tjCompress2(handle.get(), pixels.data(), static_cast<int>(size.width), 0,
                  static_cast<int>(size.height), inks ? TJPF_CMYK : TJPF_RGB, &file, &bytes,
                  kind == JpegKind::kGrey ? TJSAMP_GRAY : TJSAMP_444, 95,
                  TJFLAG_ACCURATEDCT) != 0) {
    throw std::runtime_error(tjGetErrorStr2(handle.get()));
  }
  std::string made(reinterpret_cast<const char*>(file), bytes);
  tjFree(file);
  return made;
}

std::string make_png(PictureSize size, const Bytes& pixels) {
  png_image image = image_of(size, PNG_FORMAT_RGB);
  return written(image, pixels.data());
}

std::string make_png(PictureSize size, unsigned seed, PngKind kind) {
  if (kind == PngKind::kRgb) return make_png(size, sample_pixels(size, seed));
  if (kind == PngKind::kRgb16) {
    const Bytes bytes = sample_pixels(size, seed);
    std::vector<std::uint16_t> wide;
    for (const std::uint8_t byte : bytes) wide.push_back(static_cast<std::uint16_t>(byte * 257));
    png_image image = image_of(size, PNG_FORMAT_LINEAR_RGB);
    return written(image, wide.data());
  }
  if (kind == PngKind::kPalette) {
    const Bytes palette = {200, 10, 10, 10, 200, 10};
    Bytes indices;
    for (std::int64_t i = 0; i < size.height * size.width; ++i) {
      indices.push_back(static_cast<std::uint8_t>(i % 2));
    }
    png_image image = image_of(size, PNG_FORMAT_RGB_COLORMAP);
    image.colormap_entries = 2;
    return written(image, indices.data(), palette.data());
  }
  const bool grey = kind == PngKind::kGrey;
  const Bytes pixels = sample_pixels(size, seed, grey ? 1 : 4);
  png_image image = image_of(size, grey ? PNG_FORMAT_GRAY : PNG_FORMAT_RGBA);
  return written(image, pixels.data());
}

std::string make_png(PictureSize size, const PngSamples& samples) {
  std::string rows;
  for (std::int64_t y = 0; y < size.height; ++y) rows += '\0' + text_of(samples.row);
  std::string packed(::compressBound(rows.size()), '\0');
  uLongf bytes = packed.size();
  ::compress(reinterpret_cast<Bytef*>(packed.data()), &bytes,
             reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  packed.resize(bytes);
  std::string file = kPngMagic + png_header(size, samples.bits, samples.colour);
  if (samples.gamma > 0) file += png_chunk("gAMA", big_endian(samples.gamma));
  if (!samples.palette.empty()) file += png_chunk("PLTE", text_of(samples.palette));
  if (!samples.transparent.empty()) file += png_chunk("tRNS", text_of(samples.transparent));
  return file + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

std::string make_png_that_claims(PictureSize size) {
  return kPngMagic + png_header(size, 8, 2) + png_chunk("IDAT", "\x78\x9c");
}

std::string make_tar(const Files& files) {
  std::string archive;
  for (const auto& [name, bytes] : files) {
    if (name.ends_with('/')) {
      archive += tar_entry(name, '5', "");
      continue;
    }
    if (name.size() > 100) {
      archive += tar_entry("././@LongLink", 'L', name + '\0');
      archive += tar_entry(name.substr(0, 100), '0', bytes);
    } else {
      archive += tar_entry(name, '0', bytes);
    }
  }
  return archive + std::string(1024, '\0');
}

std::string compressed(const std::string& bytes, const std::string& program) {
  const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(), archive_write_free);
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                       archive_entry_free);
  const auto check = [&](la_ssize_t result) {
    if (result < 0) throw std::runtime_error(archive_error_string(writer.get()));
  };
  check(archive_write_set_format_raw(writer.get()));
  // The filter is not taken by its name, which would link all that there are.
  check(program == "gzip"    ? archive_write_add_filter_gzip(writer.get())
        : program == "bzip2" ? archive_write_add_filter_bzip2(writer.get())
        : program == "xz"    ? archive_write_add_filter_xz(writer.get())
                             : archive_write_add_filter_zstd(writer.get()));
  std::string packed(2 * bytes.size() + (std::size_t{1} << 16), '\0');
  std::size_t size = 0;
  check(archive_write_open_memory(writer.get(), packed.data(), packed.size(), &size));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  check(archive_write_header(writer.get(), entry.get()));
  check(archive_write_data(writer.get(), bytes.data(), bytes.size()));
  check(archive_write_close(writer.get()));
  packed.resize(size);
  return packed;
}

}  // namespace trireme::testing
