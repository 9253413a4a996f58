#include "trireme/io/hdf5.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

#include "support/temporary_folder.h"

namespace trireme::hdf5 {
namespace {

class Hdf5Test : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  trireme::testing::TemporaryFolder folder_;
};

TEST_F(Hdf5Test, AttributesOfAllKinds) {
  {
    File file = File::create(path("a.h5"));
    file.set_attribute("/", "text", std::string("grüße\nzwei"));
    file.set_attribute("/", "count", std::int64_t{-7});
    file.set_attribute("/", "rate", 0.1);
    file.set_attribute("/", "count", std::int64_t{1} << 40);  // replaces
    file.set_attribute("/", "long", std::string(200'000, 'x'));
    file.close();
  }
  const File file = File::open(path("a.h5"));
  EXPECT_EQ(file.string_attribute("/", "text"), "grüße\nzwei");
  EXPECT_EQ(file.integer_attribute("/", "count"), std::int64_t{1} << 40);
  EXPECT_EQ(file.real_attribute("/", "rate"), 0.1);
  EXPECT_EQ(file.string_attribute("/", "long").size(), 200'000u);
  EXPECT_EQ(file.attributes("/"), (std::vector<std::string>{"count", "long", "rate", "text"}));
  EXPECT_THROW(file.integer_attribute("/", "text"), DataError);
  EXPECT_THROW(file.string_attribute("/", "count"), DataError);
  EXPECT_THROW(file.integer_attribute("/", "missing"), DataError);
  EXPECT_FALSE(file.has_attribute("/nowhere", "text"));
}

TEST_F(Hdf5Test, WholeDatasetsAndBoxes) {
  std::vector<float> values(4 * 6);
  std::iota(values.begin(), values.end(), 0.0f);
  {
    File file = File::create(path("d.h5"));
    Dataset made = file.create_dataset("/deep/er/matrix", ElementType::kF32, {4, 6});
    made.write_raw({{{0, 0}, {4, 6}}}, values.data(), Transfer::kIndependent);
    const std::vector<float> two = {-1, -2};
    made.write_raw({{{1, 2}, {1, 1}}, {{3, 5}, {1, 1}}}, two.data(), Transfer::kIndependent);
    file.close();
  }
  const File file = File::open(path("d.h5"));
  EXPECT_EQ(file.datasets_below("/"), std::vector<std::string>{"/deep/er/matrix"});
  EXPECT_TRUE(file.exists("/deep/er"));
  EXPECT_FALSE(file.exists("/deep/no/matrix"));
  const Dataset matrix = file.dataset("/deep/er/matrix");
  EXPECT_EQ(matrix.extents(), (Extents{4, 6}));
  values[8] = -1;
  values[23] = -2;
  EXPECT_EQ(matrix.read<float>(), values);
  std::vector<float> box(4);
  matrix.read_raw({{1, 2}, {2, 2}}, box.data());
  EXPECT_EQ(box, (std::vector<float>{-1, 9, 14, 15}));
  EXPECT_THROW(matrix.read_raw({{3, 2}, {2, 2}}, box.data()), InternalError);
  EXPECT_THROW(matrix.read<double>(), DataError);
  EXPECT_THROW(file.dataset("/deep/er"), DataError);
  EXPECT_THROW(file.dataset("/none"), DataError);
}

// No object keeps the time at which it was made.
TEST_F(Hdf5Test, TheSameContentsGiveTheSameFile) {
  const auto bytes_of = [&](const std::string& name) {
    File file = File::create(path(name));
    const std::vector<float> value = {1};
    file.create_dataset("/deep/er/one", ElementType::kF32, {1})
        .write_raw({{{0}, {1}}}, value.data(), Transfer::kIndependent);
    file.create_strings("/names", {"a", "b"});
    file.set_attribute("/deep", "count", std::int64_t{3});
    file.close();
    return read_file(path(name), ExitStatus::kData);
  };
  const std::string first = bytes_of("1.h5");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // times in HDF5 are whole seconds
  EXPECT_EQ(first, bytes_of("2.h5"));
}

TEST_F(Hdf5Test, TextsAreKeptToTheByte) {
  const std::string text("a\0\xff\n", 4);
  {
    File file = File::create(path("t.h5"));
    file.create_text("/texts/a", text);
    file.create_text("/texts/empty", "");
    file.create_dataset("/numbers", ElementType::kU16, {3});
    file.create_dataset("/square", ElementType::kU8, {2, 2});
    file.close();
  }
  const File file = File::open(path("t.h5"));
  EXPECT_EQ(file.text("/texts/a", 4), text);
  EXPECT_EQ(file.text("/texts/empty", 0), "");
  EXPECT_EQ(file.dataset("/texts/a").type(), ElementType::kU8);
  EXPECT_THROW(file.text("/texts/a", 3), DataError);
  EXPECT_THROW(file.text("/numbers", 99), DataError);
  EXPECT_THROW(file.text("/square", 99), DataError);
}

TEST_F(Hdf5Test, OverlappingBoxesOfOneWriteAreRefused) {
  File file = File::create(path("o.h5"));
  Dataset made = file.create_dataset("/x", ElementType::kF32, {8});
  const std::vector<float> values(8);
  EXPECT_THROW(made.write_raw({{{0}, {4}}, {{3}, {4}}}, values.data(), Transfer::kIndependent),
               InternalError);
}

TEST_F(Hdf5Test, AppendGrowsAndRangesRead) {
  for (const int deflate : {0, 6}) {
    {
      File file = File::create(path("g.h5"));
      Dataset tokens = file.create_dataset("/tokens", ElementType::kU16, {0}, {1000, deflate});
      std::vector<std::uint16_t> part(777);
      for (int i = 0; i < 5; ++i) {
        std::iota(part.begin(), part.end(), static_cast<std::uint16_t>(i * 777));
        tokens.append(std::span<const std::uint16_t>(part));
      }
      EXPECT_EQ(tokens.elements(), 5 * 777);
      file.close();
    }
    const File file = File::open(path("g.h5"));
    const Dataset tokens = file.dataset("/tokens");
    EXPECT_FALSE(tokens.contiguous_offset());
    std::vector<std::uint16_t> range(3);
    tokens.read(2000, std::span<std::uint16_t>(range));
    EXPECT_EQ(range, (std::vector<std::uint16_t>{2000, 2001, 2002}));
    EXPECT_THROW(tokens.read(5 * 777 - 2, std::span<std::uint16_t>(range)), InternalError);
  }
}

TEST_F(Hdf5Test, ContiguousOffsetIsWhereTheBytesLie) {
  std::vector<std::uint32_t> values(100);
  std::iota(values.begin(), values.end(), 5u);
  {
    File file = File::create(path("c.h5"));
    Dataset made = file.create_dataset("/x", ElementType::kU32, {100});
    made.write(0, std::span<const std::uint32_t>(values));
    file.close();
  }
  const auto offset = File::open(path("c.h5")).dataset("/x").contiguous_offset();
  ASSERT_TRUE(offset);
  std::ifstream raw(path("c.h5"), std::ios::binary);
  raw.seekg(*offset);
  std::vector<std::uint32_t> read(100);
  raw.read(reinterpret_cast<char*>(read.data()), 400);
  EXPECT_EQ(read, values);
}

TEST_F(Hdf5Test, MissingForeignAndTruncatedFiles) {
  EXPECT_THROW(File::open(path("missing.h5")), DataError);
  EXPECT_THROW(File::open(folder_.path().string()), DataError);
  std::ofstream(path("text.h5")) << "not HDF5 at all";
  EXPECT_THROW(File::open(path("text.h5")), DataError);
  {
    File file = File::create(path("cut.h5"));
    Dataset made = file.create_dataset("/x", ElementType::kU8, {10'000});
    const std::vector<std::uint8_t> values(10'000, 1);
    made.write(0, std::span<const std::uint8_t>(values));
    file.close();
  }
  std::filesystem::resize_file(path("cut.h5"), 5'000);
  try {
    File::open(path("cut.h5"));
    FAIL() << "a truncated file was opened";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("truncated"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST_F(Hdf5Test, CannotCreate) {
  EXPECT_THROW(File::create(path("no/such/folder/x.h5")), Hdf5Error);
}

}  // namespace
}  // namespace trireme::hdf5
