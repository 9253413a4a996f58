#include "trireme/job/job_script.h"

#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/tensor/cuda.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using testing::message_of;

TEST(FillTemplate, ReplacesWordsAndBlocks) {
  const Placeholders values = {{"NODES", "4"}, {"GRACE", "120"}, {"LINES", "a\n\nb @NODES@\n"}};
  EXPECT_EQ(fill_template("#SBATCH --nodes=@NODES@\nUSR1@@GRACE@ a@b @ @nodes@\n", "t", values),
            "#SBATCH --nodes=4\nUSR1@120 a@b @ @nodes@\n");
  // A value is not searched again; its lines are indented like the placeholder.
  EXPECT_EQ(fill_template("x=(\n  # @LINES@\n)\n", "t", values), "x=(\n  a\n\n  b @NODES@\n)\n");
  EXPECT_EQ(fill_template("# @LINES@ more", "t", {{"LINES", "a"}}), "# a more\n");
  EXPECT_EQ(fill_template("# @LINES@\nend", "t", {{"LINES", ""}}), "end\n");
}

TEST(FillTemplate, RefusesWhatItDoesNotKnow) {
  const Placeholders values = {{"NODES", "4"}, {"POINTS", std::nullopt}};
  // bad input: `job`: a placeholder that is unknown, or that nothing is known for | own:1: unknown
  // placeholder @NODE@; did you mean @NODES@? | 2
  EXPECT_EQ(message_of([&] { fill_template("\n@NODE@", "chain", values); }),
            "chain:2: unknown placeholder @NODE@; did you mean @NODES@?");
  EXPECT_EQ(message_of([&] { fill_template("# @QUEUE@", "chain", values); }),
            "chain:1: unknown placeholder @QUEUE@; there are NODES, POINTS");
  EXPECT_EQ(message_of([&] { fill_template("# @POINTS@", "chain", values); }),
            "chain:1: nothing is known to put in the place of @POINTS@");
}

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_word("--optim.lr=1e-3"), "--optim.lr=1e-3");
  EXPECT_EQ(shell_word("--run.folder=my run"), "'--run.folder=my run'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("a[1]*"), "'a[1]*'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ReadMib, TakesUnits) {
  EXPECT_EQ(read_mib("1500", "--memory"), 1500);
  EXPECT_EQ(read_mib("1500M", "--memory"), 1500);
  EXPECT_EQ(read_mib("2G", "--memory"), 2048);
  EXPECT_EQ(read_mib("1T", "--memory"), 1 << 20);
  for (const char* text : {"2g", "2GB", "2GiB", "2 GiB", "2.0G"}) {
    EXPECT_EQ(read_mib(text, "--memory"), 2048) << text;
  }
  for (const char* text : {"", "0", "-1", "512K", "2XB", "G", "99999999999999999999"}) {
    // bad input: `job`: `--memory` that is none, or more than a node has | --memory 2XB: expected
    // an amount of memory, as in 1500M, 64G or 1T | 2
    EXPECT_EQ(
        message_of([&] { read_mib(text, "--memory"); }),
        "--memory " + std::string(text) + ": expected an amount of memory, as in 1500M, 64G or 1T");
  }
}

TEST(SiteFile, RefusesWhatCannotStandInAScript) {
  // bad input: `job`: an unknown key of the site file, a value that cannot stand in a script |
  // site.ini:2: unknown key slurm.partitoin; did you mean slurm.partition? | 2
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\npartitoin = long\n", "site.ini"); }),
            "site.ini:2: unknown key slurm.partitoin; did you mean slurm.partition?");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\naccount = a; b\n", "site.ini"); }),
            "site.ini: slurm.account = a; b: the character ';' cannot stand there; letters, digits "
            "and _-+=.,:/%@[] can");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\nextra = \"--x\\n--y\"\n", "site.ini"); }),
            "site.ini: slurm.extra = --x\\n--y: the character '\\n' cannot stand there; letters, "
            "digits and _-+=.,:/%@[] can");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\nmemory = 0\n", "site.ini"); }),
            "site.ini:2: slurm.memory = 0: must be at least 1 and at most 1099511627776");
}

