#include "trireme/io/text_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/prepare/packed_data.h"

namespace trireme {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view beginning, name;
};

constexpr std::array kContainers = {
    Kind{"PAR1\x15"sv, "a Parquet file"},
    Kind{"ARROW1\0"sv, "an Arrow file"},
    Kind{"\xff\xff\xff\xff"sv, "an Arrow stream"},
    Kind{"Obj\x01"sv, "an Avro file"},
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
constexpr std::size_t kEnough = 8;  // bytes that show an encoding without its mark
constexpr std::size_t kSeen = 64;

std::string_view kind_among(const auto& kinds, std::string_view beginning) {
  for (const Kind& kind : kinds) {
    if (beginning.starts_with(kind.beginning)) return kind.name;
  }
  return {};
}

// Whether it is a file of Parquet with an encrypted footer: the length of the first page's header
// comes next.
bool is_encrypted_parquet(std::string_view beginning) {
  return beginning.starts_with("PARE") &&
         beginning.substr(4, 4).find('\0') != std::string_view::npos;
}

// A tar archive without members is a block of zeros.
bool is_of_zeros(std::string_view beginning) {
  constexpr std::size_t kTarEnd = 1024;
  return beginning.size() >= kTarEnd && beginning.find_first_not_of('\0') == std::string_view::npos;
}

std::string_view kind_of_container(std::string_view beginning) {
  if (const std::optional<PackedData> packed = packed_data(beginning)) return packed->name;
  if (is_tar(beginning)) return "a tar archive";
  if (is_encrypted_parquet(beginning)) return "a Parquet file";
  return kind_among(kContainers, beginning);
}

// Without a mark, letters of UTF-16 still have a zero in every second byte.
bool is_bare_utf16(std::string_view beginning) {
  const std::size_t size = std::min(beginning.size(), kSeen) / 2 * 2;
  if (size < kEnough) return false;
  std::array<std::size_t, 2> zeros{};
  for (std::size_t i = 0; i < size; ++i) zeros[i % 2] += beginning[i] == '\0' ? 1 : 0;
  return (zeros[0] == size / 2 && zeros[1] == 0) || (zeros[1] == size / 2 && zeros[0] == 0);
}

// Every four bytes, in the order that the places give, are a character that texts have.
bool is_bare_utf32(std::string_view beginning, const std::array<std::size_t, 4>& places) {
  const std::size_t size = std::min(beginning.size(), kSeen) / 4 * 4;
  if (size < kEnough) return false;
  for (std::size_t i = 0; i < size; i += 4) {
    std::uint32_t character = 0;
    for (const std::size_t place : places) {
      character = character << 8 | static_cast<unsigned char>(beginning[i + place]);
    }
    const bool is_space = character >= '\t' && character <= '\r';
    if ((character < ' ' && !is_space) || character > 0x10ffff) return false;
  }
  return true;
}

std::string_view kind_of_encoding(std::string_view beginning) {
  const std::string_view marked = kind_among(kEncodings, beginning);
  if (!marked.empty()) return marked;
  if (is_bare_utf16(beginning)) return "UTF-16 text";
  const bool is_utf32 =
      is_bare_utf32(beginning, {0, 1, 2, 3}) || is_bare_utf32(beginning, {3, 2, 1, 0});
  return is_utf32 ? "UTF-32 text" : "";
}

// Control characters that texts do not have, in bytes that are no UTF-8. (Other encodings of texts
// are no UTF-8 either, but have hardly any.)
bool is_binary(std::string_view beginning) {
  constexpr std::string_view kInTexts = "\a\b\t\n\v\f\r\x1a\x1b";
  constexpr std::size_t kMostOfCharacter = 4, kRare = 32;
  std::size_t controls = 0;
  bool is_utf8 = true;
  for (std::size_t i = 0; i < beginning.size();) {
    const std::size_t length = utf8_length(beginning.substr(i));
    const auto byte = static_cast<unsigned char>(beginning[i]);
    controls += byte < ' ' && kInTexts.find(beginning[i]) == std::string_view::npos ? 1 : 0;
    if (length == 0 && i + kMostOfCharacter <= beginning.size()) is_utf8 = false;
    i += std::max<std::size_t>(length, 1);
  }
  return !is_utf8 && controls * kRare > beginning.size();
}

}  // namespace

void check_is_text(const std::string& name, std::string_view beginning) {
  beginning = beginning.substr(0, kTellingBytes);
  if (is_of_zeros(beginning)) {
    throw DataError(fmt::format("{}: zeros alone, as in a tar archive without files", shown(name)));
  }
  std::string_view kind = kind_of_container(beginning);
  if (!kind.empty()) {
    throw DataError(
        fmt::format("{}: {}, not text: take the text out of it first", shown(name), kind));
  }
  kind = kind_of_encoding(beginning);
  if (!kind.empty()) {
    throw DataError(
        fmt::format("{}: {}: convert it to UTF-8 first, as iconv does", shown(name), kind));
  }
  check_has_no_zero(name, beginning);
  if (is_binary(beginning)) {
    throw DataError(fmt::format("{}: binary data, neither UTF-8 nor another text", shown(name)));
  }
}

void check_has_no_zero(const std::string& name, std::string_view bytes) {
  const std::size_t zero = bytes.find('\0');
  if (zero == std::string_view::npos) return;
  throw DataError(
      fmt::format("{}: byte {} is zero: binary data, or text in another encoding than UTF-8",
                  shown(name), zero + 1));
}

std::string kind_of_file(std::string_view beginning) {
  beginning = beginning.substr(0, kTellingBytes);
  if (beginning.empty()) return "an empty file";
  std::string_view kind = kind_of_container(beginning);
  if (kind.empty()) kind = kind_of_encoding(beginning);
  if (!kind.empty()) return std::string(kind);
  const bool is_text = beginning.find('\0') == std::string_view::npos && !is_binary(beginning);
  return is_text ? "a text" : "binary data";
}

}  // namespace trireme
