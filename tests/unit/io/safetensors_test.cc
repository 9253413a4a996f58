// Files of safetensors, among them such as nobody means well with.
#include "trireme/io/safetensors.h"

#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/json.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

std::string little_endian(std::uint64_t number) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

class Safetensors : public ::testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "model.safetensors").string(); }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  // A file of this header and so many bytes of tensors.
  void write_file(const std::string& header, std::size_t bytes) const {
    write(little_endian(header.size()) + header + std::string(bytes, 'x'));
  }
  std::vector<SafetensorsEntry> read() const { return read_safetensors_header(path()); }
  std::string refusal(const std::string& header, std::size_t bytes) const {
    write_file(header, bytes);
    return message_of<DataError>([&] { read(); });
  }
  std::string said(const std::string& why) const { return path() + ": " + why; }

  TemporaryFolder folder_;
};

std::string tensor(const std::string& name, const std::string& shape, std::int64_t begin,
                   std::int64_t end, const std::string& type = "F32") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, type,
                     shape, begin, end);
}

TEST_F(Safetensors, AreReadInTheOrderOfTheirBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)" + tensor("b", "2,3", 8, 32) +
                             "," + tensor("a", "", 0, 4) + "," + tensor("c", "2", 4, 8, "BF16") +
                             "," + tensor("empty", "3,0", 32, 32) + "}   ";  // padded
  write_file(header, 32);
  const std::vector<SafetensorsEntry> entries = read();
  ASSERT_EQ(entries.size(), 4u);
  const auto data = static_cast<std::int64_t>(8 + header.size());
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].shape_text(), "()");
  EXPECT_EQ(entries[1].name, "c");
  EXPECT_EQ(entries[1].type, "BF16");
  EXPECT_EQ(entries[2].offset, data + 8);
  EXPECT_EQ(entries[2].bytes, 24);
  EXPECT_EQ(entries[2].shape_text(), "(2, 3)");
  EXPECT_EQ(entries[3].bytes, 0);
}

TEST_F(Safetensors, LengthsThatAreNotTrueAreRefused) {
  write("short");
  // bad input: `import`: a file that is too short to be safetensors | ...: not a file of
  // safetensors: it has 5 bytes | 3
  EXPECT_EQ(message_of<DataError>([&] { read(); }),
            said("not a file of safetensors: it has 5 bytes"));
  // bad input: `import`: safetensors that are cut short in their header | ...: not a whole file of
  // safetensors: it says that its header has 100 bytes, but it has 10 in all | 3
  write(little_endian(100) + "{}");
  EXPECT_EQ(message_of<DataError>([&] { read(); }),
            said("not a whole file of safetensors: it says that its header has 100 bytes, but it "
                 "has 10 in all"));
  write(little_endian(~std::uint64_t{0}) + "{}");
  EXPECT_NE(message_of<DataError>([&] { read(); }).find("18446744073709551615 bytes"),
            std::string::npos);
  {
    std::ofstream file(path(), std::ios::binary);
    file << little_endian(kMostSafetensorsHeader + 1);
    file.seekp(kMostSafetensorsHeader + 100);
    file << 'x';
  }
  // bad input: `import`: safetensors with a huge header | ...: its header has 16777217 bytes,
  // 16777216 at most are read | 3
  EXPECT_EQ(message_of<DataError>([&] { read(); }),
            said("its header has 16777217 bytes, 16777216 at most are read"));
}

TEST_F(Safetensors, HeadersThatAreNotTheirsAreRefused) {
  for (const std::string header : {"", "[]", "{", "{\"a\":1}", "7", "{\"a\":{}}"}) {
    write_file(header, 0);
    EXPECT_THROW(read(), DataError) << header;
  }
  EXPECT_EQ(refusal("{" + tensor("a", "1", 0, 4) + "," + tensor("a", "1", 4, 8) + "}", 8),
            said("its header is not JSON as safetensors has it: the key 'a' occurs twice"));
  EXPECT_EQ(refusal("{" + tensor("a", "1", 0, 4, "F7") + "}", 4),
            said("tensor a: its type F7 is not one that we know"));
  EXPECT_EQ(refusal("{" + tensor("a", "-1", 0, 4) + "}", 4),
            said("tensor a: an extent of its shape is negative"));
  EXPECT_NE(refusal("{" + tensor("a", "1.5", 0, 4) + "}", 4).find("tensor a: "), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, '['), 0).find("nested too deeply"), std::string::npos);
}