class Job : public ::testing::Test {
 protected:
  Job() {
    config_.model.keys["preset"] = "test-gpt";
    config_.data.train = {{"train.h5"}};
    config_.batch.global = 8;
    config_.batch.micro = 2;
    request_.nodes = 2;
    request_.tasks_per_node = 2;
  }

  JobPlan plan(const std::string& text = "@NODES@") const {
    return plan_job({"chain", text}, config_, request_,
                    {node_mib_, gpu_mib_, loads_program(site_), groups_},
                    [](const Config&) { return models::DataFacts{.vocabulary = 67}; });
  }
  std::string refusal(const std::string& text = "@NODES@") const {
    return message_of([&] { plan(text); });
  }
  std::string script(const std::string& text) const {
    const JobTemplate job_template{"chain", text};
    return job_script(job_template, config_, request_, site_, plan(text),
                      {"/opt/my tools/trireme", "mpi=@MPI@\n"});
  }

  Config config_;
  JobRequest request_;
  Site site_;
  std::optional<std::int64_t> node_mib_ = 4000, gpu_mib_;
  std::vector<NodeGroup> groups_;
};

TEST_F(Job, TakesWhatFits) {
  EXPECT_EQ(refusal(), "no error");
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{4, 1, 1}));
  // It asks for twice what two ranks need, at most what the node has.
  EXPECT_GT(plan().memory_mib, 2 * 2 * 128);
  EXPECT_LT(plan().memory_mib, 2 * 2 * 140);
  node_mib_ = 300;
  EXPECT_EQ(plan().memory_mib, 300);
  request_.memory = "290M";
  EXPECT_EQ(plan().memory_mib, 290);
}

TEST_F(Job, RefusesGridsThatTheTasksDoNotFill) {
  config_.grid[Axis::kTensor] = 3;
  // bad input: `job`: a grid that nodes x tasks do not fill | 2 nodes x 2 tasks: a grid with
  // tensor=3 needs a multiple of 3 ranks, and there are 4: 3 or 6 would fit; 3 nodes would do |
  // 2
  EXPECT_EQ(refusal(),
            "2 nodes x 2 tasks: a grid with tensor=3 needs a multiple of 3 ranks, and there are "
            "4: 3 or 6 would fit; 3 nodes would do");
  request_.nodes = 5;
  EXPECT_EQ(refusal(),
            "5 nodes x 2 tasks: a grid with tensor=3 needs a multiple of 3 ranks, and there are "
            "10: 9 or 12 would fit; 3 or 6 nodes would do");
  config_.grid.ask_for({2, 1, 1});
  request_.nodes = 4;
  EXPECT_EQ(refusal(),
            "4 nodes x 2 tasks: grid 2 x 1 x 1 needs 2 ranks, and there are 8: take 2, or set "
            "grid.data=8; 1 node would do");
  config_.grid = {};
  config_.grid[Axis::kTensor] = 8;
  request_.nodes = 4;
  request_.tasks_per_node = 4;
  config_.model.keys["heads"] = "4";
  EXPECT_EQ(refusal(),
            "4 heads cannot be split over 8 tensor ranks: grid.tensor must divide model.heads");
}

// bad input: `job`: heads, stages, batches, vocabulary or device that cannot be | as `train` | 2
TEST_F(Job, RefusesModelsAndBatchesThatDoNotFit) {
  request_.nodes = 8;
  EXPECT_EQ(refusal(),
            "8 nodes x 2 tasks: 4 micro-batches a step (batch.global 8 / batch.micro 2) are fewer "
            "than 16 data replicas: each needs one at least");
  config_.grid[Axis::kPipeline] = 16;
  EXPECT_EQ(refusal(),
            "more stages than blocks: grid.pipeline is 16, but the model has 9 blocks; "
            "grid.pipeline can be 1 to 9");
  config_.grid[Axis::kPipeline] = 1;
  config_.batch.global = 9;
  EXPECT_EQ(
      refusal(),
      "batch.global is 9, which is no multiple of batch.micro, 2: set batch.global to 8 or 10, or "
      "batch.micro to 1");
  config_.batch.global = 8;
  config_.data.train.clear();
  EXPECT_EQ(refusal(), "data.train is missing: name what to train on, as in --data.train train.h5");
  config_.data.train = {{"train.h5"}};
  config_.model.keys["vocabulary"] = "100";
  EXPECT_EQ(refusal(),
            "model.vocabulary is 100, but the data has 67 tokens: leave it out, and it follows "
            "the data");
}

