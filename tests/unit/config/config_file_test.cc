// Files of keys: what they mean beside flags, beside a run that they are of, and elsewhere.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/config/config.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::Arguments;
using testing::changes;
using testing::parsed;
using testing::refusal;

// A folder that goes with the test.
class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = (folder_ / "run.ini").string();
    std::ofstream(path) << text;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigFile, FlagsWinOverTheFileOverTheBase) {
  const std::string path = write("[run]\nsteps = 20\nseed = 5\n[model]\nlayers=12\n");
  Config base;
  base.run.seed = 9;
  base.log.every = 77;
  // Before or after --config makes no difference.
  for (const Arguments& arguments : {Arguments{"--run.steps", "30", "--config", path},
                                     Arguments{"--config", path, "--run.steps", "30"}}) {
    Arguments all = arguments;
    all.insert(all.end(), {"--data.train", "a.h5"});
    const Config config = parse_config(all, base).config;
    EXPECT_EQ(config.run.steps, 30);
    EXPECT_EQ(config.run.seed, 5);
    EXPECT_EQ(config.model.keys.at("layers"), "12");
    EXPECT_EQ(config.log.every, 77);
  }
}

TEST_F(ConfigFile, ErrorsNameFileAndLine) {
  const std::string path = write("[run]\nstep = 20\n");
  EXPECT_EQ(refusal({"--config", path}),
            path + ":2: unknown key run.step; did you mean run.steps?");
  EXPECT_EQ(refusal({"--config", write("[optim]\nlr = fast\n")}),
            path + ":2: optim.lr = fast: is not a number");
  const std::string missing = (folder_ / "no.ini").string();
  EXPECT_EQ(refusal({"--config", missing}),
            "--config " + missing + ": cannot be read: No such file or directory");
  EXPECT_EQ(refusal({"--config", folder_.string()}),
            "--config " + folder_.string() + ": cannot be read: Is a directory");
  EXPECT_EQ(refusal({"--config", write("")}), "no error");
}

// A folder that a start has left.
class ConfigOfARun : public ConfigFile {
 protected:
  void SetUp() override {
    ConfigFile::SetUp();
    std::filesystem::create_directories(folder_ / "run");
    std::ofstream(folder_ / "run/lease.generation") << "1\n";
    std::ofstream(own()) << kText;
  }
  std::string own() const { return (folder_ / "run/config.ini").string(); }
  std::string run() const { return (folder_ / "run").string(); }

  static constexpr const char* kText =
      "[run]\n# as it was\nfolder = elsewhere  # relative\n  resume = never\nsteps = 20\n"
      "accept_changes = false\nstart_from = a.h5\n";
};

TEST_F(ConfigOfARun, MeansThatRunAndLeavesOutWhatBelongsToAStart) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read_run_config(own()),
            "[run]\n# as it was\nfolder = " + run() +
                "\n#  resume = never\nsteps = 20\n#accept_changes = false\nstart_from = a.h5\n");
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "trireme: " + own() +
          ":4: run.resume = never was for an earlier start and is ignored: give it as a flag\n");
  const Config config = parsed({"--config", own()});
  EXPECT_EQ(config.run.folder, run());
  EXPECT_EQ(config.run.resume, "auto");
  EXPECT_EQ(config.run.start_from, "a.h5");
  // Flags count more.
  const Config other = parsed(
      {"--config", own(), "--run.folder", "new", "--run.resume", "never", "--run.accept_changes"});
  EXPECT_EQ(other.run.folder, "new");
  EXPECT_EQ(other.run.resume, "never");
  EXPECT_TRUE(other.run.accept_changes);
}

// An import writes the keys of the model alone.
TEST_F(ConfigOfARun, MeansThatRunAlsoWhereItDoesNotSay) {
  std::ofstream(own()) << "[model]\nlayers = 3";
  EXPECT_EQ(read_run_config(own()), "[model]\nlayers = 3\n[run]\nfolder = " + run() + "\n");
  EXPECT_EQ(parsed({"--config", own()}).run.folder, run());
  EXPECT_EQ(parsed({"--config", own(), "--run.folder", "new"}).run.folder, "new");
  std::filesystem::rename(run(), folder_ / "a #1");
  const std::string moved = (folder_ / "a #1").string();
  EXPECT_EQ(parsed({"--config", moved + "/config.ini"}).run.folder, moved);
}

