#include "trireme/io/run_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() {
    if (first()) made_.emplace();
    folder_ = world_.broadcast_text(made_ ? (made_->path() / "run").string() : "");
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
  }
  ~RunFolderTest() override { world_.barrier().wait_host(); }

  bool first() const { return world_.rank() == 0; }

  // Puts the lease of somebody else into the folder.
  void plant(const std::string& host, std::int64_t pid, std::int64_t heartbeat_age,
             const std::string& job = "", std::int64_t process_start = 0) {
    if (first()) {
      fs::create_directories(folder_);
      const Json lease = Json::object({{"job", job},
                                       {"restarts", 0},
                                       {"host", host},
                                       {"pid", pid},
                                       {"process_start", process_start},
                                       {"heartbeat", ::time(nullptr) - heartbeat_age},
                                       {"generation", 7}});
      std::ofstream(folder_ + "/lease") << lease.dump();
    }
    world_.barrier().wait_host();
  }
  std::string refusal() {
    try {
      const RunFolder folder(world_, folder_);
    } catch (const RunFolderError& error) {
      return error.what();
    }
    return "";
  }

  // A process that lives, as a lease names it.
  struct Living {
    std::int64_t pid = ::getppid();
    std::int64_t start = 0;
    Living() {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string text((std::istreambuf_iterator<char>(file)), {});
      std::istringstream fields(text.substr(text.rfind(')') + 1));
      std::string field;
      for (int i = 3; i <= 22; ++i) fields >> field;
      start = std::stoll(field);
    }
  };

  Communicator& world_ = runtime().world();
  std::optional<TemporaryFolder> made_;
  std::string folder_;
};

TEST_F(RunFolderTest, TakesAFreshFolderAndGivesItBack) {
  for (std::int64_t generation = 1; generation <= 3; ++generation) {
    const RunFolder folder(world_, folder_);
    EXPECT_EQ(folder.generation(), generation);
    EXPECT_NO_THROW(folder.check_still_ours());
    EXPECT_TRUE(fs::is_directory(folder.checkpoints()));
    if (first()) {
      const auto lease = read_lease(folder_);
      ASSERT_TRUE(lease);
      EXPECT_EQ(lease->pid, ::getpid());
      EXPECT_EQ(lease->host, runtime().host());
    }
    world_.barrier().wait_host();
  }
  world_.barrier().wait_host();
  EXPECT_FALSE(read_lease(folder_));
}

TEST_F(RunFolderTest, InUseNamesHostAndProcess) {
  plant("elsewhere", 4242, 10, "991");
  const std::string message = refusal();
  // bad input: `train`: a run folder that another job holds | ...: in use by job 991 on host
  // elsewhere, process 4242 | 5
  EXPECT_NE(message.find("in use by job 991 on host elsewhere, process 4242"), std::string::npos)
      << message;
  if (first()) fs::remove(folder_ + "/lease");
  world_.barrier().wait_host();
  const RunFolder held(world_, folder_);
  const std::string second = refusal();  // a living process of this host
  EXPECT_NE(second.find("on host " + runtime().host()), std::string::npos) << second;
}

TEST_F(RunFolderTest, TakesOverFromTheDead) {
  plant("elsewhere", 4242, RunFolder::kDeadAfterSeconds + 1);
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 8);
  world_.barrier().wait_host();
  plant(runtime().host(), 1, 0, "", 1);  // process 1 lives, but started at another time
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 9);
}

TEST_F(RunFolderTest, TakesOverFromAnEarlierStartOfTheSameJob) {
  ::setenv("SLURM_JOB_ID", "991", 1);
  plant("elsewhere", 4242, 10, "991");
  EXPECT_EQ(refusal(), "");
  world_.barrier().wait_host();
  plant("elsewhere", 4242, 10, "990");
  EXPECT_NE(refusal(), "");
  const RunFolderTest::Living living;
  plant(runtime().host(), living.pid, 10, "991", living.start);
  EXPECT_NE(refusal(), "");  // a step of the same start, alive on this host
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunFolderTest, OlderGenerationMayNotGoOn) {
  const RunFolder folder(world_, folder_);
  world_.barrier().wait_host();
  plant("elsewhere", 4242, 0, "992");
  if (first()) {
    try {
      folder.check_still_ours();
      ADD_FAILURE() << "did not see that the folder was taken over";
    } catch (const RunFolderError& error) {
      EXPECT_NE(std::string(error.what()).find("taken over by job 992 on host elsewhere"),
                std::string::npos)
          << error.what();
    }
  } else {
    EXPECT_NO_THROW(folder.check_still_ours());
  }
}

