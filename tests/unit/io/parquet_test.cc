// The files are those that record.py beside them writes with PyPI's `pyarrow`.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zlib.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

#include "../../support/message_of.h"
#include "../../support/temporary_folder.h"
#include "io/parquet/parquet_reader.h"

namespace trireme::parquet {
namespace {

PosixFile opened(const std::string& path) {
  return {path, O_RDONLY, ExitStatus::kData};
}

namespace fs = std::filesystem;
using trireme::testing::message_of;
using trireme::testing::TemporaryFolder;

constexpr int kRows = 40;
const std::vector<std::string> kAll = {"text", "name", "meta", "messages", "id", "good"};

std::string recorded(const std::string& name) {
  return fmt::format("{}/{}.parquet", TRIREME_PARQUET, name);
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string shown(const Value& value) {
  if (value.kind == Value::Kind::kNull) return "null";
  if (value.kind == Value::Kind::kBytes) return std::string(value.bytes);
  std::string text = value.kind == Value::Kind::kList ? "[" : "{";
  for (const Value& item : value.items) text += shown(item) + ",";
  return text + (value.kind == Value::Kind::kList ? "]" : "}");
}

// All rows of a file, or as many as a test cares for.
std::string reading(const std::string& path, const std::vector<std::string>& fields,
                    std::size_t most = 100000) {
  ParquetReader reader(opened(path), fields);
  std::vector<Value> row;
  std::string text;
  for (std::size_t i = 0; i < most && reader.next(row); ++i) {
    for (const Value& value : row) text += shown(value) + "|";
    text += "\n";
  }
  return text;
}

std::string number(std::int64_t value, std::size_t bytes) {
  return {reinterpret_cast<const char*>(&value), bytes};
}

std::string expected() {
  std::string text;
  for (int i = 0; i < kRows; ++i) {
    std::string words = fmt::format("text {} ", i);
    for (int j = 0; j < i % 4; ++j) words += "and so on ";
    text += (i % 7 == 3 ? "null" : words) + fmt::format("|row{:03}|", i);
    text += i % 11 == 5 ? "null" : fmt::format("{{body {},{},}}", i, number(i * 3, 8));
    text += i % 5 == 4 ? "|null" : "|[";
    for (int j = 0; i % 5 != 4 && j < i % 4; ++j) {
      text += fmt::format("{{{},{},}},", j % 2 == 0 ? "user" : "assistant",
                          j == 2 ? "null" : fmt::format("turn {} of {}", j, i));
    }
    text += (i % 5 == 4 ? "|" : "]|") + number(i * i, 4) + "|" + number(i % 3 == 0, 1) + "|\n";
  }
  return text;
}

class Recorded : public ::testing::TestWithParam<const char*> {};

TEST_P(Recorded, IsReadAsItWasWritten) {
  EXPECT_EQ(reading(recorded(GetParam()), kAll), expected());
}

// A row group begins where another ends, and several columns do not need each other.
TEST_P(Recorded, IsReadByRowGroupsAndColumns) {
  ParquetReader reader(opened(recorded(GetParam())), {"meta.body", "text", "text"});
  ASSERT_EQ(reader.row_groups(), 2);
  EXPECT_EQ(reader.rows(), kRows);
  std::vector<Value> row;
  reader.seek(1, 2);
  ASSERT_TRUE(reader.next(row));
  EXPECT_EQ(shown(row[0]), "body 25");
  EXPECT_EQ(shown(row[1]) + shown(row[2]), "text 25 and so on text 25 and so on ");
  reader.seek(0, 1);
  int rows = 0;
  while (reader.next(row)) ++rows;
  EXPECT_EQ(rows, 25);
}

// Whatever the bytes: the file is read, or refused in one line. A mutation follows from its number;
// PARQUET_MUTATIONS in the environment makes more of them.
TEST_P(Recorded, WhenDamagedIsReadOrRefused) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "damaged.parquet").string();
  const std::string whole = contents(recorded(GetParam()));
  int refused = 0, read = 0;
  const auto attempt = [&](const std::string& bytes) {
    write(path, bytes);
    try {
      reading(path, kAll, 2000);
      ++read;
    } catch (const DataError& error) {
      ++refused;
      EXPECT_TRUE(std::string(error.what()).starts_with(path + ": ")) << error.what();
    }
  };
  const char* more = std::getenv("PARQUET_MUTATIONS");
  const std::uint64_t mutations = more != nullptr ? std::stoull(more) : 800;
  for (std::uint64_t number = 0; number < mutations; ++number) {
    const std::uint64_t key = philox_key(number, "parquet");
    std::string bytes = whole;
    const std::uint64_t changes = 1 + permuted_index(key, 4, 0);
    for (std::uint64_t i = 0; i < changes; ++i) {
      const std::uint64_t at = permuted_index(key + 1, bytes.size(), i);
      const std::uint64_t drawn = permuted_index(key + 2, 65536, i);
      constexpr unsigned char kBytes[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe};
      if (drawn % 4 == 0) {
        bytes[at] = static_cast<char>(kBytes[drawn / 4 % 6]);
      } else if (drawn % 4 == 1) {
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << drawn / 4 % 8);
      } else if (drawn % 4 == 2) {
        bytes[at] = static_cast<char>(drawn / 4);
      } else if (i == 0) {
        bytes.insert(at, whole.substr(drawn % whole.size(), drawn / 4 % 16));
      } else {
        bytes.erase(at, drawn / 4 % 16);
      }
    }
    attempt(bytes);
  }
  for (std::size_t size = 0; size < whole.size(); size += 97) attempt(whole.substr(0, size));
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);
}