// The login node needs none itself.
TEST_F(Job, GpusTakeAProgramWithCuda) {
  const bool has_cuda = !cuda::build_info().toolkit.empty();
  // bad input: `job`: a template for GPUs, by a program without CUDA | template several_nodes_gpu
  // asks for GPUs, but this program was built without CUDA: ... | 2
  EXPECT_EQ(refusal("@NODES@ @GRES@")
                    .find("template chain asks for GPUs, but this program was "
                          "built without CUDA: write the job with one that has") == 0,
            !has_cuda);
  config_.run.device = "cpu";
  EXPECT_EQ(refusal("@NODES@ @GRES@"), "no error");
  config_.run.device = "auto";
  site_.modules = "gcc trireme/1.0-cuda";
  EXPECT_EQ(refusal("@NODES@ @GRES@"), "no error");
  EXPECT_NE(script("@NODES@ @GRES@ @TRIREME@ train").find(" trireme train"), std::string::npos);
  site_.modules.clear();
  config_.run.device = "cuda";
  EXPECT_EQ(refusal(), cuda::build_info().toolkit.empty()
                           ? "run.device is cuda, but this program was built without CUDA: use cpu "
                             "or auto"
                           : "no error");
}

TEST_F(Job, TheDataMayBeOutOfSight) {
  const auto vocabulary = [&] {
    return models::resolve(config_.model, facts_to_check(config_)).data.vocabulary;
  };
  config_.data.train = {{"/no/such/folder/train.h5"}};
  config_.model.keys.erase("vocabulary");
  config_.model.keys.erase("preset");
  EXPECT_EQ(vocabulary(), 50257);
  EXPECT_NO_THROW(plan_job({"own", "@NODES@"}, config_, request_, {}, facts_to_check));
  config_.model.keys["vocabulary"] = "100";
  EXPECT_EQ(vocabulary(), 100);
  config_.model.keys.erase("vocabulary");
  config_.model.keys["preset"] = "llama-160m";
  EXPECT_EQ(vocabulary(), 32000);
}

TEST_F(Job, RefusesMoreMemoryThanANodeHas) {
  node_mib_ = 200;
  // bad input: `job`: ranks that need more memory than a node has | memory: 2 ranks a node need
  // about 260 MiB (...), a node has 200: fewer tasks a node, ... | 2
  // bad input: `train`, `job`: ranks that fit by no setting | memory: ...: fewer tasks a node, or
  // more ranks or a smaller model, since no recompute.mode, batch.micro, shard.stage,
  // grid.tensor and grid.pipeline fit | 2
  // What computes products on this processor decides the workspace.
  const std::regex sizes("26[01] MiB \\(13[01] each");
  EXPECT_EQ(std::regex_replace(refusal(), sizes, "260 MiB (130 each"),
            "memory: 2 ranks a node need about 260 MiB (130 each: 1 parameters, 1 gradients, 1 "
            "optimizer, 1 activations, 1 workspace, 128 program), a node has 200: fewer tasks a "
            "node, or more ranks or a smaller model, since no recompute.mode, batch.micro, "
            "shard.stage, grid.tensor and grid.pipeline fit");
  request_.memory = "1G";
  EXPECT_EQ(refusal(), "--job.memory 1G: a node has 200 MiB");
  node_mib_.reset();
  EXPECT_EQ(refusal(), "no error");
  config_.model.keys["preset"] = "gpt2-1.5b";
  EXPECT_NE(refusal().find("a node has 1024:"), std::string::npos) << refusal();
  request_.memory.reset();
  EXPECT_EQ(refusal(), "no error");  // nothing is known of the nodes
}

