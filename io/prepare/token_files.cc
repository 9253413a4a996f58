#include "io/prepare/token_files.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"
#include "trireme/io/text_kind.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers in files are little-endian");

constexpr ExitStatus kOfInput = ExitStatus::kData;

[[noreturn]] void refuse(const std::string& path, std::string_view words) {
  throw DataError(fmt::format("{}: {}", shown(path), words));
}

[[noreturn]] void refuse_other(const std::string& path, const std::string& words) {
  throw OtherFile(shown(path), words);
}

void read_all(FileReader& file, char* to, std::size_t count) {
  for (std::size_t have = 0; have < count;) {
    const std::size_t got = file.read(to + have, count - have);
    if (got == 0) refuse(file.path(), "damaged: it ends too early");
    have += got;
  }
}

template <class T>
T read_number(FileReader& file) {
  T value{};
  read_all(file, reinterpret_cast<char*>(&value), sizeof(T));
  return value;
}

void check_size(const std::string& path, const TokenLayout& layout, std::uint64_t bytes) {
  const std::uint64_t width = static_cast<std::uint64_t>(layout.width);
  if (bytes >= layout.offset && (bytes - layout.offset) % width == 0 &&
      (bytes - layout.offset) / width == layout.count) {
    return;
  }
  refuse(path, fmt::format("damaged: {} of {} tokens of {} bytes, in {} bytes", layout.name,
                           layout.count, layout.width, bytes));
}

// What follows a key in the header of a .npy file, up to one of `ends`.
std::string_view value_of(std::string_view header, std::string_view key, std::string_view begin,
                          std::string_view ends) {
  std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  at = header.find(begin, at + key.size());
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + begin.size());
  return header.substr(0, header.find_first_of(ends));
}

// "{'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }"
TokenLayout layout_of_array(const std::string& path, FileReader& file, std::uint64_t bytes) {
  file.seek(6);
  const auto version = read_number<std::uint16_t>(file) & 0xff;
  const std::size_t size =
      version == 1 ? read_number<std::uint16_t>(file) : read_number<std::uint32_t>(file);
  constexpr std::size_t kMostHeader = 65536;
  if (size > kMostHeader) refuse(path, "damaged: the header of a NumPy array is too long");
  std::string header(size, '\0');
  read_all(file, header.data(), size);
  TokenLayout layout;
  layout.name = "a NumPy array";
  layout.offset = size + (version == 1 ? 10 : 12);
  const std::string_view type = value_of(header, "'descr':", "'", "'");
  const std::string_view shape = value_of(header, "'shape':", "(", ")");
  const bool is_integer = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                          (type[1] == 'u' || type[1] == 'i') &&
                          std::string_view("1248").find(type[2]) != std::string_view::npos;
  const char* const end = shape.data() + shape.size();
  const auto [rest, error] = std::from_chars(shape.data(), end, layout.count);
  if (!is_integer || error != std::errc() || std::string_view(rest, end) != ",") {
    refuse_other(path, fmt::format("an array of type '{}' and shape ({}); tokens are one row of "
                                   "integers, little-endian",
                                   shown(type), shown(shape)));
  }
  layout.width = type[2] - '0';
  layout.is_signed = type[1] == 'i';
  check_size(path, layout, bytes);
  return layout;
}

// 256 integers: a number that tells the format, its version, the number of tokens. Those of GPT-2
// have 2 bytes, and those of Llama 3, whose version is 7, have 4.
TokenLayout layout_of_llm_c(const std::string& path, FileReader& file, std::uint64_t bytes,
                            int width) {
  constexpr std::uint64_t kHeader = 1024;
  if (bytes < kHeader) {
    refuse(path, fmt::format("damaged: the header of llm.c's tokens takes {} bytes, and it has {}",
                             kHeader, bytes));
  }
  file.seek(4);
  const auto version = read_number<std::int32_t>(file);
  TokenLayout layout{"tokens of llm.c", kHeader, read_number<std::uint32_t>(file), width};
  const std::int32_t known = width == 4 ? 7 : 1;
  if (version != known) {
    refuse(path, fmt::format("tokens of llm.c in version {}; version {} is read", version, known));
  }
  check_size(path, layout, bytes);
  return layout;
}