TEST_F(RunFolderTest, OlderGenerationLeavesTheNewLeaseAlone) {
  {
    const RunFolder folder(world_, folder_);
    world_.barrier().wait_host();
    plant("elsewhere", 4242, 0, "992");
  }
  world_.barrier().wait_host();
  const auto lease = read_lease(folder_);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->host, "elsewhere");
}

TEST_F(RunFolderTest, WhatIsNotARunFolderIsRefused) {
  if (first()) {
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/thesis.tex") << "precious";
  }
  world_.barrier().wait_host();
  EXPECT_NE(refusal().find("not a run folder"), std::string::npos);
  if (first()) {
    fs::remove_all(folder_);
    std::ofstream(folder_) << "a file";
  }
  world_.barrier().wait_host();
  EXPECT_NE(refusal().find(folder_), std::string::npos);
}

TEST_F(RunFolderTest, GarbledLeaseIsNamed) {
  plant("elsewhere", 1, 0);
  if (first()) std::ofstream(folder_ + "/lease") << "{\"job\": 3";
  world_.barrier().wait_host();
  EXPECT_NE(refusal().find("/lease: not a lease"), std::string::npos);
}

// Generations stand for folders in superseded/: none is given out twice, even where somebody
// removed the counter, and a crash leaves the old counter or the new one.
TEST_F(RunFolderTest, GenerationsNeverComeAgain) {
  { const RunFolder folder(world_, folder_); }
  world_.barrier().wait_host();
  if (first()) fs::create_hard_link(folder_ + "/lease.generation", folder_ + "/before");
  world_.barrier().wait_host();
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 2);
  world_.barrier().wait_host();
  if (first()) {
    std::string counter;
    std::ifstream(folder_ + "/before") >> counter;
    EXPECT_EQ(counter, "1");  // replaced, not written over
    fs::remove(folder_ + "/lease.generation");
    fs::create_directories(folder_ + "/superseded/12");
  }
  world_.barrier().wait_host();
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 13);
}

TEST_F(RunFolderTest, WhatKilledHoldersLeftIsRemoved) {
  if (first()) {
    fs::create_directories(folder_ + "/checkpoints/mine.partial");
    fs::create_directories(folder_ + "/mine.partial");
    for (const char* name : {"lease.n3.77", ".writable.n3.77", "metrics.jsonl.partial",
                             "checkpoints/step-00000002.h5.1.partial"}) {
      std::ofstream(folder_ + "/" + name) << "half";
    }
    std::ofstream(folder_ + "/checkpoints/step-00000002.h5") << "whole";
  }
  world_.barrier().wait_host();
  const RunFolder folder(world_, folder_);
  if (!first()) return;
  std::set<std::string> left;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_)) {
    left.insert(entry.path().lexically_relative(folder_).string());
  }
  EXPECT_EQ(left, (std::set<std::string>{"checkpoints", "checkpoints/mine.partial",
                                         "checkpoints/step-00000002.h5", "lease",
                                         "lease.generation", "lease.lock", "mine.partial"}));
}

TEST_F(RunFolderTest, AFolderThatIsGoneIsNamed) {
  for (const char* gone : {"/checkpoints", ""}) {
    const RunFolder folder(world_, folder_);
    world_.barrier().wait_host();
    if (first()) {
      fs::remove_all(folder_ + gone);
      try {
        folder.check_still_ours();
        ADD_FAILURE() << "did not see that the folder is gone";
      } catch (const RunFolderError& error) {
        EXPECT_NE(std::string(error.what()).find(folder_ + gone + ": somebody removed it"),
                  std::string::npos)
            << error.what();
      }
    }
    world_.barrier().wait_host();
  }
}

TEST_F(RunFolderTest, FullDiskIsFoundAtOnce) {
  std::string skipped;
  if (first()) {
    fs::create_directories(folder_);
    if (::mount("none", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      skipped = "cannot mount a small file system here";
    } else {
      std::ofstream(folder_ + "/config.ini") << std::string(200'000, 'x');
    }
  }
  skipped = world_.broadcast_text(skipped);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
  const std::string message = refusal();
  world_.barrier().wait_host();
  if (first()) ::umount2(folder_.c_str(), MNT_DETACH);
  EXPECT_NE(message.find("No space left"), std::string::npos) << message;
}

}  // namespace
}  // namespace trireme::testing