// Where there is a GPU, the host holds no model.
TEST_F(Job, AsksForTheHostsPartOfTheMemory) {
  site_.modules = "trireme";
  node_mib_.reset();
  config_.model.keys["preset"] = "gpt2-1.5b";
  request_.nodes = 1;
  const std::int64_t on_cpus = plan().memory_mib, beside_gpus = plan("@NODES@ @GRES@").memory_mib;
  EXPECT_GT(on_cpus, 60 * 1024);
  EXPECT_GT(beside_gpus, 2 * 2 * 2048);
  EXPECT_LE(beside_gpus, 2 * 2 * 6 * 1024);
}

TEST_F(Job, AsksForMemoryAsTheSiteDoes) {
  const char* text = "#SBATCH --mem=@MEMORY@\n# @SITE_SBATCH@\n@NODES@\n";
  const auto asked = [&] {
    return fmt::format("{}", fmt::join(sbatch_options(script(text)), " "));
  };
  EXPECT_TRUE(asked().starts_with("--mem=")) << asked();
  site_.asks_memory = false;
  EXPECT_EQ(asked(), "");
  site_.asks_memory = true;
  site_.extra = "--mem-per-cpu=2G --exclusive";
  EXPECT_EQ(asked(), "--mem-per-cpu=2G --exclusive");
  request_.memory = "3G";
  EXPECT_EQ(asked(), "--mem=3072M --exclusive");
  request_.memory.reset();
  site_.extra.clear();
  request_.sbatch = "--mem-per-gpu=8G";
  EXPECT_EQ(asked(), "--mem-per-gpu=8G");
}

TEST_F(Job, TakesAsManyNodesAsThereAre) {
  config_.batch.global = 16;
  request_.nodes = {2, 4};
  EXPECT_EQ(script("#SBATCH --nodes=@NODES@\n@FEWEST_NODES@ @MODEL_RANKS@\n"),
            "#SBATCH --nodes=2-4\n1 1\n");
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{8, 1, 1}));
  groups_ = {{"batch", 3, 8, 4000}};
  EXPECT_EQ(refusal(), "no error");
  groups_ = {{"batch", 1, 8, 4000}};
  EXPECT_EQ(refusal(), "--nodes 2-4: partition batch has 1 node");
  groups_.clear();
  // bad input: `job`: a range of nodes where only one number will do | --nodes 2-4: template
  // scaling measures fixed numbers of nodes: ... | 2
  EXPECT_EQ(refusal("@NODES@ @NODE_COUNTS@"),
            "--nodes 2-4: template chain measures fixed numbers of nodes: --nodes 4, and --counts "
            "says which of them");
  config_.grid[kDataAxes] = 4;
  EXPECT_EQ(refusal(),
            "--nodes 2-4: 2 nodes would be a grid of 4 x 1 x 1 (data x pipeline x tensor), and 4 "
            "nodes one of 4 x 2 x 1 (data x pipeline x tensor): only the data dimension can follow "
            "the nodes, so leave grid.data out");
  config_.grid = {};
  config_.grid[Axis::kTensor] = 2;
  config_.grid[Axis::kPipeline] = 3;  // six ranks, of eight, or six, or four
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{1, 3, 2}));
  config_.grid[Axis::kPipeline] = 5;
  EXPECT_NE(refusal().find("4 nodes x 2 tasks: a grid with pipeline=5 and tensor=2 needs"),
            std::string::npos);
  request_.nodes = {100, static_cast<int>(limits::kRanks)};
  request_.tasks_per_node = 65536;
  EXPECT_NE(refusal().find(" ranks are too many"), std::string::npos) << refusal();
  NodeRange range;
  EXPECT_EQ(read_value("3-12", range, between(1, 99)), "");
  EXPECT_EQ(write_value(range), "3-12");
  EXPECT_NE(read_value("4-2", range, between(1, 99)), "");
  EXPECT_NE(read_value("0-2", range, between(1, 99)), "");
  EXPECT_NE(read_value("2-", range, between(1, 99)), "");
  EXPECT_NE(read_value("-2", range, between(1, 99)), "");
}