std::string beginning_of(FileReader& file) {
  std::string bytes(kTellingBytes, '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const std::size_t got = file.read(bytes.data() + have, bytes.size() - have);
    if (got == 0) break;
    have += got;
  }
  bytes.resize(have);
  return bytes;
}

template <class T>
T number_at(std::string_view bytes, std::size_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

constexpr std::string_view kArray = "\x93NUMPY";
constexpr std::int32_t kLlmC16 = 20240520, kLlmC32 = 20240801;

std::int32_t magic_of(std::string_view beginning) {
  return beginning.size() < 4 ? 0 : number_at<std::int32_t>(beginning, 0);
}

// Text of UTF-8, in more bytes than tokens look like by chance.
bool is_surely_text(std::string_view beginning) {
  constexpr std::size_t kLeast = 8, kMostOfCharacter = 4;
  if (beginning.size() < kLeast) return false;
  for (std::size_t i = 0; i < beginning.size();) {
    const auto byte = static_cast<unsigned char>(beginning[i]);
    const std::size_t length = utf8_length(beginning.substr(i));
    const bool is_cut = i + kMostOfCharacter > beginning.size() && byte >= 0x80;
    const bool is_space = byte >= '\t' && byte <= '\r';
    if ((length == 0 && !is_cut) || (byte < ' ' && !is_space)) return false;
    i += std::max<std::size_t>(length, 1);
  }
  return true;
}

// What a file is that cannot be tokens; nothing where it may be. Tokens may have zeros as UTF-16
// and UTF-32 have, and begin with any two bytes.
std::string other_kind(std::string_view beginning) {
  constexpr std::size_t kTellingText = 512;  // in which tokens have bytes that no text has
  const std::string kind = kind_of_file(beginning);
  if (kind == "a text") {
    return is_surely_text(beginning) || beginning.size() >= kTellingText ? kind : "";
  }
  const bool may_be = kind == "binary data" || kind == "an empty file" ||
                      kind.starts_with("UTF-") || kind == "data of compress" ||
                      (kind == "gzip data" && !beginning.substr(2).starts_with('\x08'));
  if (!may_be) return kind;
  if (beginning.starts_with("\x80\x04\x95") || beginning.starts_with("\x80\x05\x95")) {
    return "a pickle of Python";
  }
  return "";
}

// Whether the numbers of two bytes are the halves of numbers of four: each second one is small.
bool looks_like_words(std::string_view beginning, std::int64_t vocabulary) {
  constexpr std::size_t kLeast = 8;
  const std::size_t count = beginning.size() / 4;
  if (beginning.size() % 4 != 0 || count < kLeast) return false;
  const auto most = static_cast<std::uint16_t>((vocabulary - 1) >> 16);
  bool is_any_larger = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (number_at<std::uint16_t>(beginning, 2 * i + 1) > most) return false;
    is_any_larger = is_any_larger || number_at<std::uint16_t>(beginning, 2 * i) > most;
  }
  return is_any_larger;
}

struct MegatronType {
  int code, width;
  bool is_signed;
};
constexpr std::array kMegatronTypes = {MegatronType{1, 1, false}, MegatronType{2, 1, true},
                                       MegatronType{3, 2, true},  MegatronType{4, 4, true},
                                       MegatronType{5, 8, true},  MegatronType{8, 2, false}};

}  // namespace

bool has_token_header(const InputFile& file) {
  FileReader reader(file.path, kOfInput);
  const std::string beginning = beginning_of(reader);
  const std::int32_t magic = magic_of(beginning);
  return beginning.starts_with(kArray) || magic == kLlmC16 || magic == kLlmC32;
}

