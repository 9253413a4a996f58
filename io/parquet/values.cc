#include "io/parquet/values.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "io/parquet/bit_runs.h"
#include "io/parquet/delta.h"

namespace trireme::parquet {
namespace {

enum Encoding {
  kPlain = 0,
  kPlainDictionary = 2,
  kRuns = 3,
  kDeltaPacked = 5,
  kDeltaLengths = 6,
  kDeltaBytes = 7,
  kRunsDictionary = 8,
  kSplitStreams = 9
};
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

std::uint64_t length(std::int64_t value, const Place& place) {
  // 32 bits with a sign, whose difference may have wrapped around.
  const auto narrow = static_cast<std::int32_t>(value);
  place.check(narrow >= 0, "a negative length");
  return static_cast<std::uint64_t>(narrow);
}

class Plain : public Values {
 public:
  Plain(ByteReader bytes, int width) : bytes_(bytes), width_(static_cast<unsigned>(width)) {}
  std::string_view next() override { return bytes_.take(width_ > 0 ? width_ : bytes_.word()); }

 private:
  ByteReader bytes_;
  unsigned width_;  // 0: a length stands before each value
};

constexpr std::string_view kBooleans{"\0\1", 2};

class PlainBooleans : public Values {
 public:
  explicit PlainBooleans(ByteReader bytes) : bytes_(bytes) {}
  std::string_view next() override {
    if (at_ % 8 == 0) byte_ = bytes_.byte();
    return kBooleans.substr(byte_ >> at_++ % 8 & 1, 1);
  }

 private:
  ByteReader bytes_;
  unsigned byte_ = 0, at_ = 0;
};

class RunBooleans : public Values {
 public:
  explicit RunBooleans(ByteReader bytes) : runs_(bytes.take(bytes.word()), 1, bytes.place()) {}
  std::string_view next() override { return kBooleans.substr(runs_.next() & 1, 1); }

 private:
  BitRuns runs_;
};

class FromDictionary : public Values {
 public:
  FromDictionary(ByteReader bytes, const Dictionary& dictionary)
      : place_(bytes.place()), dictionary_(dictionary), indices_(opened(bytes)) {}
  std::string_view next() override {
    const std::uint32_t index = indices_.next();
    if (index >= dictionary_.values.size()) [[unlikely]] {
      place_.damaged("an index beyond the end of the dictionary");
    }
    return dictionary_.values[index];
  }

 private:
  static BitRuns opened(ByteReader& bytes) {
    // A page of nulls alone may have no width.
    const unsigned width = bytes.left() == 0 ? 1 : bytes.byte();
    bytes.place().check(width <= 32, "indices of more than 32 bits");
    return {bytes.rest(), width, bytes.place()};
  }

  const Place& place_;
  const Dictionary& dictionary_;
  BitRuns indices_;
};

class DeltaIntegers : public Values {
 public:
  DeltaIntegers(ByteReader bytes, int width, std::uint64_t most)
      : numbers_(bytes, most), width_(static_cast<unsigned>(width)) {}
  std::string_view next() override {
    value_ = numbers_.next();
    return {reinterpret_cast<const char*>(&value_), width_};
  }
  bool stay() const override { return false; }

 private:
  DeltaNumbers numbers_;
  std::size_t width_;
  std::int64_t value_ = 0;
};

class DeltaLengths : public Values {
 public:
  DeltaLengths(ByteReader bytes, std::uint64_t most)
      : lengths_(bytes, most), bytes_(lengths_.behind(), bytes.place()) {}
  std::string_view next() override { return bytes_.take(length(lengths_.next(), bytes_.place())); }

 private:
  DeltaNumbers lengths_;
  ByteReader bytes_;
};

// A value begins as the one before it does.
class DeltaStrings : public Values {
 public:
  DeltaStrings(ByteReader bytes, std::uint64_t most)
      : place_(bytes.place()),
        prefixes_(bytes, most),
        suffixes_(ByteReader(prefixes_.behind(), place_), most) {}
  std::string_view next() override {
    const std::uint64_t prefix = length(prefixes_.next(), place_);
    place_.check(prefix <= value_.size(), "a prefix longer than the value before it");
    value_.resize(prefix);
    value_ += suffixes_.next();
    return value_;
  }
  bool stay() const override { return false; }