TEST(SbatchOptions, AreThoseThatSbatchReads) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(sbatch_options("#!/bin/bash\n#SBATCH --time=5 -N 2 # two\n# a comment\n\n"
                           "#SBATCH --comment=\"a b\" --output='x y'\\ z\n  ulimit -c 0\n"
                           "#SBATCH --mem=1\n"),
            Words({"--time=5", "-N", "2", "--comment=a b", "--output=x y z"}));
  EXPECT_EQ(sbatch_options("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2"), Words({"-N1", ":", "-N2"}));
  EXPECT_EQ(sbatch_options(""), Words());
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

TEST_F(Job, RefusesMoreMemoryThanAGpuHas) {
  const char* text = "@NODES@ @GRES@";
  site_.modules = "trireme/gpu";  // this program may have no CUDA
  node_mib_ = 200;                // of the host, where little lies then
  EXPECT_EQ(refusal(text), "no error");
  gpu_mib_ = 1;
  EXPECT_EQ(refusal(text),
            "memory: a rank needs about 34 MiB of its GPU (1 parameters, 1 gradients, 1 optimizer, "
            "1 activations, 33 workspace), which has 1: more ranks or a "
            "smaller model, since no recompute.mode, batch.micro, shard.stage, grid.tensor and "
            "grid.pipeline fit");
  gpu_mib_ = 100;
  EXPECT_EQ(refusal(text), "no error");
  config_.run.device = "cpu";
  EXPECT_NE(refusal(text).find("a node has 200:"), std::string::npos) << refusal(text);
}

// The first of recomputation, a smaller micro-batch, and more ranks for a model that fits.
TEST_F(Job, NamesTheNearestSettingThatFits) {
  config_.model.keys["preset"] = "gpt2-124m";
  config_.batch.micro = 8;
  config_.batch.global = 32;
  request_.tasks_per_node = 4;
  request_.nodes = 1;
  const auto nearest = [&](std::int64_t mib) {
    node_mib_ = mib;
    const std::string text = refusal();
    const std::string before = "fewer tasks a node, or ";
    const std::size_t at = text.find(before);
    return at == std::string::npos ? text : text.substr(at + before.size());
  };
  const auto needs = [&](const char* mode, int micro, int tensor, int pipeline, int stage = 0) {
    const Config given = config_;
    config_.recompute.mode = mode;
    config_.batch.micro = micro;
    config_.grid[Axis::kTensor] = tensor;
    config_.grid[Axis::kPipeline] = pipeline;
    config_.shard.stage = stage;
    node_mib_.reset();
    const double bytes = plan().points.at(0).memory.total + kProcessBytes;
    config_ = given;
    return mib_of(4 * bytes);
  };
  // bad input: `train`, `job`: ranks that do not fit, but would by another setting | memory: ...:
  // fewer tasks a node, or --recompute.mode full --batch.micro 2, which fits | 2
  EXPECT_EQ(nearest(needs("none", 8, 1, 1)), "no error");
  EXPECT_EQ(nearest(needs("none", 8, 1, 1) - 1), "--recompute.mode selective, which fits");
  EXPECT_EQ(nearest(needs("selective", 8, 1, 1) - 1), "--recompute.mode full, which fits");
  EXPECT_EQ(nearest(needs("full", 8, 1, 1)), "--recompute.mode full, which fits");
  EXPECT_EQ(nearest(needs("full", 8, 1, 1) - 1),
            "--recompute.mode full --batch.micro 4, which fits");
  EXPECT_EQ(nearest(needs("full", 1, 1, 1) - 1),
            "--recompute.mode full --batch.micro 4 --shard.stage 1, which fits");
  config_.shard.stage = 1;
  config_.shard.group = 2;
  EXPECT_EQ(nearest(needs("full", 1, 1, 1, 1) - 1),
            "--recompute.mode full --batch.micro 2 --shard.group 4, which fits");
  config_.shard = {};
  EXPECT_EQ(nearest(needs("full", 1, 4, 1)),
            "--recompute.mode full --batch.micro 1 --grid.tensor 4, which fits");
  const std::int64_t most_sharded = needs("full", 1, 1, 1, 3);
  const auto names = [&](const char* grid) {
    return nearest(most_sharded - 1).find(grid) != std::string::npos;
  };
  EXPECT_TRUE(names(" --grid.tensor 2, which fits")) << nearest(most_sharded - 1);
  config_.grid[kDataAxes] = 4;
  EXPECT_TRUE(names(" --grid.data 2 --grid.tensor 2, which fits")) << nearest(most_sharded - 1);
}

