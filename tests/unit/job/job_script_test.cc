// What a job script says.
#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

#include "support/job_testing.h"

namespace trireme {
namespace {

using testing::Job;

TEST_F(Job, WritesOutTheRun) {
  config_.run.folder = "my run";
  config_.grid[Axis::kTensor] = 2;
  EXPECT_EQ(script("@NODES@ @TRIREME@\n  # @OPTIONS@\n# @STEP_FUNCTIONS@\n"),
            "2 '/opt/my tools/trireme'\n"
            "  '--run.folder=my run'\n  --run.threads=1\n  --model.preset=test-gpt\n"
            "  --data.train=train.h5\n  --batch.global=8\n  --batch.micro=2\n"
            "  --grid.pipeline=1\n  --grid.tensor=2\nmpi=pmi2\n");
}

TEST_F(Job, FoldersAndValuesAreText) {
  const char* text = "@NODES@ folder=@RUN_FOLDER@\n  # @OPTIONS@\n";
  for (const auto& [folder, word] :
       std::initializer_list<std::pair<const char*, const char*>>{{"-x", "./-x"},
                                                                  {"lr=0.1", "./lr=0.1"},
                                                                  {"/a/lr=1", "/a/lr=1"},
                                                                  {"a-b", "a-b"},
                                                                  {"a\nb's", "$'a\\012b\\'s'"}}) {
    config_.run.folder = folder;
    EXPECT_EQ(script(text).find("2 folder=" + std::string(word) + "\n"), 0) << script(text);
  }
  config_.data.train = {{"a\nb.h5"}};
  EXPECT_NE(script(text).find("\n  $'--data.train=a\\012b.h5'\n"), std::string::npos)
      << script(text);
}

TEST_F(Job, WritesOutAnIntervalThatIsLeftToTheRun) {
  config_.checkpoint.every.reset();
  config_.checkpoint.mtbf = 24;
  const std::string text = script("@NODES@\n# @OPTIONS@\n");
  EXPECT_NE(text.find("--checkpoint.every=auto\n"), std::string::npos) << text;
}

// A start on fewer nodes may then take the stages that keep the bits.
TEST_F(Job, LeavesStagesOpenWhereTheyChangeNoBit) {
  const auto grid_flags = [&] {
    std::string flags;
    std::istringstream lines(script("@NODES@\n# @OPTIONS@\n"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("--grid.")) flags += line + " ";
    }
    return flags;
  };
  EXPECT_EQ(grid_flags(), "--grid.pipeline=1 --grid.tensor=1 ");
  config_.run.same_bits = true;
  EXPECT_EQ(grid_flags(), "--grid.tensor=1 ");
  config_.grid[Axis::kPipeline] = 2;
  EXPECT_EQ(grid_flags(), "--grid.pipeline=2 --grid.tensor=1 ");
}

// What a start on fewer nodes must not do to a run whose replicas compute micro-batches together.
TEST_F(Job, WritesOutTheMicroBatchesThatReplicasMustDivide) {
  const std::string text = "@NODES@ @MICRO_BATCHES@\n";
  EXPECT_EQ(script(text), "2 0\n");  // a model without batch norms
  config_.model = {"mobilenet_v2", {{"preset", "mobilenet_v2-cifar"}}};
  EXPECT_EQ(script(text), "2 0\n");
  config_.model.keys["batch_norm"] = "replica";
  EXPECT_EQ(script(text), "2 0\n");
  config_.model.keys["batch_norm"] = "sync";
  EXPECT_EQ(script(text), "2 4\n");
  // Several points get a number that suits all of them.
  const auto of_sweep = [&](const std::string& sweep) {
    request_.sweep = sweep;
    const std::string all = script(text + "# @POINTS@\n");
    return all.substr(0, all.find('\n'));
  };
  EXPECT_EQ(of_sweep("batch.global=16,24"), "2 4");
  EXPECT_EQ(of_sweep("batch.global=16,48"), "2 8");
  config_.model.keys.erase("batch_norm");
  EXPECT_EQ(of_sweep("model.batch_norm=replica,sync batch.global=16"), "2 8");
}

TEST_F(Job, WritesOutTheSite) {
  site_ = site_from_ini(
      "[slurm]\npartition = long\nconstraint = a&b\nextra = --exclusive --mail-type=END\n"
      "[environment]\nmodules = gcc/12 mpich\nvariables = UCX_TLS=tcp,self A=$x\n"
      "setup = \"ulimit -s unlimited\\nsource my.sh\"\n",
      "site.ini");
  std::string text = script("@NODES@\n# @SITE_SBATCH@\n# @SITE_SETUP@\n");
  // What keeps variables of other allocations out and what loads a module is left out here.
  const std::size_t first = text.find("# What another"), end = text.find("load_module gcc");
  text.erase(first, end - first);
  EXPECT_EQ(text,
            "2\n#SBATCH --partition=long\n#SBATCH --constraint=a&b\n#SBATCH --exclusive\n"
            "#SBATCH --mail-type=END\nload_module gcc/12\nload_module mpich\n"
            "export UCX_TLS=tcp,self\nexport A='$x'\nulimit -s unlimited\nsource my.sh\n");
}

TEST_F(Job, StepsTakeNoOptionsOfAnotherAllocation) {
  const char* text = "#SBATCH --mem=@MEMORY@\n# @SITE_SBATCH@\n# @SITE_SETUP@\n@NODES@\n";
  const std::string setup = script(text);
  for (const char* name : {"SLURM_EXPORT_ENV", "SLURM_MEM_PER_CPU", "SLURM_TRES_PER_TASK",
                           "SLURM_JOB_END_TIME", "\"${!SLURM_CPU_BIND@}\""}) {
    EXPECT_NE(setup.find(name), std::string::npos) << name << "\n" << setup;
  }
  // What the job has asked for is its own.
  EXPECT_EQ(setup.find("SLURM_MEM_PER_NODE"), std::string::npos) << setup;
  request_.sbatch = "--mem-per-cpu=1G --hint=nomultithread";
  const std::string other = script(text);
  EXPECT_EQ(other.find("SLURM_HINT"), std::string::npos) << other;
  EXPECT_EQ(other.find("SLURM_MEM_PER_CPU"), std::string::npos) << other;
  EXPECT_NE(other.find("SLURM_MEM_PER_NODE"), std::string::npos) << other;
}

TEST_F(Job, WritesOutOptionsOfSrun) {
  EXPECT_EQ(script("@NODES@ srun @SRUN_OPTIONS@ x\n"), "2 srun  x\n");
  site_ = site_from_ini("[slurm]\nsrun = --constraint=a|b --label\n", "site.ini");
  request_.srun = "--cpu-bind=none";
  EXPECT_EQ(script("@NODES@ srun @SRUN_OPTIONS@ x\n"),
            "2 srun '--constraint=a|b' --label --cpu-bind=none x\n");
}

TEST_F(Job, WritesOutASweep) {
  request_.sweep = "run.seed=1,2 data.train=a.h5,b.h5";
  const std::string text = script("@NODES@ @LAST_POINT@ @LOG@\n# @POINTS@\n# @OPTIONS@\n");
  EXPECT_NE(text.find("2 3 %x-%A_%a.out\n"
                      "0) point=(--run.seed=1 --data.train=a.h5 --run.folder=run/point-0) ;;\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("3) point=(--run.seed=2 --data.train=b.h5 --run.folder=run/point-3) ;;\n"),
            std::string::npos)
      << text;
  // A flag may be given once.
  EXPECT_EQ(text.find("\n--data.train"), std::string::npos) << text;
  // Aliases are written as the keys that they stand for, and paths as this host expands them.
  ::setenv("HOME", "/home/ada", 1);
  request_.sweep = "threads=1,2 run.start_from=~/a,b optim.lr=1e-3";
  EXPECT_NE(script("@NODES@\n# @POINTS@\n")
                .find("0) point=(--run.threads=1 --run.start_from=/home/ada/a --optim.lr=1e-3 "
                      "--run.folder=run/point-0) ;;\n"),
            std::string::npos)
      << script("@NODES@\n# @POINTS@\n");
}

TEST_F(Job, WritesOutAScalingStudy) {
  config_.batch.global = 12;
  request_.nodes = 3;
  const std::string text = script("@NODES@ (@NODE_COUNTS@) @RUN_FOLDER@\n# @OPTIONS@\n");
  EXPECT_TRUE(text.starts_with("3 (1 2 3) run\n")) << text;
  EXPECT_EQ(text.find("--grid"), std::string::npos) << text;
}

TEST_F(Job, AskingForGpusItComputesThere) {
  site_.modules = "trireme";
  const std::string text = "@NODES@ @GRES@\n# @OPTIONS@\n";
  EXPECT_NE(script(text).find("\n--run.device=cuda\n"), std::string::npos) << script(text);
  config_.run.device = "cpu";
  EXPECT_NE(script(text).find("\n--run.device=cpu\n"), std::string::npos) << script(text);
  config_.run.device = "auto";
  EXPECT_EQ(script("@NODES@\n# @OPTIONS@\n").find("--run.device=cuda"), std::string::npos);
}

}  // namespace
}  // namespace trireme
