#include "trireme/io/run_branch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/whole_file.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme::testing {

// What reached the disk: the file, and what the file "file" in the folder "watched" held then.
std::vector<std::string> synced;

}  // namespace trireme::testing

extern "C" int fsync(int descriptor) {
  namespace fs = std::filesystem;
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
  if (path.string().find("watched") != std::string::npos) {
    const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    std::ostringstream text;
    text << std::ifstream(folder / "file").rdbuf();
    trireme::testing::synced.push_back(path.filename().string() + ": " + text.str());
  }
  return 0;  // what follows is no test of the disk
}

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

struct Killed {};

class RunBranchTest : public ::testing::Test {
 protected:
  void write(const std::string& folder, const Files& files) {
    for (const auto& [name, text] : files) {
      fs::create_directories(fs::path(folder + "/" + name).parent_path());
      std::ofstream(folder + "/" + name, std::ios::trunc) << text;
    }
  }
  // All files but the record of the branch.
  static Files files_in(const std::string& folder) {
    Files files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      files[entry.path().lexically_relative(folder).string()] = text.str();
    }
    files.erase("branch.json");
    return files;
  }
  std::string fresh_run() {
    const std::string folder = (scratch_.path() / std::to_string(++runs_)).string();
    write(folder, kRun);
    return folder;
  }

  const Files kRun = {{"config.ini", "[run]"},
                      {"metrics.jsonl", "steps 1 to 65"},
                      {"events.jsonl", "events"},
                      {"report.html", "page"},
                      {"ranks.json", "ranks"},
                      {"lease.generation", "6"},
                      {"notes.txt", "the user's own"},
                      {"superseded/2/metrics.jsonl", "older"},
                      {"tensorboard/events.out.tfevents.1", "steps 1 to 45"},
                      {"tensorboard/events.out.tfevents.2", "steps 46 to 65"},
                      {"checkpoints/best.h5", "the user's own"},
                      {"checkpoints/step-00000020.h5", "twenty"},
                      {"checkpoints/step-00000040.h5", "forty"},
                      {"checkpoints/step-00000060.h5", "sixty"}};
  testing::TemporaryFolder scratch_;
  int runs_ = 0;
};

// Not before the new text is on the disk does it take the place of the old one.
TEST_F(RunBranchTest, AWholeFileIsReplacedAndSynced) {
  const std::string folder = (scratch_.path() / "watched").string();
  write(folder, {{"file", "old"}});
  write_whole_file(folder + "/file", "new");
  EXPECT_EQ(testing::synced, (std::vector<std::string>{"file.partial: old", "watched: new"}));
  EXPECT_EQ(files_in(folder), (Files{{"file", "new"}}));
  fs::create_directories(folder + "/file.partial/x");
  EXPECT_NE(testing::message_of<RunFolderError>([&] {
              write_whole_file(folder + "/file", "newer");
            }).find("file.partial: cannot be opened: Is a directory"),
            std::string::npos);
}

TEST_F(RunBranchTest, SaysWhatIsNoAncestor) {
  std::vector<std::string> names;
  for (const auto& [name, text] : kRun) names.push_back(name);
  const auto told = [&](std::int64_t after_step) {
    std::string text;
    for (const SupersededFile& file : superseded_by(names, after_step)) {
      text += file.name + (file.copied ? " (copy)\n" : "\n");
    }
    return text;
  };
  EXPECT_EQ(told(0),
            "checkpoints/step-00000020.h5\ncheckpoints/step-00000040.h5\n"
            "checkpoints/step-00000060.h5\nconfig.ini (copy)\nmetrics.jsonl\nranks.json\n"
            "report.html\ntensorboard/events.out.tfevents.1\ntensorboard/events.out.tfevents.2\n");
  EXPECT_EQ(told(-1), told(0));
  EXPECT_EQ(told(40),
            "checkpoints/step-00000060.h5\nconfig.ini (copy)\nmetrics.jsonl (copy)\nranks.json\n"
            "report.html\ntensorboard/events.out.tfevents.1 (copy)\n"
            "tensorboard/events.out.tfevents.2 (copy)\n");
  // Imported weights are an ancestor of a start at step 0 that goes on from them, and of no other.
  names = {"checkpoints/step-00000000.h5", "metrics.jsonl"};
  EXPECT_EQ(told(0), "metrics.jsonl\n");
  EXPECT_EQ(told(-1), "checkpoints/step-00000000.h5\nmetrics.jsonl\n");
}

