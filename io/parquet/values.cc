#include "io/parquet/values.h"

#include <array>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "io/parquet/packed_numbers.h"

namespace trireme::parquet {
namespace {

constexpr std::int64_t kPlain = 0, kPlainDictionary = 2, kRuns = 3, kDeltaPacked = 5,
                       kDeltaLengths = 6, kDeltaBytes = 7, kRunsDictionary = 8, kSplitStreams = 9;
constexpr std::array<const char*, 10> kEncodings = {"PLAIN",
                                                    "1",
                                                    "PLAIN_DICTIONARY",
                                                    "RLE",
                                                    "BIT_PACKED",
                                                    "DELTA_BINARY_PACKED",
                                                    "DELTA_LENGTH_BYTE_ARRAY",
                                                    "DELTA_BYTE_ARRAY",
                                                    "RLE_DICTIONARY",
                                                    "BYTE_STREAM_SPLIT"};
constexpr std::uint64_t kMostWords = std::uint64_t{1} << 24;  // of a dictionary

std::string_view boolean(std::uint64_t bit) {
  return std::string_view("\0\1", 2).substr(bit & 1, 1);
}

Values plain(const EncodedValues& from) {
  if (from.leaf.type == Type::kBoolean) {
    return {[bytes = from.bytes, byte = 0U, at = 0U]() mutable {
      if (at % 8 == 0) byte = bytes.byte();
      return boolean(byte >> at++ % 8);
    }};
  }
  return {[bytes = from.bytes, width = from.leaf.width]() mutable {
    return bytes.take(width > 0 ? width : bytes.word());
  }};
}

Values boolean_runs(const EncodedValues& from) {
  ByteReader bytes = from.bytes;
  return {[runs = BitRuns(bytes.take(bytes.word()), 1, bytes.place())]() mutable {
    return boolean(runs.next());
  }};
}

Values from_dictionary(const EncodedValues& from) {
  ByteReader bytes = from.bytes;
  const Place& place = bytes.place();
  place.check(from.dictionary != nullptr, "indices without a dictionary");
  // A page of nulls alone may have no width.
  const unsigned width = bytes.left() == 0 ? 1 : bytes.byte();
  place.check(width <= 32, "indices of more than 32 bits");
  return {[&place, dictionary = from.dictionary,
           indices = BitRuns(bytes.rest(), width, place)]() mutable {
    const std::uint32_t index = indices.next();
    place.check(index < dictionary->values.size(), "an index beyond the end of the dictionary");
    return dictionary->values[index];
  }};
}

Values delta_integers(const EncodedValues& from) {
  auto next = [numbers = DeltaNumbers(from.bytes, from.most), width = from.leaf.width,
               value = std::int64_t{0}]() mutable {
    value = numbers.next();
    return std::string_view(reinterpret_cast<const char*>(&value), width);
  };
  return {std::move(next), false};
}

std::uint64_t next_length(DeltaNumbers& lengths, const Place& place) {
  // 32 bits with a sign, whose difference may have wrapped around.
  const auto length = static_cast<std::int32_t>(lengths.next());
  place.check(length >= 0, "a negative length");
  return static_cast<std::uint64_t>(length);
}

Values delta_lengths(const EncodedValues& from) {
  DeltaNumbers lengths(from.bytes, from.most);
  return {[lengths, texts = lengths.behind()]() mutable {
    return texts.take(next_length(lengths, texts.place()));
  }};
}

// A value begins as the one before it does.
Values delta_strings(const EncodedValues& from) {
  DeltaNumbers prefixes(from.bytes, from.most);
  const Values suffixes = delta_lengths({from.leaf, prefixes.behind(), from.most, nullptr});
  auto next = [prefixes, suffix = suffixes.next, value = std::string(),
               &place = from.bytes.place()]() mutable {
    const std::uint64_t prefix = next_length(prefixes, place);
    place.check(prefix <= value.size(), "a prefix longer than the value before it");
    value.resize(prefix);
    value += suffix();
    return std::string_view(value);
  };
  return {std::move(next), false};
}

// All first bytes, then all second bytes.
Values split_streams(const EncodedValues& from) {
  const ByteReader& bytes = from.bytes;
  const std::size_t width = from.leaf.width;
  bytes.place().check(bytes.left() % width == 0, "streams of bytes of different lengths");
  auto next = [bytes, count = bytes.left() / width, at = std::size_t{0}, value = std::string(),
               width]() mutable {
    if (at == count) bytes.place().ends_early();
    value.resize(width);
    for (std::size_t i = 0; i < width; ++i) value[i] = bytes.rest()[i * count + at];
    ++at;
    return std::string_view(value);
  };
  return {std::move(next), false};
}

}  // namespace

Values open_values(std::int64_t encoding, const EncodedValues& from) {
  const Type type = from.leaf.type;
  const bool is_integer = type == Type::kInt32 || type == Type::kInt64;
  const bool is_bytes = type == Type::kBytes, is_fixed = type == Type::kFixedBytes;
  if (encoding == kPlain) return plain(from);
  if (encoding == kPlainDictionary || encoding == kRunsDictionary) return from_dictionary(from);
  if (encoding == kRuns && type == Type::kBoolean) return boolean_runs(from);
  if (encoding == kDeltaPacked && is_integer) return delta_integers(from);
  if (encoding == kDeltaLengths && is_bytes) return delta_lengths(from);
  if (encoding == kDeltaBytes && (is_bytes || is_fixed)) return delta_strings(from);
  if (encoding == kSplitStreams && from.leaf.width > 0) return split_streams(from);
  const Place& place = from.bytes.place();
  place.check(encoding >= 0 && encoding < std::ssize(kEncodings),
              fmt::format("an encoding of number {}", encoding));
  place.refuse(fmt::format("of type {} is encoded as {}, which is not read", from.leaf.type_name,
                           kEncodings[static_cast<std::size_t>(encoding)]));
}

Dictionary read_dictionary(Buffer page, std::uint64_t count, const Leaf& leaf, const Place& place) {
  place.check(leaf.type != Type::kBoolean, "a dictionary of Booleans");
  const std::size_t least = leaf.width > 0 ? leaf.width : sizeof(std::uint32_t);
  place.check(count <= page.size / least, "a dictionary that its page cannot hold");
  if (count > kMostWords) place.refuse(fmt::format("has a dictionary of {} values", count));
  Dictionary dictionary;
  dictionary.values.reserve(count);
  const Values values = plain({leaf, {page.view(), place}, count, nullptr});
  for (std::uint64_t i = 0; i < count; ++i) dictionary.values.push_back(values.next());
  dictionary.page = std::move(page);
  return dictionary;
}

}  // namespace trireme::parquet