INSTANTIATE_TEST_SUITE_P(Parquet, Recorded,
                         ::testing::Values("plain", "snappy", "zstd", "gzip", "lz4", "delta"),
                         [](const auto& given) { return std::string(given.param); });

// Between others, at the beginning and at the end.
TEST(Parquet, PassesOverRowGroupsWithoutRows) {
  EXPECT_EQ(reading(recorded("groups"), kAll), expected());
  ParquetReader reader(opened(recorded("groups")), {"text"});
  EXPECT_EQ(reader.row_groups(), 6);
  std::vector<Value> row;
  reader.seek(2, 4);
  EXPECT_FALSE(reader.next(row));
}

std::string refusal(const std::string& path, const std::vector<std::string>& fields) {
  const std::string message = message_of<DataError>([&] { reading(path, fields); });
  return message.substr(std::min(message.size(), path.size()));
}

TEST(Parquet, RefusesByName) {
  // bad input: `prepare`: a Parquet file without the field | FILE: no field '...', but 'text',
  // 'name', ... | 3
  EXPECT_EQ(refusal(recorded("plain"), {"body"}),
            ": no field 'body', but 'text', 'name', 'meta', 'messages', 'id', 'good'");
  // bad input: `prepare`: a Parquet file of another codec | FILE: column text is compressed with
  // BROTLI, which is not read: SNAPPY, GZIP, ZSTD, LZ4 and LZ4_RAW are | 3
  EXPECT_EQ(refusal(recorded("brotli"), {"text"}),
            ": column text is compressed with BROTLI, which is not read: SNAPPY, GZIP, ZSTD, LZ4 "
            "and LZ4_RAW are");
}

TEST(Parquet, NamesWhatIsDamaged) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "damaged.parquet").string();
  const std::string plain = contents(recorded("plain")), gzip = contents(recorded("gzip"));
  write(path, plain.substr(0, plain.size() - 100));
  // bad input: `prepare`: a Parquet file that was cut short | FILE: damaged: footer: the file does
  // not end with PAR1: was it cut short? | 3
  EXPECT_EQ(refusal(path, {"text"}),
            ": damaged: footer: the file does not end with PAR1: was it cut short?");
  write(path, plain.substr(0, plain.size() - 4) + "PARE");
  // bad input: `prepare`: a Parquet file whose footer is encrypted | FILE: its footer is encrypted,
  // which is not read | 3
  EXPECT_EQ(refusal(path, {"text"}), ": its footer is encrypted, which is not read");
  std::string bytes = gzip;
  bytes[60] = static_cast<char>(bytes[60] ^ 4);
  write(path, bytes);
  // bad input: `prepare`: a page of Parquet whose checksum does not match | FILE: damaged: column
  // text, row group 0, page at byte 4: its checksum does not match | 3
  EXPECT_EQ(refusal(path, {"text"}),
            ": damaged: column text, row group 0, page at byte 4: its checksum does not match");
}

// A codec's page, compressed by hand where no writer at hand does.
TEST(Parquet, ReadsBothFormsOfOldLz4) {
  const Place place{"a.parquet", "text"};
  const std::string text = "to be or not to be or not to be or not to be";
  std::string packed(100, '\0');
  packed.resize(static_cast<std::size_t>(LZ4_compress_default(
      text.data(), packed.data(), static_cast<int>(text.size()), static_cast<int>(packed.size()))));
  const auto size = [](std::size_t value) {
    return std::string{'\0', '\0', '\0', static_cast<char>(value)};
  };
  const auto lz4 = [&](const std::string& from, std::size_t expanded) {
    const Buffer page = decompressed(5, from, expanded, place);
    return std::string(page.view());
  };
  EXPECT_EQ(lz4(packed, text.size()), text);
  const std::string block = size(text.size()) + size(packed.size()) + packed;
  EXPECT_EQ(lz4(block, text.size()), text);
  EXPECT_EQ(lz4(block + block, 2 * text.size()), text + text);
  EXPECT_THROW(lz4(block + "x", text.size()), DataError);
  EXPECT_THROW(lz4(block, text.size() + 1), DataError);
}

TEST(Parquet, RefusesPagesThatNoCodecMakesSoLarge) {
  const Place place{"a.parquet", "text"};
  for (const int codec : {0, 1, 2, 5, 6, 7}) {
    const std::string message = message_of<DataError>(
        [&] { decompressed(codec, "0123456789", std::size_t{1} << 30, place); });
    EXPECT_NE(message.find("cannot hold 1073741824"), std::string::npos) << message;
  }
}

TEST(Parquet, ReadsGzipOfSeveralMembers) {
  const Place place{"a.parquet", "text"};
  std::string packed(100, '\0');
  uLongf size = packed.size();
  ASSERT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>("abc"), 3),
            Z_OK);
  packed.resize(size);
  EXPECT_EQ(decompressed(2, packed + packed, 6, place).view(), "abcabc");
  EXPECT_THROW(decompressed(2, packed, 4, place), DataError);
  EXPECT_THROW(decompressed(2, packed + "x", 3, place), DataError);
}

// More values than a row has memory for, in a few bytes: runs of one number say so.
TEST(BitRuns, TakeNoMemory) {
  const Place place{"a.parquet", "text"};
  const std::string run = "\xfe\xff\xff\xff\x0f\x05";
  BitRuns runs(run, 3, place);
  for (int i = 0; i < 1000000; ++i) ASSERT_EQ(runs.next(), 5);
  BitRuns packed(std::string_view("\x03\x88\xc6\xfa", 4), 3, place);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(packed.next(), i);
  EXPECT_THROW(packed.next(), EndsEarly);
}

}  // namespace
}  // namespace trireme::parquet
