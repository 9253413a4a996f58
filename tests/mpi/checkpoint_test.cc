#include "trireme/io/checkpoint.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "trireme/base/error.h"

#include "io/checkpoints/shared_read.h"
#include "support/checkpoint_model.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {

// Removes this rank's file when it has reached the disk so many times.
int syncs_until_removed = 0;

}  // namespace trireme::testing

extern "C" int fsync(int descriptor) {
  namespace fs = std::filesystem;
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
  int& left = trireme::testing::syncs_until_removed;
  if (left > 0 && path.extension() == ".partial" && --left == 0) fs::remove(path);
  return 0;  // these are no tests of the disk
}

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    if (world_.rank() == 0) made_.emplace();
    folder_ = world_.broadcast_text(made_ ? (made_->path() / "checkpoints").string() : "");
  }
  ~CheckpointTest() override { world_.barrier().wait_host(); }

  std::vector<TensorSlice> deal_here(const std::vector<NamedTensor>& tensors, Split split,
                                     std::uint64_t version, bool filled) {
    return deal(tensors, split, world_.rank(), world_.size(), version, filled);
  }
  std::string write(std::int64_t step, Split split, const CheckpointOptions& options = {}) {
    const auto owned = deal_here(small_model(), split, static_cast<std::uint64_t>(step), true);
    return write_checkpoint(world_, runtime().recorder(), folder_, info(step), owned, options);
  }
  static CheckpointInfo info(std::int64_t step) {
    CheckpointInfo info;
    info.step = step;
    info.samples = step * 32;
    info.seed = 0xffff'ffff'ffff'fff0u;
    info.config = "[model]\nlayers=2\n; \xff is not UTF-8\n";
    info.extra["grid"] = "2 x 1 x 2";
    return info;
  }
  // The message of the Error that the body must throw.
  template <class E, class F>
  std::string message_of(F body) {
    try {
      body();
    } catch (const E& error) {
      return error.what();
    }
    ADD_FAILURE() << "no error, or another one";
    return "";
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Communicator& world_ = runtime().world();
  std::optional<TemporaryFolder> made_;
  std::string folder_;
};

TEST_F(CheckpointTest, EverySplitReadsOnEveryOther) {
  std::int64_t step = 0;
  for (const Split writing : kSplits) {
    const std::string path = write(++step, writing);
    const Checkpoint checkpoint = Checkpoint::open(world_, path);
    EXPECT_EQ(checkpoint.info().step, step);
    EXPECT_EQ(checkpoint.info().samples, step * 32);
    EXPECT_EQ(checkpoint.info().seed, info(0).seed);
    EXPECT_EQ(checkpoint.info().config, info(0).config);
    EXPECT_EQ(checkpoint.info().extra, info(0).extra);
    EXPECT_EQ(checkpoint.contents().tensors.size(), small_model().size());
    for (const Split reading : kSplits) {
      const auto wanted =
          deal_here(small_model(), reading, static_cast<std::uint64_t>(step), false);
      checkpoint.read(world_, wanted);
      EXPECT_EQ(wrong_bytes(wanted, static_cast<std::uint64_t>(step)), 0)
          << "written in split " << static_cast<int>(writing) << ", read in split "
          << static_cast<int>(reading);
    }
  }
}

TEST_F(CheckpointTest, ChecksumsDoNotDependOnTheSplit) {
  std::vector<std::uint64_t> reference;
  for (const Split split : kSplits) {
    const std::string path = write(7, split);  // replaces
    std::vector<std::uint64_t> sums;
    const Checkpoint checkpoint = Checkpoint::open(world_, path);
    for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
      sums.push_back(tensor.checksum);
    }
    if (reference.empty()) reference = sums;
    EXPECT_EQ(sums, reference);
    world_.barrier().wait_host();
  }
}

