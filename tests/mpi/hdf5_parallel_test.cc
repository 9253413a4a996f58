#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"

#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

using hdf5::ElementType;
using hdf5::File;
using hdf5::Transfer;

class ParallelHdf5Test : public ::testing::Test {
 protected:
  ParallelHdf5Test() {
    if (world_.rank() == 0) made_.emplace();
    path_ = world_.broadcast_text(made_ ? (made_->path() / "file.h5").string() : "");
  }
  ~ParallelHdf5Test() override { world_.barrier().wait_host(); }

  Communicator& world_ = runtime().world();
  std::optional<TemporaryFolder> made_;
  std::string path_;
};

TEST_F(ParallelHdf5Test, RanksWriteTheirSlabsTogether) {
  const std::int64_t ranks = world_.size(), rank = world_.rank();
  for (const Transfer transfer : {Transfer::kIndependent, Transfer::kCollective}) {
    File file = File::create(path_, world_);
    hdf5::Dataset columns = file.create_dataset("/a/columns", ElementType::kI32, {4, 3 * ranks});
    const std::vector<std::int32_t> values(12, static_cast<std::int32_t>(rank));
    columns.write_raw({{{0, 3 * rank}, {4, 3}}}, values.data(), transfer);
    // Only the last rank has something to write, in two boxes.
    hdf5::Dataset pieces = file.create_dataset("/a/pieces", ElementType::kI32, {10});
    std::vector<hdf5::Box> boxes;
    if (rank == ranks - 1) boxes = {{{0}, {4}}, {{6}, {4}}};
    const std::vector<std::int32_t> some = {0, 1, 2, 3, 6, 7, 8, 9};
    if (transfer == Transfer::kCollective || !boxes.empty()) {
      pieces.write_raw(boxes, some.data(), transfer);
    }
    file.close();

    const File again = File::open(path_);
    const auto all = again.dataset("/a/columns").read<std::int32_t>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], static_cast<std::int32_t>(i) % (3 * ranks) / 3) << i;
    }
    const auto read = again.dataset("/a/pieces").read<std::int32_t>();
    for (const std::int32_t i : some) EXPECT_EQ(read[static_cast<std::size_t>(i)], i);
    world_.barrier().wait_host();
  }
}

TEST_F(ParallelHdf5Test, AnExceptionOnOneRankLeavesTheFileOpenAndHangsNobody) {
  if (world_.rank() == 0) File::create(path_).close();
  world_.barrier().wait_host();
  std::optional<File> file(File::open_to_write(path_, world_));
  if (world_.rank() == 0) {
    try {
      const File unwound = std::move(*file);
      file.reset();
      throw InternalError("while the others still hold the file");
    } catch (const InternalError&) {
    }
  }
  // Reached by all ranks before any of the others closes: the unwinding did not wait for them.
  world_.barrier().wait_host();
  // Leaving it open is for a process that ends; here the others let theirs go in the same way.
  if (world_.rank() != 0) {
    try {
      const File unwound = std::move(*file);
      file.reset();
      throw InternalError("as rank 0 did");
    } catch (const InternalError&) {
    }
  }
}

}  // namespace
}  // namespace trireme::testing