// Each micro-batch is a run there, and more of them take more shards of sums.
TEST_F(Job, ASmallerMicroBatchMayNeedMoreWhereGradientsAreDivided) {
  config_.model.keys["preset"] = "gpt2-124m";
  config_.model.keys["context"] = "16";
  config_.batch.global = 32;
  config_.shard.stage = 2;
  request_.tasks_per_node = 4;
  request_.nodes = 1;
  const auto needs = [&](const char* mode, int micro) {
    config_.recompute.mode = mode;
    config_.batch.micro = micro;
    node_mib_.reset();
    return mib_of(4 * (plan().points.at(0).memory.total + kProcessBytes));
  };
  const std::int64_t smallest = needs("full", 1), largest = needs("full", 8);
  ASSERT_GT(smallest, largest);
  ASSERT_GT(needs("none", 8), largest);
  node_mib_ = largest;
  const std::string text = refusal();
  EXPECT_NE(text.find(", or --recompute.mode full, which fits"), std::string::npos) << text;
}

TEST_F(Job, RefusesMoreThanAPartitionHas) {
  groups_ = {{"batch", 3, 8, 4000}, {"batch", 1, 16, 4000}};
  config_.batch.global = 24;
  request_.nodes = 4;
  request_.cpus_per_task = 4;
  EXPECT_EQ(refusal(), "no error");
  request_.nodes = 5;
  // bad input: `job`: more nodes or CPUs than the partition has | --nodes 3: partition long has 2
  // nodes | 2
  EXPECT_EQ(refusal(), "--nodes 5: partition batch has 4 nodes");
  request_.nodes = 2;
  request_.cpus_per_task = 5;
  EXPECT_EQ(refusal(), "--nodes 2: partition batch has 1 node of 10 CPUs or more");
  request_.cpus_per_task = 9;
  EXPECT_EQ(refusal(),
            "2 tasks of 9 cores need 18 CPUs on a node, but no node of partition batch has more "
            "than 16: fewer --tasks-per-node or --cpus-per-task");
  groups_.push_back({"big", 2, 64, 4000});  // the job may go to either
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Job, RefusesATimeLimitThatLeavesNoTime) {
  const char* chain = "@NODES@ @GRACE@";
  request_.time = "2";
  // bad input: `job`: a time limit that is none, or not above `--grace` and `checkpoint.margin` |
  // --grace 120: the job has only 120 seconds (--time 2), and would be stopped as it starts: ... |
  // 2
  EXPECT_EQ(refusal(chain),
            "--grace 120: the job has only 120 seconds (--time 2), and would be stopped as it "
            "starts: more --time, or less --grace");
  EXPECT_EQ(refusal(), "no error");  // nothing is signalled there
  request_.time = "0:10";
  EXPECT_EQ(refusal(),
            "checkpoint.margin 10: the job has only 10 seconds (--time 0:10), and would make one "
            "step each time it starts: more --time, or less checkpoint.margin");
  request_.time = "infinite";
  EXPECT_EQ(refusal(chain), "no error");
  request_.grace = 70000;
  EXPECT_EQ(refusal(chain), "--grace 70000: Slurm takes at most 65535 seconds");
  request_.time = "1h";
  EXPECT_EQ(refusal(),
            "--time 1h: expected minutes, minutes:seconds, hours:minutes:seconds, days-hours or "
            "days-hours:minutes, as in 90 or 1-12:00");
}