// A start is killed before each of its changes of the folder in turn; the next one completes the
// move, and nobody can tell the difference.
TEST_F(RunBranchTest, AnInterruptedMoveIsCompleted) {
  for (const std::int64_t after_step : {-1, 0, 40}) {
    RunBranch branch;
    branch.generation = 7;
    branch.jobs = {{"chain", "991", 0}};
    branch.unfinished = {7, after_step};
    Files expected;
    int changes = 0;
    for (int killed_before = 0; killed_before == 0 || killed_before <= changes; ++killed_before) {
      SCOPED_TRACE(killed_before);
      const std::string run = fresh_run();
      int change = 0;
      const auto before_each = [&] {
        if (++change == killed_before) throw Killed();
      };
      int told = 0;
      const auto tell = [&](const std::string& what) {
        ++told;
        const std::string checkpoints =
            after_step <= 0 ? "3 checkpoints (steps 20 to 60)" : "1 checkpoint (step 60)";
        EXPECT_EQ(what, checkpoints + ", with metrics, moved to " + run + "/superseded/7");
      };
      try {
        move_superseded(run, branch, before_each, tell);
        EXPECT_EQ(killed_before, 0);
        changes = change;
        expected = files_in(run);
        EXPECT_GT(changes, 8);
      } catch (const Killed&) {
        const auto left = read_branch(run);
        EXPECT_EQ(left.has_value() && left->unfinished.has_value(), killed_before > 1);
        if (killed_before > 1) {
          // Who looks on in between sees nothing of the branch that is left.
          for (const CheckpointFile& file : list_checkpoints(run + "/checkpoints")) {
            EXPECT_LE(file.step, after_step);
          }
        }
        // Also where the kill came in the middle of a copy.
        for (const auto& [name, text] : files_in(run)) {
          if (name.ends_with(".partial")) write(run, {{name, text.substr(0, 2)}});
        }
        const RunBranch again = left.value_or(branch);
        move_superseded(
            run, again, [] {}, tell);
      }
      EXPECT_GE(told, 1);
      EXPECT_EQ(files_in(run), expected);
      const auto recorded = read_branch(run);
      ASSERT_TRUE(recorded);
      EXPECT_FALSE(recorded->unfinished);
      EXPECT_EQ(recorded->generation, 7);
      EXPECT_TRUE(recorded->follows({"chain", "", 0}));
    }
    // Nothing is lost: every text is still there, and what is no part of a branch where it was.
    for (const auto& [name, text] : kRun) {
      const bool stays = expected.contains(name) && expected[name] == text;
      const bool moved =
          expected.contains("superseded/7/" + name) && expected["superseded/7/" + name] == text;
      EXPECT_TRUE(stays || moved) << name;
      EXPECT_EQ(stays, superseded_by({name}, after_step).empty() ||
                           superseded_by({name}, after_step)[0].copied)
          << name;
    }
  }
}

TEST_F(RunBranchTest, NothingIsOverwritten) {
  const std::string run = fresh_run();
  write(run, {{"superseded/7/checkpoints/step-00000060.h5", "another"}});
  RunBranch branch;
  branch.unfinished = {7, 40};
  EXPECT_NE(testing::message_of<RunFolderError>([&] {
              move_superseded(
                  run, branch, [] {}, [](const std::string&) {});
              // bad input: `train`: a file where one of another branch is to move | ... is to make
              // room for a new branch, but ... is there already; remove the one that you do not
              // need | 5
            }).find("superseded/7/checkpoints/step-00000060.h5 is there already"),
            std::string::npos);
  EXPECT_EQ(files_in(run)["superseded/7/checkpoints/step-00000060.h5"], "another");
  EXPECT_EQ(files_in(run)["checkpoints/step-00000060.h5"], "sixty");
}

TEST_F(RunBranchTest, ALaterStartOfAJobFollowsItsBranch) {
  RunBranch branch;
  branch.jobs = {{"", "17", 0}, {"chain", "991", 0}};
  EXPECT_TRUE(branch.follows({"chain", "992", 0}));  // the next job of a chain, or a retry
  EXPECT_TRUE(branch.follows({"", "991", 1}));       // requeued
  EXPECT_TRUE(branch.follows({"", "17", 3}));
  EXPECT_FALSE(branch.follows({"", "991", 0}));  // another command in the same allocation
  EXPECT_FALSE(branch.follows({"other", "992", 1}));
  EXPECT_FALSE(branch.follows({"", "", 1}));
  ::setenv("TRIREME_JOB", "chain", 1);
  ::setenv("SLURM_JOB_ID", "12", 1);
  ::setenv("SLURM_RESTART_COUNT", "2", 1);
  const JobStart start = job_of_this_start();
  EXPECT_EQ(start.name + "/" + start.slurm_job, "chain/12");
  EXPECT_EQ(start.restarts, 2);
  // Submitted in another job, whose script had given itself a name.
  ::setenv("TRIREME_JOB_SET", "chain", 1);
  ::setenv("TRIREME_JOB_OF", "11", 1);
  EXPECT_EQ(job_of_this_start().name, "");
  ::setenv("TRIREME_JOB_OF", "12", 1);
  EXPECT_EQ(job_of_this_start().name, "chain");
  ::unsetenv("TRIREME_JOB_SET");
  ::unsetenv("TRIREME_JOB_OF");
}

TEST_F(RunBranchTest, RecordsAndReadsBack) {
  const std::string run = fresh_run();
  EXPECT_FALSE(read_branch(run));  // of an earlier version
  RunBranch branch;
  branch.generation = 5;
  branch.origin = "superseded/2/checkpoints/step-00000040.h5";
  branch.jobs = {{"chain", "991", 0}};
  write_branch(run, branch);
  const auto read = read_branch(run);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->origin, branch.origin);
  EXPECT_EQ(read->jobs.at(0).slurm_job, "991");
  std::ofstream(run + "/branch.json") << "{\"generation\": 3";
  EXPECT_NE(testing::message_of<RunFolderError>([&] {
              read_branch(run);
              // bad input: `train`: a `branch.json` that is none | .../branch.json: not a record of
              // a branch; remove it, and the folder is one branch | 5
            }).find("branch.json: not a record"),
            std::string::npos);
}

TEST_F(RunBranchTest, ListsWhatIsSuperseded) {
  const std::string run = fresh_run();
  EXPECT_TRUE(list_superseded(run + "/superseded").empty());
  write(run, {{"superseded/11/checkpoints/step-00000060.h5", "12345"},
              {"superseded/11/config.ini", "678"},
              {"superseded/mine/notes", "the user's own"}});
  const std::vector<SupersededBranch> branches = list_superseded(run);
  ASSERT_EQ(branches.size(), 2u);
  EXPECT_EQ(branches[0].generation, 2);
  EXPECT_EQ(branches[1].generation, 11);
  EXPECT_EQ(branches[1].checkpoints, 1);
  EXPECT_EQ(branches[1].bytes, 8);
}

}  // namespace
}  // namespace trireme