TEST_F(CheckpointTest, ShortRunsOfALargerTensorAreRegrouped) {
  const std::vector<NamedTensor> tensors = {{"parameters/large", {613, 1030}},
                                            {"parameters/small", {3, 5}},
                                            {"parameters/wide", {2, 61, 5003}},
                                            {"state/wide", {153, 1030}, DType::kI64}};
  for (const Split split : {Split::kColumns, Split::kFlatColumns}) {
    const auto owned = deal_here(tensors, split, 5, true);
    const std::string path =
        write_checkpoint(world_, runtime().recorder(), folder_, info(1), owned);
    const Checkpoint checkpoint = Checkpoint::open(world_, path);
    for (const Split reading : {Split::kFlat, Split::kColumns}) {
      const auto wanted = deal_here(tensors, reading, 5, false);
      checkpoint.read(world_, wanted);
      EXPECT_EQ(wrong_bytes(wanted, 5), 0);
    }
  }
}

TEST_F(CheckpointTest, EveryRankMayReadTheWhole) {
  const std::string path = write(1, Split::kFlat);
  const auto wanted = deal(small_model(), Split::kWhole, 0, 1, 1, false);
  Checkpoint::open(world_, path).read(world_, wanted);
  EXPECT_EQ(wrong_bytes(wanted, 1), 0);
}

// The world as replicas whose ranks want the same, in runs so short that there are many rounds.
TEST_F(CheckpointTest, ReplicasReadTheFileOnceAndShareIt) {
  const std::vector<NamedTensor> tensors = {{"parameters/large", {613, 1030}},
                                            {"parameters/small", {3, 5}},
                                            {"parameters/wide", {2, 61, 503}},
                                            {"state/none", {0, 3}},
                                            {"state/wide", {153, 103}, DType::kI64}};
  const std::string path = write_checkpoint(world_, runtime().recorder(), folder_, info(1),
                                            deal_here(tensors, Split::kFlat, 5, true));
  const Checkpoint checkpoint = Checkpoint::open(world_, path);
  const PosixFile file(path, O_RDONLY);
  for (const int ranks : {1, 2, 4}) {
    if (world_.size() % ranks != 0) continue;
    std::vector<int> replica, copies;
    for (int r = 0; r < world_.size(); ++r) {
      if (r / ranks == world_.rank() / ranks) replica.push_back(r);
      if (r % ranks == world_.rank() % ranks) copies.push_back(r);
    }
    const auto replica_comm = runtime().group("replica", replica);
    const auto copies_comm = runtime().group("copies", copies);
    const ReadGroups groups{world_, *replica_comm, copies_comm.get()};
    for (const Split reading : kSplits) {
      const int rank = world_.rank() % ranks;
      const auto wanted = deal(tensors, reading, rank, ranks, 5, false);
      checkpoint.read(groups, wanted);
      EXPECT_EQ(wrong_bytes(wanted, 5), 0);
      const auto again = deal(tensors, reading, rank, ranks, 5, false);
      read_shared(groups, file, checkpoint.contents(), again, {4096, 4096, 16384});
      EXPECT_EQ(wrong_bytes(again, 5), 0) << ranks << ", split " << static_cast<int>(reading);
    }
    if (copies.size() == 1) continue;
    const auto differing = deal(tensors, Split::kRows, world_.rank(), world_.size(), 5, false);
    EXPECT_THROW(checkpoint.read(groups, differing), InternalError);
  }
}

TEST_F(CheckpointTest, OtherModelIsNamed) {
  const Checkpoint checkpoint = Checkpoint::open(world_, write(1, Split::kRows));
  const auto read = [&](const NamedTensor& tensor) {
    const auto wanted = deal({tensor}, Split::kWhole, 0, 1, 1, false);
    return message_of<CheckpointError>([&] { checkpoint.read(world_, wanted); });
  };
  const std::string missing = read({"parameters/blocks.9.bias", {13}});
  EXPECT_NE(missing.find("parameters/blocks.9.bias"), std::string::npos) << missing;
  EXPECT_NE(missing.find("(13)"), std::string::npos) << missing;
  const std::string shape = read({"parameters/embedding.weight", {40, 12}});
  EXPECT_NE(shape.find("parameters/embedding.weight"), std::string::npos) << shape;
  EXPECT_NE(shape.find("(37, 12)"), std::string::npos) << shape;
  EXPECT_NE(shape.find("(40, 12)"), std::string::npos) << shape;
  const std::string type = read({"state/counters", {3}, DType::kF32});
  EXPECT_NE(type.find("state/counters"), std::string::npos) << type;
}