TokenLayout token_layout(const InputFile& file, int raw_width, std::int64_t vocabulary) {
  FileReader reader(file.path, kOfInput);
  const std::string first = beginning_of(reader);
  const std::string_view beginning = first;
  if (beginning.starts_with(kArray)) return layout_of_array(file.path, reader, file.size);
  if (beginning.starts_with(MegatronIndex::kMagic)) {
    refuse_other(file.path, "an index of Megatron's: name the .bin that it tells of, beside it");
  }
  if (beginning.starts_with("PK\x03\x04")) {
    refuse_other(file.path, "a zip archive, such as .npz; save the array as .npy");
  }
  const std::int32_t magic = magic_of(beginning);
  if (magic == kLlmC16) return layout_of_llm_c(file.path, reader, file.size, 2);
  if (magic == kLlmC32) return layout_of_llm_c(file.path, reader, file.size, 4);
  if (const std::string kind = other_kind(beginning); !kind.empty()) {
    refuse_other(file.path, kind +
                                ", not tokens: --tokens takes .npy, llm.c's and nanoGPT's .bin, "
                                "and Megatron's with its .idx");
  }
  const auto width = static_cast<std::uint64_t>(raw_width);
  if (file.size % width != 0) {
    refuse(file.path, fmt::format("{} bytes are no tokens of {} bytes", file.size, width));
  }
  if (raw_width == 2 && looks_like_words(beginning, vocabulary)) {
    refuse(file.path, "its numbers look like tokens of 4 bytes: --token-type uint32");
  }
  return {fmt::format("tokens as uint{}", 8 * width), 0, file.size / width, raw_width, false};
}

MegatronIndex::MegatronIndex(const std::string& path, std::uint64_t bin_bytes)
    : path_(path), lengths_(path, kOfInput), pointers_(path, kOfInput), documents_(path, kOfInput) {
  std::array<char, kMagic.size()> magic{};
  read_all(lengths_, magic.data(), magic.size());
  const auto version = read_number<std::uint64_t>(lengths_);
  if (std::string_view(magic.data(), magic.size()) != kMagic || version != 1) {
    refuse(path, "not an index of Megatron's, of version 1 (MMIDIDX)");
  }
  const int code = read_number<std::uint8_t>(lengths_);
  const auto* const type = std::ranges::find(kMegatronTypes, code, &MegatronType::code);
  if (type == kMegatronTypes.end()) {
    refuse(path, fmt::format("its tokens have the type {}, which is none of integers", code));
  }
  sequences_ = left_ = read_number<std::uint64_t>(lengths_);
  const auto documents = read_number<std::uint64_t>(lengths_);
  const auto header = static_cast<std::uint64_t>(lengths_.position());
  const auto bytes = static_cast<std::uint64_t>(lengths_.facts().bytes);
  if (sequences_ > bytes / 12 || documents > bytes / 8 || documents == 0 ||
      header + 12 * sequences_ + 8 * documents > bytes) {
    refuse(path, fmt::format("damaged: {} sequences and {} documents in {} bytes", sequences_,
                             documents, bytes));
  }
  pointers_.seek(static_cast<std::int64_t>(header + 4 * sequences_));
  documents_.seek(static_cast<std::int64_t>(header + 12 * sequences_));
  document_ = read_number<std::uint64_t>(documents_);
  documents_left_ = documents - 1;
  if (document_ != 0) refuse(path, "damaged: the first document does not begin at the beginning");
  const auto width = static_cast<std::uint64_t>(type->width);
  layout_ = {"Megatron's tokens", 0, bin_bytes / width, type->width, type->is_signed};
  if (bin_bytes % width != 0) refuse(path, fmt::format("its .bin has {} bytes", bin_bytes));
}

std::int64_t MegatronIndex::next_sequence() {
  const auto length = read_number<std::int32_t>(lengths_);
  const auto pointer = read_number<std::uint64_t>(pointers_);
  if (left_ == 0 || length < 0 || pointer != tokens_ * static_cast<std::uint64_t>(layout_.width)) {
    refuse(path_, fmt::format("damaged: its sequence {} does not follow the one before",
                              sequences_ - left_ + 1));
  }
  --left_;
  return length;
}

std::optional<std::uint64_t> MegatronIndex::next_end() {
  if (documents_left_ == 0) {
    if (left_ == 0 && tokens_ == layout_.count) return {};
    refuse(path_, fmt::format("damaged: it tells of {} tokens, and its .bin has {}", tokens_,
                              layout_.count));
  }
  const auto end = read_number<std::uint64_t>(documents_);
  --documents_left_;
  if (end < document_ || end > sequences_) refuse(path_, "damaged: its documents overlap");
  for (; document_ < end; ++document_) tokens_ += static_cast<std::uint64_t>(next_sequence());
  if (tokens_ > layout_.count) {
    refuse(path_,
           fmt::format("damaged: it tells of more than the {} tokens of its .bin", layout_.count));
  }
  return tokens_;
}

}  // namespace trireme
