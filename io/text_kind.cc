#include "trireme/io/text_kind.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view beginning, name;
};

constexpr std::array kPacked = {
    Kind{"\x1f\x8b"sv, "gzip data"},
    Kind{"\x1f\x9d"sv, "data of compress"},
    Kind{"\x28\xb5\x2f\xfd"sv, "zstd data"},
    Kind{"BZh91AY&SY"sv, "bzip2 data"},
    Kind{"\xfd"
         "7zXZ\0"sv,
         "xz data"},
    Kind{"\x04\x22\x4d\x18"sv, "lz4 data"},
    Kind{"\xff\x06\0\0sNaPpY"sv, "snappy data"},
    Kind{"7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive"},
    Kind{"PK\x03\x04"sv, "a zip archive"},
    Kind{"PK\x05\x06"sv, "a zip archive"},
    Kind{"PAR1\x15"sv, "a Parquet file"},
    Kind{"ARROW1\0"sv, "an Arrow file"},
    Kind{"\xff\xff\xff\xff"sv, "an Arrow stream"},
    Kind{"\x89HDF\r"sv, "an HDF5 file"},
    Kind{"\x93NUMPY"sv, "a NumPy file"},
    Kind{"SQLite format 3\0"sv, "an SQLite database"},
    Kind{"%PDF-"sv, "a PDF document"},
    Kind{"\x89PNG\r"sv, "a PNG picture"},
    Kind{"\xff\xd8\xff"sv, "a JPEG picture"},
};
constexpr std::array kEncodings = {
    Kind{"\xff\xfe\0\0"sv, "UTF-32 text"},
    Kind{"\0\0\xfe\xff"sv, "UTF-32 text"},
    Kind{"\xff\xfe"sv, "UTF-16 text"},
    Kind{"\xfe\xff"sv, "UTF-16 text"},
};

std::string_view kind_among(const auto& kinds, std::string_view beginning) {
  for (const Kind& kind : kinds) {
    if (beginning.starts_with(kind.beginning)) return kind.name;
  }
  return {};
}

bool is_tar(std::string_view beginning) {
  constexpr std::size_t kMagicAt = 257;
  return beginning.size() > kMagicAt && beginning.substr(kMagicAt).starts_with("ustar");
}

// Without a mark, letters of UTF-16 still have a zero in every second byte.
bool is_bare_utf16(std::string_view beginning) {
  constexpr std::size_t kEnough = 8;
  const std::size_t size = std::min(beginning.size(), std::size_t{64}) / 2 * 2;
  if (size < kEnough) return false;
  std::array<std::size_t, 2> zeros{};
  for (std::size_t i = 0; i < size; ++i) zeros[i % 2] += beginning[i] == '\0' ? 1 : 0;
  return (zeros[0] == size / 2 && zeros[1] == 0) || (zeros[1] == size / 2 && zeros[0] == 0);
}

}  // namespace

void check_is_text(const std::string& name, std::string_view beginning) {
  std::string_view kind = kind_among(kPacked, beginning);
  if (kind.empty() && is_tar(beginning)) kind = "a tar archive";
  if (!kind.empty()) {
    throw DataError(
        fmt::format("{}: {}, not text: take the text out of it first", shown(name), kind));
  }
  kind = kind_among(kEncodings, beginning);
  if (kind.empty() && is_bare_utf16(beginning)) kind = "UTF-16 text";
  if (!kind.empty()) {
    throw DataError(
        fmt::format("{}: {}: convert it to UTF-8 first, as iconv does", shown(name), kind));
  }
}

bool is_json_lines(std::string_view name, std::string_view beginning) {
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || beginning.starts_with("{\"");
}

}  // namespace trireme