TEST_F(CheckpointTest, GapsOverlapsAndContradictionsAreRefused) {
  auto owned = deal_here(small_model(), Split::kFlat, 1, true);
  if (world_.rank() == 0) owned[0].range->end -= 1;
  const auto write_owned = [&] {
    return message_of<InternalError>(
        [&] { write_checkpoint(world_, runtime().recorder(), folder_, info(1), owned); });
  };
  EXPECT_NE(write_owned().find("parameters/embedding.weight (37, 12): the ranks own 443 of"),
            std::string::npos);

  owned = deal_here(small_model(), Split::kFlat, 1, true);
  if (world_.rank() == 0) owned.push_back(deal(small_model(), Split::kWhole, 0, 1, 1, true)[1]);
  EXPECT_NE(write_owned().find("parameters/blocks.0.cube: ranks"), std::string::npos);

  if (world_.size() > 1) {
    owned = deal_here(small_model(), Split::kFlat, 1, true);
    if (world_.rank() == 1) owned[2].global = owned[2].extent = Shape{14};
    EXPECT_NE(write_owned().find("parameters/blocks.0.bias is"), std::string::npos);
  }
  EXPECT_TRUE(list_checkpoints(folder_).empty());
}

TEST_F(CheckpointTest, KeepsTheNewestAndClearsWhatAKilledRunLeft) {
  CheckpointOptions options;
  options.keep = 2;
  options.generation = 4;
  write(1, Split::kRows, options);
  write(2, Split::kRows, options);
  if (world_.rank() == 0) {
    fs::copy(checkpoint_path(folder_, 1), checkpoint_path(folder_, 9) + ".3.partial");
  }
  world_.barrier().wait_host();
  write(3, Split::kRows, options);
  EXPECT_EQ(files(), (std::vector<std::string>{"step-00000002.h5", "step-00000003.h5"}));
  const auto listed = list_checkpoints(folder_);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].step, 3);
  EXPECT_EQ(listed[1].path, checkpoint_path(folder_, 3));
  options.spared = 2;
  for (const int step : {4, 5, 6}) write(step, Split::kRows, options);
  EXPECT_EQ(files(),
            (std::vector<std::string>{"step-00000002.h5", "step-00000005.h5", "step-00000006.h5"}));
  options.spared.reset();
  write(7, Split::kRows, options);
  EXPECT_EQ(files(), (std::vector<std::string>{"step-00000006.h5", "step-00000007.h5"}));
}

TEST_F(CheckpointTest, GivenUpBeforeTheRenameLeavesNothingAndSaysWhy) {
  write(1, Split::kRows);
  CheckpointOptions options;
  options.keep = 1;
  for (const int last : {1, 2}) {  // before the file is begun, before it is renamed
    int calls = 0;
    options.check_still_ours = [&] {
      if (++calls == last) throw RunFolderError("taken over by another job");
    };
    EXPECT_EQ(message_of<RunFolderError>([&] { write(2, Split::kRows, options); }),
              "taken over by another job");
    world_.barrier().wait_host();
    EXPECT_EQ(files(), std::vector<std::string>{"step-00000001.h5"});
  }
}

// What is read back is not there any more, which is no damage of the file.
TEST_F(CheckpointTest, RemovedWhileItIsWrittenIsTheFoldersFault) {
  write(1, Split::kRows);
  world_.barrier().wait_host();
  if (world_.rank() == 0) syncs_until_removed = 2;  // by all ranks, and with its closing record
  EXPECT_NE(message_of<RunFolderError>([&] {
              write(2, Split::kRows);
            }).find("step-00000002.h5.0.partial: somebody removed it while it was being written"),
            std::string::npos);
  EXPECT_EQ(files(), std::vector<std::string>{"step-00000001.h5"});
}

