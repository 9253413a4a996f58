#include "io/prepare/packed_data.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace trireme {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view beginning;
  PackedData data;
};

constexpr std::array kFormats = {
    Format{"\x1f\x8b"sv, {"gzip data", "gzip"}},
    Format{"\x1f\x9d"sv, {"data of compress", "gzip"}},
    Format{"\x28\xb5\x2f\xfd"sv, {"zstd data", "zstd"}},
    Format{"\x37\xa4\x30\xec"sv, {"a zstd dictionary", ""}},
    Format{"\xfd"
           "7zXZ\0"sv,
           {"xz data", "xz"}},
    Format{"LZIP\x01"sv, {"lzip data", "lzip"}},
    Format{"\x89LZO\0\r\n"sv, {"lzop data", "lzop"}},
    Format{"\x04\x22\x4d\x18"sv, {"lz4 data", "lz4"}},
    Format{"\x02\x21\x4c\x18"sv, {"lz4 data", "lz4"}},  // as older programs write it
    Format{"\xff\x06\0\0sNaPpY"sv, {"snappy data", "snzip"}},
    Format{"7z\xbc\xaf\x27\x1c"sv, {"a 7-Zip archive", ""}},
    Format{"Rar!\x1a\x07"sv, {"a RAR archive", ""}},
    Format{"PK\x03\x04"sv, {"a zip archive", ""}},
    Format{"PK\x05\x06"sv, {"a zip archive", ""}},
};

bool is_cut_of(std::string_view beginning, std::string_view told) {
  return beginning.starts_with(told) || told.starts_with(beginning);
}

// A text may be one byte of another encoding than UTF-8, but no control character.
bool begins_with(std::string_view beginning, std::string_view told) {
  if (beginning.empty() || !is_cut_of(beginning, told)) return false;
  const auto first = static_cast<unsigned char>(told[0]);
  if (beginning.size() >= told.size() || first < ' ') return true;
  const bool is_printable =
      std::ranges::all_of(beginning, [](unsigned char byte) { return byte >= ' ' && byte <= '~'; });
  return beginning.size() > 1 && !is_printable;
}

// "BZh", a digit, and what a block or an empty file begins with.
bool is_bzip2(std::string_view beginning) {
  if (!beginning.starts_with("BZh") || beginning.size() < 5) return false;
  const std::string_view rest = beginning.substr(4);
  return beginning[3] >= '1' && beginning[3] <= '9' &&
         (is_cut_of(rest, "1AY&SY"sv) || is_cut_of(rest, "\x17rE8P\x90"sv));
}

// A frame that zstd and lz4 skip, of one of 16 kinds.
bool is_skippable_frame(std::string_view beginning) {
  return beginning.size() >= 4 && (beginning[0] & 0xf0) == 0x50 &&
         beginning.substr(1).starts_with("\x2a\x4d\x18"sv);
}

// Without a magic a header has its checksum alone: the sum of its bytes, its own as spaces.
bool is_old_tar(std::string_view beginning) {
  constexpr std::size_t kHeader = 512, kSumAt = 148, kSumBytes = 8;
  if (beginning.size() < kHeader || beginning.front() == '\0') return false;
  std::string_view digits = beginning.substr(kSumAt, kSumBytes);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  unsigned told = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), told, 8);
  if (error != std::errc() ||
      (end != digits.data() + digits.size() && *end != '\0' && *end != ' ')) {
    return false;
  }
  unsigned sum = kSumBytes * ' ';
  for (std::size_t i = 0; i < kHeader; ++i) {
    if (i < kSumAt || i >= kSumAt + kSumBytes) sum += static_cast<unsigned char>(beginning[i]);
  }
  return sum == told;
}

}  // namespace

std::optional<PackedData> packed_data(std::string_view beginning) {
  for (const Format& format : kFormats) {
    if (begins_with(beginning, format.beginning)) return format.data;
  }
  if (is_bzip2(beginning)) return PackedData{"bzip2 data", "bzip2"};
  if (is_skippable_frame(beginning)) return PackedData{"zstd data", "zstd"};
  return {};
}

bool is_tar(std::string_view beginning) {
  constexpr std::size_t kMagicAt = 257;
  return (beginning.size() > kMagicAt && beginning.substr(kMagicAt).starts_with("ustar")) ||
         is_old_tar(beginning);
}

}  // namespace trireme
