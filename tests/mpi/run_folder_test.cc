#include "trireme/io/run_folder.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/io/whole_file.h"

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
    ::setenv("TRIREME_LEASE_SILENCE", "2", 1);
  }
  ~RunFolderTest() override { world_.barrier().wait_host(); }

  bool first() const { return world_.rank() == 0; }

  // Puts the lease of somebody else into the folder, as versions before the boot's id wrote it.
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
      write_whole_file(folder_ + "/lease", lease.dump());
    }
    world_.barrier().wait_host();
  }
  // A holder elsewhere that lives: it renews its lease until the object ends. Its clock is wrong.
  class LivingElsewhere {
   public:
    LivingElsewhere(RunFolderTest& test, const std::string& job, std::int64_t clock_behind) {
      test.plant("elsewhere", 4242, clock_behind, job);
      if (!test.first()) return;
      heart_ = std::thread([this, folder = test.folder_] {
        while (!ended_) {
          Lease lease = read_lease(folder).value();
          lease.heartbeat += 1;
          write_lease(folder, lease);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
      });
    }
    ~LivingElsewhere() {
      ended_ = true;
      if (heart_.joinable()) heart_.join();
    }

   private:
    std::atomic<bool> ended_ = false;
    std::thread heart_;
  };
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
  std::string message;
  {
    const LivingElsewhere holder(*this, "991", 10);
    message = refusal();
  }
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

// However far its clock is behind ours or ahead.
TEST_F(RunFolderTest, ALivingHolderElsewhereKeepsItsFolder) {
  for (const std::int64_t behind : {100'000, -100'000}) {
    std::string message;
    {
      const LivingElsewhere holder(*this, "", behind);
      message = refusal();
    }
    EXPECT_NE(message.find("in use by another run on host elsewhere"), std::string::npos) << behind;
    world_.barrier().wait_host();
  }
}

TEST_F(RunFolderTest, TakesOverFromTheDead) {
  plant("elsewhere", 4242, 100'000);
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 8);
  world_.barrier().wait_host();
  plant("elsewhere", 4242, -100'000);
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 9);
  world_.barrier().wait_host();
  plant(runtime().host(), 1, 0, "", 1);  // process 1 lives, but started at another time
  EXPECT_EQ(RunFolder(world_, folder_).generation(), 10);
}

TEST_F(RunFolderTest, TakesOverFromAnEarlierStartOfTheSameJob) {
  ::setenv("SLURM_JOB_ID", "991", 1);
  plant("elsewhere", 4242, 10, "991");
  EXPECT_EQ(refusal(), "");
  world_.barrier().wait_host();
  {
    const LivingElsewhere holder(*this, "990", 10);
    EXPECT_NE(refusal(), "");
  }
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

// A host of the same name, or another container on it, has other processes: a pid says nothing.
TEST(LeaseWatch, ProcessesAreToldByBootAndNamespaceToo) {
  ::setenv("TRIREME_LEASE_SILENCE", "3600", 1);
  const Lease mine = own_lease();
  ASSERT_FALSE(mine.boot.empty());
  ASSERT_NE(mine.pid_namespace, 0);
  using Verdict = LeaseWatch::Verdict;
  const auto verdict = [&](const Lease& held) { return LeaseWatch(held, mine).look(held); };
  Lease held = mine;
  EXPECT_EQ(verdict(held), Verdict::kAlive);
  held.process_start += 1;
  EXPECT_EQ(verdict(held), Verdict::kGone);
  held.pid_namespace += 1;
  EXPECT_EQ(verdict(held), Verdict::kUnknown);
  held = mine;
  held.boot = "another";
  EXPECT_EQ(verdict(held), Verdict::kUnknown);
  Lease renewed = held;
  renewed.heartbeat -= 100;
  EXPECT_EQ(LeaseWatch(held, mine).look(renewed), Verdict::kAlive);
  EXPECT_EQ(LeaseWatch(held, mine).look({}), Verdict::kGone);
  ::setenv("TRIREME_LEASE_SILENCE", "0", 1);
  EXPECT_EQ(verdict(held), Verdict::kGone);
}

TEST_F(RunFolderTest, ALeaseThatCannotBeReadIsNoReleasedOne) {
  if (first()) fs::create_directories(folder_ + "/lease");
  world_.barrier().wait_host();
  EXPECT_NE(refusal().find("/lease: cannot be read"), std::string::npos);
}

// A file system that blinks: what is gone comes back.
TEST_F(RunFolderTest, AFolderThatComesBackIsStillOurs) {
  const RunFolder folder(world_, folder_);
  world_.barrier().wait_host();
  if (first()) {
    for (const char* gone : {"/lease", "/checkpoints", ""}) {
      fs::rename(folder_ + gone, folder_ + ".elsewhere");
      std::thread back([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        fs::rename(folder_ + ".elsewhere", folder_ + gone);
      });
      EXPECT_NO_THROW(folder.check_still_ours()) << gone;
      back.join();
    }
  }
  world_.barrier().wait_host();
}

TEST_F(RunFolderTest, AFolderThatIsGoneIsNamed) {
  limit_file_patience(std::chrono::milliseconds(0));
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
  limit_file_patience(std::chrono::hours(1));
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