// A file system that blinks: the holder of the folder sees it again, and the checkpoint is written.
TEST_F(CheckpointTest, WrittenOnceMoreWhenWhatWasGoneIsBack) {
  write(1, Split::kRows);
  const std::string away = folder_ + ".away";
  int looks = 0;
  CheckpointOptions options;
  options.check_still_ours = [&] {
    if (++looks == 2) fs::rename(folder_, away);  // before the rename
    if (looks == 3) fs::rename(away, folder_);    // when it is looked for
  };
  write(2, Split::kRows, options);
  EXPECT_EQ(files(), (std::vector<std::string>{"step-00000001.h5", "step-00000002.h5"}));
  if (world_.rank() == 0) {
    EXPECT_EQ(looks, 5);
    syncs_until_removed = 2;
  }
  options.check_still_ours = [] {};
  write(3, Split::kRows, options);
  EXPECT_TRUE(fs::exists(checkpoint_path(folder_, 3)));
  // What stays away ends the run.
  looks = 0;
  options.check_still_ours = [&] {
    if (++looks == 2) fs::rename(folder_, away);
    if (looks == 3) throw RunFolderError("it stays away");
  };
  EXPECT_EQ(message_of<RunFolderError>([&] { write(4, Split::kRows, options); }), "it stays away");
  if (world_.rank() == 0) fs::rename(away, folder_);
}

// Ranks that outlived their step write the same step's checkpoint while a later holder of the
// folder does: neither touches the other's unfinished file.
TEST_F(CheckpointTest, AnEarlierHolderLeavesALaterOnesFileAlone) {
  const std::string later = checkpoint_path(folder_, 1) + ".10.partial";
  CheckpointOptions options;
  options.generation = 9;
  options.check_still_ours = [&] {
    fs::create_directories(folder_);
    std::ofstream(later) << "being written";
  };
  write(1, Split::kRows, options);
  EXPECT_EQ(files(), (std::vector<std::string>{"step-00000001.h5", fs::path(later).filename()}));
  options.generation = 10;
  options.check_still_ours = {};
  write(2, Split::kRows, options);
  EXPECT_EQ(files(), (std::vector<std::string>{"step-00000001.h5", "step-00000002.h5"}));
}

TEST_F(CheckpointTest, LatestFallsBackToTheLastGoodOneAndSaysSo) {
  EXPECT_FALSE(open_latest_checkpoint(world_, folder_).checkpoint);
  for (std::int64_t step = 1; step <= 3; ++step) write(step, Split::kFlat);
  if (world_.rank() == 0) {
    fs::resize_file(checkpoint_path(folder_, 3), fs::file_size(checkpoint_path(folder_, 3)) - 1);
  }
  world_.barrier().wait_host();
  const LatestCheckpoint latest = open_latest_checkpoint(world_, folder_);
  ASSERT_TRUE(latest.checkpoint);
  EXPECT_EQ(latest.checkpoint->info().step, 2);
  ASSERT_EQ(latest.refused.size(), 1u);
  EXPECT_NE(latest.refused[0].find("step-00000003.h5"), std::string::npos) << latest.refused[0];
  EXPECT_NE(latest.refused[0].find("cut short"), std::string::npos) << latest.refused[0];
}

// The limit on file sizes stands for a full disk: it refuses the space before the first byte too.
TEST_F(CheckpointTest, NoSpaceIsFoundBeforeWriting) {
  write(1, Split::kFlat);
  const std::vector<NamedTensor> tensors = {{"parameters/large", {300, 1000}}};
  const auto owned = deal_here(tensors, Split::kFlat, 5, true);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit tight = before;
  tight.rlim_cur = 500'000;
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string message = message_of<RunFolderError>(
      [&] { write_checkpoint(world_, runtime().recorder(), folder_, info(2), owned); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  world_.barrier().wait_host();
  EXPECT_EQ(files(), std::vector<std::string>{"step-00000001.h5"});
  EXPECT_EQ(open_latest_checkpoint(world_, folder_).checkpoint->info().step, 1);
}

TEST_F(CheckpointTest, UnwritableFolderIsNamed) {
  if (world_.rank() == 0) {
    fs::create_directories(fs::path(folder_).parent_path());
    fs::copy_file("/proc/self/comm", folder_);  // a file where the folder should be
  }
  world_.barrier().wait_host();
  const std::string message = message_of<RunFolderError>([&] { write(1, Split::kRows); });
  EXPECT_NE(message.find(folder_), std::string::npos) << message;
}

}  // namespace
}  // namespace trireme::testing