TEST(ReadTimeLimit, TakesWhatSbatchTakes) {
  const auto seconds = [](const std::string& text) {
    return read_time_limit(text, "--time").value_or(-1);
  };
  EXPECT_EQ(seconds("90"), 5400);
  EXPECT_EQ(seconds("1:30"), 90);
  EXPECT_EQ(seconds("02:00:05"), 7205);
  EXPECT_EQ(seconds("1-12"), 129600);
  EXPECT_EQ(seconds("1-12:30"), 131400);
  EXPECT_EQ(seconds("1-12:30:10"), 131410);
  for (const char* none : {"0", "00:00:00", "UNLIMITED", "infinite"}) EXPECT_EQ(seconds(none), -1);
  for (const char* bad :
       {"", "1:2:3:4", "-1", "1-", "1-2:3:4:5", "1-1-1", "9999999999", "1:", "x"}) {
    EXPECT_NE(message_of([&] { seconds(bad); }).find("expected minutes"), std::string::npos) << bad;
  }
}

TEST_F(Job, RemarksWhatTheUserShouldKnow) {
  // bad input: `job`: data in a folder that is not here; `grid.data` that leaves ranks to the
  // pipeline | a line that says so | 0
  const auto remarks = [&] { return job_remarks(plan()); };
  config_.data.train = {{"/dev/train.h5"}};
  // bad input: `job`: data that is missing from a folder that is here | data.train data/more.h5:
  // there is no such file in ...; `trireme prepare` makes it | 3
  EXPECT_EQ(message_of<DataError>(remarks),
            "data.train /dev/train.h5: there is no such file in /dev; `trireme prepare` makes it");
  config_.data.train = {{"/no/such/train.h5"}};
  config_.data.validation = {{"/no/such/more.h5"}};
  EXPECT_EQ(remarks(), std::vector<std::string>(
                           {"data.train /no/such/train.h5: there is no folder /no/such on this "
                            "host; the nodes must see it",
                            "data.validation /no/such/more.h5: there is no folder /no/such on this "
                            "host; the nodes must see it"}));
  config_.data.train = {{"/dev/null"}};
  config_.data.validation.clear();
  EXPECT_EQ(remarks(), std::vector<std::string>());
  config_.grid[kDataAxes] = 2;
  EXPECT_EQ(remarks(), std::vector<std::string>(
                           {"grid.data is 2, so the 4 ranks are used as a grid of 2 x 2 x "
                            "1 (data x pipeline x tensor): grid.pipeline became 2; "
                            "without grid.data there would be 4 replicas"}));
  config_.grid[Axis::kPipeline] = 1;
  EXPECT_NE(remarks().at(0).find("grid.tensor became 2; without grid.data there would be 4"),
            std::string::npos);
  config_.grid[Axis::kTensor] = 2;
  EXPECT_EQ(remarks(), std::vector<std::string>());
}