 private:
  const Place& place_;
  DeltaNumbers prefixes_;
  DeltaLengths suffixes_;
  std::string value_;
};

// All first bytes, then all second bytes.
class SplitStreams : public Values {
 public:
  SplitStreams(std::string_view bytes, int width, const Place& place)
      : place_(place), bytes_(bytes), value_(static_cast<std::size_t>(width), '\0') {
    place.check(bytes.size() % value_.size() == 0, "streams of bytes of different lengths");
    count_ = bytes.size() / value_.size();
  }
  std::string_view next() override {
    if (at_ == count_) place_.ends_early();
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + at_];
    ++at_;
    return value_;
  }
  bool stay() const override { return false; }

 private:
  const Place& place_;
  std::string_view bytes_;
  std::string value_;
  std::size_t count_ = 0, at_ = 0;
};

std::unique_ptr<Values> open_plain(const Leaf& leaf, ByteReader bytes) {
  if (leaf.type == Type::kBoolean) return std::make_unique<PlainBooleans>(bytes);
  return std::make_unique<Plain>(bytes, leaf.width);
}

}  // namespace

std::unique_ptr<Values> open_values(std::int32_t encoding, const Leaf& leaf, std::string_view bytes,
                                    std::uint64_t most, const Dictionary* dictionary,
                                    const Place& place) {
  const ByteReader reader(bytes, place);
  const bool is_bytes = leaf.type == Type::kBytes;
  const bool is_integer = leaf.type == Type::kInt32 || leaf.type == Type::kInt64;
  switch (encoding) {
    case kPlain:
      return open_plain(leaf, reader);
    case kPlainDictionary:
    case kRunsDictionary:
      if (dictionary == nullptr) place.damaged("indices without a dictionary");
      return std::make_unique<FromDictionary>(reader, *dictionary);
    case kRuns:
      if (leaf.type == Type::kBoolean) return std::make_unique<RunBooleans>(reader);
      break;
    case kDeltaPacked:
      if (is_integer) return std::make_unique<DeltaIntegers>(reader, leaf.width, most);
      break;
    case kDeltaLengths:
      if (is_bytes) return std::make_unique<DeltaLengths>(reader, most);
      break;
    case kDeltaBytes:
      if (is_bytes || leaf.type == Type::kFixedBytes) {
        return std::make_unique<DeltaStrings>(reader, most);
      }
      break;
    case kSplitStreams:
      if (leaf.width > 0) return std::make_unique<SplitStreams>(bytes, leaf.width, place);
      break;
    default:
      break;
  }
  const bool known = encoding >= 0 && encoding < static_cast<std::int32_t>(kEncodings.size());
  place.check(known, fmt::format("an encoding of number {}", encoding));
  place.refuse(fmt::format("of type {} is encoded as {}, which is not read", leaf.type_name,
                           kEncodings[static_cast<std::size_t>(encoding)]));
}

Dictionary read_dictionary(Buffer page, std::uint64_t count, const Leaf& leaf, const Place& place) {
  place.check(leaf.type != Type::kBoolean, "a dictionary of Booleans");
  const std::size_t least = leaf.width > 0 ? static_cast<std::size_t>(leaf.width) : 4;
  place.check(count <= page.size / least, "a dictionary that its page cannot hold");
  if (count > kMostWords) place.refuse(fmt::format("has a dictionary of {} values", count));
  Dictionary dictionary;
  dictionary.values.reserve(count);
  const std::unique_ptr<Values> values = open_plain(leaf, {page.view(), place});
  for (std::uint64_t i = 0; i < count; ++i) dictionary.values.push_back(values->next());
  dictionary.page = std::move(page);
  return dictionary;
}

}  // namespace trireme::parquet