TEST_F(Safetensors, EveryByteIsOneTensors) {
  // bad input: `import`: tensors that overlap | ...: tensor b shares bytes with another one | 3
  EXPECT_EQ(refusal("{" + tensor("a", "2", 0, 8) + "," + tensor("b", "2", 4, 12) + "}", 12),
            said("tensor b shares bytes with another one"));
  EXPECT_EQ(refusal("{" + tensor("a", "2", 0, 8) + "," + tensor("b", "2", 12, 20) + "}", 20),
            said("no tensor has the 4 bytes before tensor b"));
  EXPECT_EQ(refusal("{" + tensor("a", "2", 0, 8) + "}", 9), said("no tensor has its last 1 bytes"));
  // bad input: `import`: safetensors that are cut short | ...: tensor a: its bytes 0 to 8 are not
  // within the 7 that the file has | 3
  EXPECT_EQ(refusal("{" + tensor("a", "2", 0, 8) + "}", 7),
            said("tensor a: its bytes 0 to 8 are not within the 7 that the file has"));
  EXPECT_EQ(refusal("{" + tensor("a", "2", 8, 0) + "}", 8),
            said("tensor a: its bytes 8 to 0 are not within the 8 that the file has"));
  EXPECT_EQ(refusal("{" + tensor("a", "3", 0, 8) + "}", 8),
            said("tensor a: F32 (3) does not take 8 bytes"));
}

// Products of extents beyond 64 bits, which must not come out as the number of bytes.
TEST_F(Safetensors, NoProductOverflows) {
  for (const std::string shape : {"4294967296,4294967296", "9223372036854775807,2",
                                  "4611686018427387904,4,4", "2305843009213693953,8"}) {
    EXPECT_NE(refusal("{" + tensor("a", shape, 0, 8) + "}", 8).find("does not take 8 bytes"),
              std::string::npos)
        << shape;
  }
  EXPECT_NE(refusal("{" + tensor("a", "18446744073709551616", 0, 8) + "}", 8).find("tensor a"),
            std::string::npos);
  write_file("{" + tensor("a", "9223372036854775807,0,9223372036854775807", 0, 0) + "}", 0);
  EXPECT_EQ(read().size(), 1u);
}

TEST(JsonKeys, MayBeRequiredToBeUnique) {
  EXPECT_EQ(Json::parse_unique(R"({"a":{"b":1},"b":[{"a":2},{"a":3}]})").dump(),
            R"({"a":{"b":1},"b":[{"a":2},{"a":3}]})");
  EXPECT_THROW(Json::parse_unique(R"({"x":{"a":1,"b":2,"a":3}})"), JsonError);
  EXPECT_EQ(Json::parse(R"({"a":1,"a":3})").dump(), R"({"a":3})");
}

// Whatever one byte is changed to, and wherever the file is cut: it is refused in one line, or its
// tensors still cover its bytes.
TEST_F(Safetensors, DamageIsRefusedOrHarmless) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)" + tensor("b", "2,3", 8, 32) +
                             "," + tensor("a", "", 0, 4) + "," + tensor("c", "2", 4, 8, "BF16") +
                             "," + tensor("empty", "3,0", 32, 32) + "}   ";
  const std::string whole = little_endian(header.size()) + header + std::string(32, 'x');
  int refused = 0, taken = 0;
  const auto try_file = [&](const std::string& bytes) {
    write(bytes);
    try {
      std::int64_t end = -1;
      for (const SafetensorsEntry& entry : read()) {
        ASSERT_TRUE(end < 0 || entry.offset == end);
        ASSERT_GE(entry.bytes, 0);
        end = entry.offset + entry.bytes;
      }
      ASSERT_TRUE(end < 0 || end == std::ssize(bytes));
      ++taken;
    } catch (const DataError& error) {
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      ++refused;
    }
  };
  for (std::size_t at = 0; at < whole.size() - 32; ++at) {
    for (const char byte :
         {'\x00', '\x01', '\x7f', '\x80', '\xff', '"', '9', '0', '-', '}', '[', ' '}) {
      std::string damaged = whole;
      if (damaged[at] == byte) continue;
      damaged[at] = byte;
      try_file(damaged);
    }
  }
  for (std::size_t size = 0; size < whole.size(); ++size) try_file(whole.substr(0, size));
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);  // names and metadata may be anything
}

}  // namespace
}  // namespace trireme::testing