TEST_F(Job, RefusesSweepsThatAreNone) {
  EXPECT_EQ(refusal("@NODES@ @POINTS@"),
            "template chain needs --sweep KEY=VALUE,VALUE: what to vary");
  for (const char* sweep : {"optim.lr", "optim.lr=", "=1", "run.seed=1 x"}) {
    request_.sweep = sweep;
    // bad input: `job`: a sweep that is none, of an unknown key, or for a template that is one run
    // | job.sweep '...': expected key=value,value, as in optim.lr=1e-3,3e-4 | 2
    EXPECT_NE(refusal("@NODES@ @POINTS@").find("expected key=value,value, as in"),
              std::string::npos)
        << refusal("@NODES@ @POINTS@");
  }
  request_.sweep = "optim.lrr=1";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"), "unknown flag --optim.lrr; did you mean --optim.lr?");
  request_.sweep = "grid.tensor=1,3";
  EXPECT_NE(refusal("@NODES@ @POINTS@").find("a grid with tensor=3 needs"), std::string::npos);
  EXPECT_EQ(refusal("@NODES@"), "--sweep is given, but template chain is one run: use sweep");
  // bad input: `job`: a sweep over families of models | job.sweep: model.family cannot vary, since
  // the other keys model.* follow from it: make a job with --model.family gpt and one with
  // --model.family resnet | 2
  request_.sweep = "model.family=gpt,resnet";
  EXPECT_EQ(
      refusal("@NODES@ @POINTS@"),
      "job.sweep: model.family cannot vary, since the other keys model.* follow from it: make "
      "a job with --model.family gpt and one with --model.family resnet");
  // bad input: `job`: a sweep over folders | job.sweep: run.folder cannot vary: each point has a
  // folder of its own in it, as run/point-0 | 2
  request_.sweep = "run.folder=a,b";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"),
            "job.sweep: run.folder cannot vary: each point has a folder of its own in it, as "
            "run/point-0");
  request_.sweep = "run.start_from=$TMPDIR/a,b";
  EXPECT_NE(refusal("@NODES@ @POINTS@").find("only the job itself knows its $TMPDIR"),
            std::string::npos);
  request_.sweep = "run.seed=";
  for (int i = 0; i < 1001; ++i) request_.sweep += std::to_string(i) + ",";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"), "job.sweep has more than 1000 points");
}

TEST_F(Job, RefusesNodeCountsAndNodesThatTheTemplateCannotUse) {
  for (const char* counts : {"0", "3", "1,x", "-1"}) {
    request_.counts = counts;
    EXPECT_NE(refusal("@NODES@ @NODE_COUNTS@").find("is not a number of nodes from 1 to 2"),
              std::string::npos);
  }
  // bad input: `job`: node counts beyond the job's nodes; several nodes for `single_node` |
  // template single_node is for one node, but --nodes is 2: use several_nodes | 2
  EXPECT_EQ(refusal("one"), "template chain is for one node, but --nodes is 2: use several_nodes");
}

TEST_F(Job, RefusesValuesThatCannotStandInAScript) {
  request_.name = "my job";
  EXPECT_EQ(message_of([&] { check_job_keys(request_); }),
            "job.name = my job: the character ' ' cannot stand there; letters, digits and "
            "_-+=.,:/%@[] can");
  request_.name = "job";
  request_.partition = "a;b";
  EXPECT_NE(message_of([&] { check_job_keys(request_); }).find("job.partition = a;b"),
            std::string::npos);
  request_.partition.reset();
  request_.srun = "--label; rm";
  EXPECT_NE(message_of([&] { check_job_keys(request_); }).find("job.srun = --label; rm"),
            std::string::npos);
  request_.srun.clear();
  site_.variables = "UCX_TLS";
  EXPECT_EQ(message_of([&] { script("@NODES@"); }),
            "environment.variables: 'UCX_TLS' is not NAME=VALUE, as in UCX_TLS=tcp,self");
}

TEST_F(Job, WritesOutTheRun) {
  config_.run.folder = "my run";
  config_.grid[Axis::kTensor] = 2;
  EXPECT_EQ(script("@NODES@ @TRIREME@\n  # @OPTIONS@\n# @STEP_FUNCTIONS@\n"),
            "2 '/opt/my tools/trireme'\n"
            "  '--run.folder=my run'\n  --run.threads=1\n  --model.preset=test-gpt\n"
            "  --data.train=train.h5\n  --batch.global=8\n  --batch.micro=2\n"
            "  --grid.pipeline=1\n  --grid.tensor=2\nmpi=pmi2\n");
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

TEST(JobKeys, AreNoMatterForTraining) {
  Config config;
  Options options("trireme train", true);
  add_config_keys(options, config);
  options.ignore_section("job");
  options.parse_ini("[job]\nnodes = 2\nwhatever = 1\n[run]\nsteps = 5\n", "run.ini");
  EXPECT_EQ(config.run.steps, 5);
  EXPECT_NE(message_of([&] {
              options.parse_ini("[jobs]\nnodes = 2\n", "run.ini");
            }).find("unknown key jobs.nodes"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme
