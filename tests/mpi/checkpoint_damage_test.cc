// Whatever happens to the bytes of a checkpoint, it is refused or loads bit-equal.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/hdf5.h"

#include "io/hdf5/closing_record.h"
#include "support/checkpoint_model.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// For one rank.
class CheckpointDamageTest : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.path().string(); }

  std::string write(const std::vector<NamedTensor>& tensors) {
    CheckpointInfo info;
    info.step = 1;
    info.seed = 5;
    info.config = "[model]\nlayers=2\n";
    info.extra["grid"] = "1 x 1 x 1";
    model_ = tensors;
    const auto owned = deal(tensors, Split::kWhole, 0, 1, 1, true);
    return write_checkpoint(world_, runtime().recorder(), folder(), info, owned);
  }

  enum class Outcome { kRefused, kEqual, kWrong };
  Outcome load(const std::string& path) {
    try {
      const Checkpoint checkpoint = Checkpoint::open(world_, path);
      const auto wanted = deal(model_, Split::kWhole, 0, 1, 1, false);
      checkpoint.read(world_, wanted);
      const CheckpointInfo& info = checkpoint.info();
      const bool equal = wrong_bytes(wanted, 1) == 0 && info.step == 1 && info.samples == 0 &&
                         info.seed == 5 && info.config == "[model]\nlayers=2\n" &&
                         info.extra.size() == 1 && info.extra.at("grid") == "1 x 1 x 1" &&
                         checkpoint.contents().tensors.size() == model_.size();
      return equal ? Outcome::kEqual : Outcome::kWrong;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return Outcome::kRefused;
    }
  }

  // Flips one bit, loads, and flips it back.
  Outcome load_flipped(const std::string& path, std::uint64_t offset, unsigned bit) {
    const auto flip = [&] {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(offset));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(offset));
      file.put(static_cast<char>(byte ^ (1 << bit)));
    };
    flip();
    const Outcome outcome = load(path);
    flip();
    return outcome;
  }

  Communicator& world_ = runtime().world();
  TemporaryFolder folder_;
  std::vector<NamedTensor> model_;
};

TEST_F(CheckpointDamageTest, EveryByteOfASmallFileIsProtected) {
  // Superblock, headers, links, attributes, checksum table, gaps, tensors, closing record: all.
  const std::string path = write({{"parameters/a.weight", {5, 7}},
                                  {"optimizer/a.weight/exp_avg", {5, 7}},
                                  {"state/counters", {3}, DType::kI64},
                                  {"state/scale", {}}});
  const auto size = fs::file_size(path);
  ASSERT_EQ(load(path), Outcome::kEqual);
  std::uint64_t refused = 0;
  for (std::uint64_t offset = 0; offset < size; ++offset) {
    const unsigned bit = static_cast<unsigned>(philox_key(offset, "bit") % 8);
    const Outcome outcome = load_flipped(path, offset, bit);
    ASSERT_NE(outcome, Outcome::kWrong) << "bit " << bit << " of byte " << offset;
    refused += outcome == Outcome::kRefused;
  }
  EXPECT_EQ(refused, size);
  print_line(fmt::format("{} bytes, one bit of each flipped: {} refused", size, refused));
  EXPECT_EQ(load(path), Outcome::kEqual);
}

TEST_F(CheckpointDamageTest, RandomBitsAndEveryDatasetOfALargerFile) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 12; ++i) {
    const std::string name = fmt::format("blocks.{}.weight", i);
    tensors.push_back({"parameters/" + name, {100 + i, 64}});
    tensors.push_back({"optimizer/" + name + "/exp_avg", {100 + i, 64}});
    tensors.push_back({"optimizer/" + name + "/exp_avg_sq", {100 + i, 64}});
  }
  const std::string path = write(tensors);
  const auto size = fs::file_size(path);
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 500; ++i) offsets.push_back(philox_key(i, "offset") % size);
  for (const CheckpointTensor& tensor : inspect_checkpoint(path).tensors) {
    const auto first = static_cast<std::uint64_t>(tensor.offset);
    offsets.push_back(first);
    offsets.push_back(first +
                      philox_key(first, "inside") % static_cast<std::uint64_t>(tensor.bytes()));
    offsets.push_back(first + static_cast<std::uint64_t>(tensor.bytes()) - 1);
  }
  std::size_t refused = 0;
  for (const std::uint64_t offset : offsets) {
    const Outcome outcome =
        load_flipped(path, offset, static_cast<unsigned>(philox_key(offset, "bit") % 8));
    ASSERT_NE(outcome, Outcome::kWrong) << "byte " << offset;
    refused += outcome == Outcome::kRefused;
  }
  EXPECT_EQ(refused, offsets.size());
  print_line(fmt::format("{} bits of {} bytes flipped: {} refused", offsets.size(), size, refused));
}

TEST_F(CheckpointDamageTest, BlocksSwappedOrZeroedInTensors) {
  const std::string path = write({{"parameters/a", {64, 1024}}});
  const auto offset = inspect_checkpoint(path).tensors[0].offset;
  std::string good;
  {
    std::ifstream file(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto store = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto at = static_cast<std::size_t>(offset);
  for (const std::size_t block : {4u, 512u, 4096u, 16384u}) {
    std::string bad = good;
    for (std::size_t i = 0; i < block; ++i) {
      std::swap(bad[at + i], bad[at + 65536 + i]);
    }
    store(bad);
    EXPECT_EQ(load(path), Outcome::kRefused) << "swapped " << block;
    bad = good;
    std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(at + 32768), block, '\0');
    store(bad);
    EXPECT_EQ(load(path), Outcome::kRefused) << "zeroed " << block;
  }
  store(good);
  EXPECT_EQ(load(path), Outcome::kEqual);
}

TEST_F(CheckpointDamageTest, CutShortOrTooLong) {
  const std::string path = write(small_model());
  const auto size = fs::file_size(path);
  const std::string other = folder() + "/other.h5";
  for (std::uint64_t length = 0; length < size; length += 1 + size / 150) {
    fs::copy_file(path, other, fs::copy_options::overwrite_existing);
    fs::resize_file(other, length);
    EXPECT_EQ(load(other), Outcome::kRefused) << length;
  }
  for (const std::uint64_t more : {1u, 16u, 64u, 4096u}) {
    fs::copy_file(path, other, fs::copy_options::overwrite_existing);
    fs::resize_file(other, size + more);
    EXPECT_EQ(load(other), Outcome::kRefused) << more;
  }
}

TEST_F(CheckpointDamageTest, MissingForeignAndEditedFiles) {
  EXPECT_EQ(load(folder() + "/missing.h5"), Outcome::kRefused);
  EXPECT_EQ(load(folder()), Outcome::kRefused);
  std::ofstream(folder() + "/text.h5") << std::string(1000, 'x');
  EXPECT_EQ(load(folder() + "/text.h5"), Outcome::kRefused);
  {
    hdf5::File file = hdf5::File::create(folder() + "/foreign.h5");
    file.create_dataset("/parameters/a", hdf5::ElementType::kF32, {10});
    file.close();
  }
  EXPECT_EQ(load(folder() + "/foreign.h5"), Outcome::kRefused);
  const std::string path = write(small_model());
  {
    hdf5::File file = hdf5::File::open_to_write(path);
    file.set_attribute("/", "step", std::int64_t{99});
    file.close();
  }
  EXPECT_EQ(load(path), Outcome::kRefused);
}

TEST_F(CheckpointDamageTest, NumbersThatCannotBe) {
  const std::string path = write(small_model());
  const auto refusal = [&](const char* name, std::int64_t value) {
    // It is as if a checkpoint had been written so: its closing record is right.
    const std::string other = folder() + "/other.h5";
    fs::copy_file(path, other, fs::copy_options::overwrite_existing);
    const std::vector<ByteRange> ranges = check_record(PosixFile(other, O_RDONLY)).value();
    constexpr std::uintmax_t kFooter = 64;
    fs::resize_file(other, fs::file_size(other) - kFooter - ranges.size() * sizeof(ByteRange));
    {
      hdf5::File file = hdf5::File::open_to_write(other);
      file.set_attribute("/", name, value);
      file.close();
    }
    PosixFile file(other, O_RDWR);
    append_record(file, ranges);
    try {
      inspect_checkpoint(other);
    } catch (const CheckpointError& error) {
      return std::string(error.what()).substr(other.size());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal("step", 7), "none");
  // bad input: a checkpoint whose step or samples cannot be | ...: its step is -5: 0 to
  // 9007199254740992 can be | 4
  EXPECT_EQ(refusal("step", -5), ": its step is -5: 0 to 9007199254740992 can be");
  EXPECT_EQ(refusal("samples", std::int64_t{1} << 60),
            ": its samples is 1152921504606846976: 0 to 9007199254740992 can be");
  EXPECT_EQ(refusal("format_version", 2), ": format version 2, this program knows 1");
}

TEST_F(CheckpointDamageTest, FullDiskIsFoundBeforeWritingAndLeavesTheLastGoodOne) {
  if (::mount("none", folder().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here";
  }
  const std::string path = write(small_model());
  std::string message;
  try {
    const auto owned = deal({{"parameters/a", {1000, 1000}}}, Split::kWhole, 0, 1, 1, true);
    CheckpointInfo info;
    info.step = 2;
    write_checkpoint(world_, runtime().recorder(), folder(), info, owned);
  } catch (const RunFolderError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_EQ(load(path), Outcome::kEqual);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), {}), 1);
  ::umount2(folder().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace trireme::testing
