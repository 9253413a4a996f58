// The memory of nodes and GPUs: what a job asks for, and what does not fit.
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/job_testing.h"

namespace trireme {
namespace {

using testing::Job;

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
  // More of the given blocks, then all.
  config_.recompute.mode = "selective";
  config_.recompute.blocks = 4;
  const std::int64_t some = needs("full", 8, 1, 1);
  EXPECT_EQ(nearest(needs("selective", 8, 1, 1)), "no error");
  EXPECT_EQ(nearest(some), "--recompute.mode full, which fits");
  EXPECT_EQ(nearest(some - 1), "--recompute.mode full --recompute.blocks auto, which fits");
  config_.recompute = {};
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

}  // namespace
}  // namespace trireme