// Earlier versions could tell MPI which algorithm to take.
TEST_F(ConfigOfARun, MayNameAlgorithmsOfMpi) {
  const std::string text =
      "[run]\nsteps = 20\n[comm]\norder = any\n"
      "algorithms = all_reduce=library-ring,all_gather=library,broadcast=library-tree\n";
  const std::string now = "all_reduce=library,all_gather=library,broadcast=library";
  std::ofstream(own()) << text;
  ::testing::internal::CaptureStderr();
  // bad input: `train --config RUN/config.ini`: an earlier version was told which algorithm MPI
  // takes, as in library-ring | RUN/config.ini:5: comm.algorithms = ...: MPI chooses its algorithm
  // itself now, so all_reduce=library takes its place | 0
  EXPECT_EQ(parsed({"--config", own()}).comm.algorithms, now);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "trireme: " + own() +
                ":5: comm.algorithms = all_reduce=library-ring,all_gather=library,broadcast="
                "library-tree: MPI chooses its algorithm itself now, so " +
                now + " takes its place\n");
  // A checkpoint holds the same text.
  Config with_library;
  with_library.run.steps = 20;
  with_library.comm.order = "any";
  with_library.comm.algorithms = now;
  EXPECT_EQ(
      changes(text, with_library),
      "comm.algorithms was all_reduce=library-ring,all_gather=library,broadcast=library-tree, "
      "is " +
          now);
  EXPECT_EQ(config_from_ini(text, "a checkpoint").comm.order, "any");
  // A file that is no run's asks for it today.
  EXPECT_NE(refusal({"--config", write(text)}).find("no such algorithm of all_reduce, there are"),
            std::string::npos);
}

TEST_F(ConfigOfARun, MovedCopiedAndLinked) {
  const auto folder_of = [](const std::filesystem::path& file) {
    return parsed({"--config", file.string()}).run.folder;
  };
  std::filesystem::copy(run(), folder_ / "copy");
  EXPECT_EQ(folder_of(folder_ / "copy/config.ini"), (folder_ / "copy").string());
  std::filesystem::create_directory_symlink(run(), folder_ / "link");
  EXPECT_EQ(folder_of(folder_ / "link/config.ini"), (folder_ / "link").string());
  std::filesystem::create_symlink(own(), folder_ / "mine.ini");
  EXPECT_EQ(folder_of(folder_ / "mine.ini"), std::filesystem::canonical(run()).string());
  // What a new branch has left behind is of the same run.
  std::filesystem::create_directory(folder_ / "run/superseded");
  std::filesystem::copy(folder_ / "copy", folder_ / "run/superseded/3");
  EXPECT_EQ(folder_of(folder_ / "run/superseded/3/config.ini"), run());
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(run());
  EXPECT_EQ(folder_of("config.ini"), ".");
  std::filesystem::current_path(before);
}

// A copy of the file, and a config.ini beside what is no run, are as they are written.
TEST_F(ConfigOfARun, OtherFilesAreTakenAsTheyAre) {
  std::filesystem::copy(own(), folder_ / "copy.ini");
  std::filesystem::copy(own(), folder_ / "config.ini");
  std::filesystem::create_directory(folder_ / "checkpoints");  // of something else
  for (const char* name : {"copy.ini", "config.ini"}) {
    EXPECT_EQ(read_run_config((folder_ / name).string()), kText);
  }
}

TEST_F(ConfigOfARun, WhatCannotBeReadBesideItIsAFault) {
  std::filesystem::remove(folder_ / "run/lease.generation");
  std::filesystem::create_symlink("lease.generation", folder_ / "run/lease.generation");
  try {
    read_run_config(own());
    FAIL();
  } catch (const RunFolderError& error) {
    EXPECT_EQ(error.what(),
              run() + "/lease.generation: cannot be read: Too many levels of symbolic links");
  }
}

TEST(Config, PathsBecomeAbsolute) {
  const std::string here = std::filesystem::current_path().string();
  Config config;
  config.run.folder = "runs/./a/";
  config.run.start_from = "../b.h5";
  config.data.train = {{"a.h5", 1}, {"/data/b.h5", 0.5}};
  config.data.validation = {{"v"}};
  config.grid.order = "order.txt";
  config.comm.network = "rates.json,/etc/slurm/topology.conf";
  config.nccl.tuner = "table.txt";
  config.schedule.file = "rates.txt";
  const Config absolute = with_absolute_paths(config);
  EXPECT_EQ(absolute.run.folder, here + "/runs/a");
  EXPECT_EQ(absolute.run.start_from, here + "/../b.h5");  // `here` may be a link's target
  EXPECT_EQ(absolute.data.train,
            (std::vector<WeightedPath>{{here + "/a.h5", 1}, {"/data/b.h5", 0.5}}));
  EXPECT_EQ(absolute.data.validation, std::vector<WeightedPath>{{here + "/v"}});
  EXPECT_EQ(absolute.grid.order, here + "/order.txt");
  EXPECT_EQ(absolute.comm.network, here + "/rates.json,/etc/slurm/topology.conf");
  EXPECT_EQ(absolute.nccl.tuner, here + "/table.txt");
  EXPECT_EQ(absolute.schedule.file, here + "/rates.txt");
  EXPECT_EQ(with_absolute_paths(absolute), absolute);
  // Words are no paths, and the same file is no change.
  Config words;
  words.run.folder = "/run";
  EXPECT_EQ(with_absolute_paths(words), words);
  EXPECT_EQ(changes(config_to_ini(absolute), config), "");
  EXPECT_EQ(changes(config_to_ini(config), config), "");
}

}  // namespace
}  // namespace trireme
