// Values of keys that a configuration refuses, alone and beside others; those of the optimizer and
// of the learning rate are in config_optimizer_test.cc.
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/config/config.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::message_of;
using testing::parsed;
using testing::refusal;

TEST(Config, WordsNameTheirChoices) {
  EXPECT_EQ(refusal({"--optim.name", "adamm"}),
            "--optim.name adamm: is not one of adafactor, adam, adamw, lamb, lars, lion, muon, "
            "schedule_free, sgd; did you mean adam?");
  EXPECT_TRUE(refusal({"--optim.name", "adamW"}).ends_with("; did you mean adamw?"));
  EXPECT_EQ(refusal({"--model.norm", "batch"}), "--model.norm batch: is not one of layer, rms");
  EXPECT_EQ(
      refusal({"--schedule.name", "cos"}),
      "--schedule.name cos: is not one of constant, linear, cosine, cosine_restarts, step, wsd, "
      "inverse_sqrt, table");
  for (const char* key : {"run.device", "run.precision", "model.activation", "model.positions",
                          "grid.schedule", "sync.outer", "sync.reduce", "comm.backend",
                          "comm.order", "comm.reduce", "comm.compress"}) {
    EXPECT_NE(refusal({fmt::format("--{}", key), "nonsense"}).find("nonsense: is not one of "),
              std::string::npos)
        << key;
  }
}

TEST(Config, ListsOfPatternsHaveNoEmptyOne) {
  EXPECT_EQ(refusal({"--optim.freeze", "embedding.*, blocks.[0-5].*"}), "no error");
  EXPECT_TRUE(frozen_parameters({}).empty());
  for (const char* wrong : {"embedding.*,", ",", " "}) {
    EXPECT_EQ(refusal({"--optim.freeze", wrong}),
              fmt::format("optim.freeze {}: holds an empty pattern; give names between commas, as "
                          "in embedding.*",
                          wrong));
  }
}

TEST(Config, RecomputedBlocksAreOfAMode) {
  const std::vector<std::string> full = {"--recompute.mode", "full", "--recompute.blocks"};
  const auto with = [&](const char* blocks) {
    std::vector<std::string> flags = full;
    flags.emplace_back(blocks);
    return flags;
  };
  EXPECT_EQ(parsed(with("3")).recompute.blocks, 3);
  EXPECT_EQ(parsed(with("auto")).recompute.blocks, std::nullopt);
  // bad input: `train`: `recompute.blocks` without a `recompute.mode` | recompute.blocks is 3, but
  // recompute.mode is none: give selective or full, or recompute.blocks auto | 2
  EXPECT_EQ(refusal({"--recompute.blocks", "3"}),
            "recompute.blocks is 3, but recompute.mode is none: give selective or full, or "
            "recompute.blocks auto");
  // bad input: `train`: `recompute.blocks` below 1 | --recompute.blocks -1: must be at least 1 and
  // at most 4096 | 2
  for (const char* wrong : {"0", "-1", "4097"}) {
    EXPECT_EQ(refusal(with(wrong)),
              fmt::format("--recompute.blocks {}: must be at least 1 and at most 4096", wrong));
  }
}

TEST(Config, SizesEndWhereNothingIsOfUse) {
  // bad input: a number beyond all use | --threads 65535: must be at least 1 and at most 1024 | 2
  EXPECT_EQ(refusal({"--threads", "65535"}),
            "--threads 65535: must be at least 1 and at most 1024");
  EXPECT_EQ(refusal({"--model.layers", "1073741824"}),
            "--model.layers 1073741824: must be at least 1 and at most 4096");
  EXPECT_EQ(refusal({"--model.width", "2147483647"}),
            "--model.width 2147483647: must be at least 1 and at most 1048576");
  // bad input: a sharding that does not exist | --shard.stage 4: must be at least 0 and at most 3;
  // --shard.prefetch 5000: must be at least 0 and at most 4096 | 2
  EXPECT_EQ(refusal({"--shard.stage", "4"}), "--shard.stage 4: must be at least 0 and at most 3");
  EXPECT_EQ(refusal({"--shard.prefetch", "5000"}),
            "--shard.prefetch 5000: must be at least 0 and at most 4096");
  EXPECT_EQ(refusal({"--shard.group", "1"}),
            "--shard.group 1: must be at least 2 and at most 1048576");
  EXPECT_EQ(refusal({"--run.steps", "9223372036854775807"}),
            "--run.steps 9223372036854775807: must be at least 1 and at most 100000000000");
  EXPECT_EQ(refusal({"--comm.timeout", "1e300"}).find("--comm.timeout 1e300: must be at "), 0u);
  EXPECT_EQ(refusal({"--optim.lr", "1e308"}).find("--optim.lr 1e308: must be at least "), 0u);
  // Every number refuses what is none, and what is beyond all bounds.
  for (const OptionDescription& option : describe_config().options) {
    if (option.placeholder != "N" && option.placeholder != "X") continue;
    for (const char* wrong : {"nan", "-1e309", "", "1 2", "1e300", "-1e30"}) {
      EXPECT_NE(refusal({"--" + option.name + "=" + wrong}), "no error") << option.name << wrong;
    }
    if (option.placeholder == "X" || option.name == "run.seed") continue;
    EXPECT_NE(refusal({"--" + option.name + "=9223372036854775807"}), "no error") << option.name;
  }
}

TEST(Config, LongAndUnprintableValuesAreShownInPart) {
  // bad input: a value with control characters, or of more than 200 characters | --run.steps
  // 1\n\x1b[2J: is not a whole number, nor epochs as in 10ep; the beginning and the end of it | 2
  EXPECT_EQ(refusal({"--run.steps", "1\n\x1b[2J"}),
            "--run.steps 1\\n\\x1b[2J: is not a whole number, nor epochs as in 10ep");
  EXPECT_LE(refusal({"--run.steps", std::string(100'000, 'x')}).size(), 260u);
  EXPECT_LE(refusal({"--" + std::string(100'000, 'x'), "1"}).size(), 250u);
}

TEST(Config, SizesMustBePositive) {
  for (const char* key :
       {"run.steps",      "run.threads",    "model.layers",     "model.width",
        "model.heads",    "model.kv_heads", "model.vocabulary", "model.context",
        "batch.global",   "batch.micro",    "grid.data",        "grid.pipeline",
        "grid.tensor",    "grid.chunks",    "grid.islands",     "sync.every",
        "sync.fragments", "schedule.decay", "schedule.period",  "schedule.period_factor",
        "sync.quorum",    "eval.batches",   "log.every",        "checkpoint.keep"}) {
    for (const char* value : {"0", "-4"}) {
      const std::string said = refusal({fmt::format("--{}", key), value});
      EXPECT_TRUE(said.starts_with(fmt::format("--{} {}: must be at least 1", key, value))) << said;
    }
  }
  for (const char* key : {"run.seed", "schedule.warmup", "eval.every", "checkpoint.every",
                          "checkpoint.margin", "optim.clip", "optim.weight_decay", "sync.first",
                          "sync.patience", "sync.stale", "sync.rejoin"}) {
    const std::string said = refusal({fmt::format("--{}", key), "-1"});
    EXPECT_TRUE(said.starts_with(fmt::format("--{} -1: must be at least 0", key))) << said;
    EXPECT_EQ(refusal({fmt::format("--{}", key), "0"}), "no error");
  }
  for (const auto& [key, least] : {std::pair("optim.lr", "1e-30"),
                                   {"optim.eps", "1e-30"},
                                   {"comm.timeout", "0.001"},
                                   {"checkpoint.mtbf", "1e-06"}}) {
    const std::string said = refusal({fmt::format("--{}", key), "0"});
    EXPECT_TRUE(said.starts_with(fmt::format("--{} 0: must be at least {}", key, least))) << said;
  }
}

// Several jobs carry a run: a member meets the others through files, all at once and in full.
TEST(Config, MembersAreOneIsland) {
  EXPECT_EQ(steps_between_meetings(parsed({"--sync.member", "a"})), 50);
  EXPECT_EQ(steps_between_meetings(parsed({"--sync.member", "a", "--sync.every", "7"})), 7);
  EXPECT_EQ(folder_of_job(parsed({"--run.folder", "x"})), "x");
  EXPECT_EQ(folder_of_job(parsed({"--run.folder", "x", "--sync.member", "a"})), "x/islands/a");
  const auto refused = [](const std::string& key, const std::string& value) {
    return refusal({"--sync.member", "a", "--sync.every", "10", "--" + key, value});
  };
  // bad input: `train`: `grid.islands` of a member | grid.islands is 2, but a job with sync.member
  // is one island: leave it out | 2
  EXPECT_EQ(refused("grid.islands", "2"),
            "grid.islands is 2, but a job with sync.member is one island: leave it out");
  for (const auto& [key, value] :
       {std::pair("sync.first", "3"), std::pair("sync.fragments", "2"),
        std::pair("sync.delay", "1"), std::pair("sync.reduce", "int8")}) {
    EXPECT_EQ(
        refused(key, value),
        fmt::format("{} is {}, but members (sync.member) meet through files, in full: leave it "
                    "out",
                    key, value));
  }
  EXPECT_EQ(refusal({"--sync.member", "a", "--optim.average", "ema", "--eval.weights", "average"}),
            "eval.weights is average, but members (sync.member) evaluate the outer weights, which "
            "have no average: leave it out");
  for (const char* key : {"sync.patience", "sync.quorum", "sync.stale", "sync.silence"}) {
    EXPECT_EQ(refused(key, "1"), "no error");
  }
  for (const char* name : {"../x", ".hidden", "a/b", "a b"}) {
    // bad input: `train`: a member's name with other characters | sync.member '../x': a name has
    // letters, digits, -, _ and . alone, and does not begin with . | 2
    EXPECT_EQ(
        refusal({"--sync.member", name}),
        fmt::format("sync.member '{}': a name has letters, digits, -, _ and . alone, and does "
                    "not begin with .",
                    name));
  }
}

TEST(Config, ProbabilitiesAreBelowOne) {
  for (const char* key : {"model.dropout", "optim.beta1", "optim.beta2", "optim.momentum"}) {
    for (const char* value : {"1", "-0.1", "1.5"}) {
      EXPECT_EQ(refusal({fmt::format("--{}", key), value}),
                fmt::format("--{} {}: must be at least 0 and below 1", key, value));
    }
    const std::string name = std::string_view(key) == "optim.momentum" ? "sgd" : "adamw";
    EXPECT_EQ(refusal({"--optim.name", name, fmt::format("--{}", key), "0"}), "no error");
  }
}

TEST(Config, TextsMustNotBeEmpty) {
  EXPECT_EQ(message_of([] { config_from_ini("[run]\nfolder =\n", "a.ini"); }),
            "a.ini:2: run.folder = : must not be empty");
}

TEST(Config, TheDataMustBeNamed) {
  EXPECT_EQ(message_of([] { parse_config({}); }),
            "data.train is missing: name what to train on, as in --data.train train.h5");
}

TEST(Config, CheckpointsAsOftenAsIsBestNeedTheTimeBetweenFailures) {
  EXPECT_EQ(refusal({"--checkpoint.every", "auto"}),
            "checkpoint.every = auto needs checkpoint.mtbf: the mean time between failures of the "
            "whole job, in hours, as in --checkpoint.mtbf 24");
  EXPECT_EQ(refusal({"--checkpoint.every", "auto", "--checkpoint.mtbf", "24"}), "no error");
}

TEST(Config, ResultsDependOnNoMicroBatchThatTheMachineSettles) {
  EXPECT_FALSE(parsed({}).batch.micro.is_known());
  EXPECT_EQ(refusal({"--batch.micro", "auto"}), "no error");
  EXPECT_EQ(refusal({"--batch.micro", "auto", "--batch.micro", "2", "--run.same_bits", "true"}),
            "no error");
  // bad input: `train`: `batch.micro auto` with `run.same_bits` | batch.micro is auto, but the bits
  // of run.same_bits depend on it: give a number, or leave it out for 4 | 2
  EXPECT_EQ(refusal({"--batch.micro", "auto", "--run.same_bits", "true"}),
            "batch.micro is auto, but the bits of run.same_bits depend on it: give a number, or "
            "leave it out for 4");
  // bad input: `train`: `batch.micro auto` with batch norms | batch.micro is auto, but what the
  // batch norms of model.family mobilenet_v2 compute depends on it: give a number, or leave it out
  // for 4 | 2
  EXPECT_EQ(refusal({"--model.family", "mobilenet_v2", "--batch.micro", "auto"}),
            "batch.micro is auto, but what the batch norms of model.family mobilenet_v2 compute "
            "depends on it: give a number, or leave it out for 4");
  // Left out it is 4 there, which must divide batch.global.
  EXPECT_EQ(refusal({"--batch.global", "6"}), "no error");
  EXPECT_EQ(refusal({"--batch.global", "6", "--run.same_bits", "true"}),
            "batch.global is 6, which is no multiple of batch.micro, 4: set batch.global to 4 or "
            "8, or batch.micro to 3");
  // What is written reads back as the same.
  Config config = parsed({"--batch.micro", "auto"});
  EXPECT_NE(config_to_ini(config).find("micro = auto\n"), std::string::npos);
  EXPECT_TRUE(config_from_ini(config_to_ini(config), "a file").batch.micro.is_written_auto());
  EXPECT_EQ(config_to_ini(Config()).find("micro"), std::string::npos);
  config.batch.micro.settle(16);
  const Config record = config_from_ini(config_to_ini(config), "a file");
  EXPECT_TRUE(record.batch.micro.is_written_auto());
  EXPECT_EQ(record.batch.micro.number(), 16);
  EXPECT_EQ(refusal({"--batch.micro", "auto 0"}),
            "--batch.micro auto 0: must be at least 1 and at most 16777216");
}

TEST(Config, SharesBySpeedNeedReplicasThatWaitForNobodyWithinAStep) {
  const auto balance = [](const std::string& value) {
    return parsed({"--batch.balance", value}).batch.balance;
  };
  EXPECT_TRUE(parsed({}).batch.balance.is_even());
  EXPECT_TRUE(balance("even").is_even());
  EXPECT_EQ(balance("1,0.5,.25").speeds(), (std::vector{1.0, 0.5, 0.25}));
  for (const std::string value : {"auto", "auto 4,2,2", "1,0.5"}) {
    Config config = parsed({"--batch.balance", value});
    EXPECT_EQ(write_value(config.batch.balance), value);
    EXPECT_EQ(config_from_ini(config_to_ini(config), "a file").batch.balance, config.batch.balance);
  }
  EXPECT_EQ(balance("auto 4,2,2").shares(), (std::vector{4, 2, 2}));
  EXPECT_EQ(BatchBalance::most_of_auto(16, 4), 8);
  EXPECT_EQ(BatchBalance::most_of_auto(9, 4), 5);
  EXPECT_EQ(BatchBalance::most_of_auto(4, 4), 1);
  for (const std::string value : {"", "1,", "1,0", "1,-1", "1,nan", "1 2", "auto 1,0", "autos"}) {
    // bad input: `train`: `batch.balance` with numbers that are no speeds | --batch.balance 1,0:
    // must be even, auto, or a speed from 1e-6 to 1e6 for each data replica, as in 1,0.5,0.5 | 2
    EXPECT_EQ(refusal({"--batch.balance", value}),
              fmt::format("--batch.balance {}: must be even, auto, or a speed from 1e-6 to 1e6 for "
                          "each data replica, as in 1,0.5,0.5",
                          value));
  }
  const auto refused = [](std::vector<std::string> more, const std::string& value = "auto") {
    more.insert(more.end(), {"--batch.balance", value});
    return refusal(more);
  };
  // bad input: `train`: `batch.balance` with `run.same_bits` | batch.balance is auto, but the bits
  // of run.same_bits must depend on no share: leave it out | 2
  EXPECT_EQ(
      refused({"--run.same_bits", "true"}),
      "batch.balance is auto, but the bits of run.same_bits must depend on no share: leave it out");
  // bad input: `train`: `batch.balance` with `shard.stage` 2 or 3 | batch.balance is 1,2, but with
  // shard.stage 2 data replicas wait for each other at each micro-batch: take shard.stage 1, or
  // leave it out | 2
  EXPECT_EQ(refused({"--shard.stage", "2"}, "1,2"),
            "batch.balance is 1,2, but with shard.stage 2 data replicas wait for each other at "
            "each micro-batch: take shard.stage 1, or leave it out");
  // bad input: `train`: `batch.balance` with `model.batch_norm sync` | batch.balance is auto, but
  // the data replicas compute each micro-batch together (model.batch_norm sync): take
  // model.batch_norm replica, or leave it out | 2
  EXPECT_EQ(refused({"--model.family", "mobilenet_v2", "--model.batch_norm", "sync"}),
            "batch.balance is auto, but the data replicas compute each micro-batch together "
            "(model.batch_norm sync): take model.batch_norm replica, or leave it out");
  // bad input: `train`: `batch.balance` with `grid.islands` | batch.balance is auto, but there are
  // 2 islands (grid.islands), and each would need shares of its own: leave it out | 2
  EXPECT_EQ(refused({"--grid.islands", "2"}),
            "batch.balance is auto, but there are 2 islands (grid.islands), and each would need "
            "shares of its own: leave it out");
  // bad input: `train`: `batch.balance auto` of a member | batch.balance is auto, but a member of a
  // run (sync.member) goes by speeds that are given: give them, or leave it out | 2
  EXPECT_EQ(refused({"--sync.member", "one"}),
            "batch.balance is auto, but a member of a run (sync.member) goes by speeds that are "
            "given: give them, or leave it out");
  // bad input: `train`: `batch.balance auto` where nothing is measured | batch.balance is auto, but
  // nothing measures the replicas (log.stragglers 0): give log.stragglers seconds, or their speeds,
  // or leave it out | 2
  EXPECT_EQ(refused({"--log.stragglers", "0"}),
            "batch.balance is auto, but nothing measures the replicas (log.stragglers 0): give "
            "log.stragglers seconds, or their speeds, or leave it out");
  EXPECT_EQ(refused({"--log.stragglers", "0"}, "1,2"), "no error");
  EXPECT_EQ(refused({"--shard.stage", "1"}), "no error");
}

TEST(Config, StagesAreCutEquallyByBlocksOrByRate) {
  for (const std::string value : {"equal", "auto", "auto 5,3", "5,3"}) {
    const Config config = parsed({"--grid.cut", value});
    EXPECT_EQ(write_value(config.grid.cut), value);
    EXPECT_EQ(config_from_ini(config_to_ini(config), "a file").grid.cut, config.grid.cut);
  }
  EXPECT_EQ(parsed({"--grid.cut", "auto 5,3"}).grid.cut.blocks(), (std::vector{5, 3}));
  EXPECT_TRUE(parsed({}).grid.cut.blocks().empty());
  for (const std::string value : {"", "5,", "5,0", "5,-3", "5,2.5", "auto 0"}) {
    // bad input: `train`: `grid.cut` with what is no number of blocks | --grid.cut 5,0: must be
    // equal, auto, or the blocks of each stage, 1 at least, as in 5,3 | 2
    EXPECT_EQ(refusal({"--grid.cut", value}),
              fmt::format("--grid.cut {}: must be equal, auto, or the blocks of each stage, 1 at "
                          "least, as in 5,3",
                          value));
  }
}

TEST(Config, SameBitsNeedRunsAndSumsOfOneOrder) {
  Config config;
  config.batch.global = 24;
  config.batch.micro = 2;
  config.batch.runs = 6;
  EXPECT_EQ(runs_of_batch(config), 6);
  config.run.same_bits = true;
  EXPECT_EQ(runs_of_batch(config), 4);
  config.batch.global = 128;
  EXPECT_EQ(runs_of_batch(config), 16);
  config.batch.global = 10;
  EXPECT_EQ(runs_of_batch(config), 1);
  const std::vector<std::string> batch{"--run.same_bits", "true", "--batch.global", "16",
                                       "--batch.micro",   "2"};
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), batch.begin(), batch.end());
    return refusal(more);
  };
  EXPECT_EQ(refused({"--batch.runs", "8"}), "no error");
  // bad input: `run.same_bits` with another `batch.runs` | batch.runs is 4, but run.same_bits makes
  // it 8: leave it out | 2
  EXPECT_EQ(refused({"--batch.runs", "4"}),
            "batch.runs is 4, but run.same_bits makes it 8: leave it out");
  // bad input: `run.same_bits` with sums whose order is not fixed | run.same_bits needs sums with
  // one order: comm.order tree and comm.reduce fp32, not any and fp32 | 2
  EXPECT_EQ(
      refused({"--comm.order", "any"}),
      "run.same_bits needs sums with one order: comm.order tree and comm.reduce fp32, not any "
      "and fp32");
  EXPECT_EQ(refused({"--comm.reduce", "bf16"}),
            "run.same_bits needs sums with one order: comm.order tree and comm.reduce fp32, not "
            "tree and bf16");
  // bad input: `run.same_bits` with NCCL's sums | run.same_bits needs sums with one order, which
  // NCCL does not promise: give --comm.backend mpi, or leave it out | 2
  EXPECT_EQ(refused({"--comm.backend", "nccl", "--run.device", "cuda"}),
            "run.same_bits needs sums with one order, which NCCL does not promise: give "
            "--comm.backend mpi, or leave it out");
  // bad input: `run.same_bits` with attention's gradients in any order | run.same_bits needs sums
  // with one order: leave attention.deterministic false out | 2
  EXPECT_EQ(refused({"--attention.deterministic", "false"}),
            "run.same_bits needs sums with one order: leave attention.deterministic false out");
  // bad input: `run.same_bits` with algorithms of products by time | run.same_bits needs products
  // with one order of sums, which cuda.products chooses by time: leave one out | 2
  EXPECT_EQ(refused({"--cuda.products", "products.json"}),
            "run.same_bits needs products with one order of sums, which cuda.products chooses by "
            "time: leave one out");
  // bad input: `run.same_bits` with gradients in few bits | run.same_bits keeps bits where a run
  // goes on, which comm.compress int8 does not: leave one out | 2
  EXPECT_EQ(refused({"--comm.compress", "int8"}),
            "run.same_bits keeps bits where a run goes on, which comm.compress int8 does not: "
            "leave one out");
}

TEST(Config, GradientsTravelInOneWay) {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--comm.compress", "int8"});
    return refusal(more);
  };
  EXPECT_EQ(refused({"--shard.stage", "1"}), "no error");
  // bad input: gradients in few bits and in bf16 | comm.compress is int8, but comm.reduce is bf16:
  // gradients travel as one of them, so leave one out | 2
  EXPECT_EQ(refused({"--comm.reduce", "bf16"}),
            "comm.compress is int8, but comm.reduce is bf16: gradients travel as one of them, so "
            "leave one out");
  // bad input: gradients in few bits where no rank has whole ones | comm.compress is int8, but
  // shard.stage is 2: only with 0 and 1 a rank holds whole gradients to compress, so leave one out
  // | 2
  EXPECT_EQ(refused({"--shard.stage", "2"}),
            "comm.compress is int8, but shard.stage is 2: only with 0 and 1 a rank holds whole "
            "gradients to compress, so leave one out");
}

TEST(Config, OnlyRandomCropsPadPictures) {
  // bad input: `train`: padding of pictures that are not cropped at random | data.padding is 4, but
  // data.crop is centre: only random pads pictures, so leave it out | 2
  EXPECT_EQ(refusal({"--data.padding", "4"}),
            "data.padding is 4, but data.crop is centre: only random pads pictures, so leave it "
            "out");
  EXPECT_EQ(refusal({"--data.padding", "4", "--data.crop", "random", "--model.family", "resnet"}),
            "no error");
  EXPECT_TRUE(refusal({"--data.least_area", "2"}).starts_with("--data.least_area 2: must be"));
}

TEST(Config, KeysOfDataAreThoseOfTheFamily) {
  const auto with = [](const std::string& key, const std::string& value,
                       const std::string& family) {
    return refusal({"--model.family", family, "--data." + key, value});
  };
  // bad input: `train`: a key of `data.*` for other data than the model's | data.crop is for
  // pictures, but model.family gpt trains on text: leave it out | 2
  EXPECT_EQ(with("crop", "random", "gpt"),
            "data.crop is for pictures, but model.family gpt trains on text: leave it out");
  EXPECT_EQ(with("mask_documents", "true", "resnet"),
            "data.mask_documents is for text, but model.family resnet trains on pictures: leave it "
            "out");
  for (const auto& [key, value] :
       {std::pair("crop", "resized"), std::pair("flip", "true"), std::pair("least_area", "0.5"),
        std::pair("most_ratio", "2"), std::pair("threads", "3")}) {
    EXPECT_EQ(with(key, value, "mobilenet_v2"), "no error") << key;
    EXPECT_NE(with(key, value, "gpt").find("leave it out"), std::string::npos) << key;
  }
  EXPECT_EQ(with("mask_documents", "true", "gpt"), "no error");
  EXPECT_EQ(with("mask_documents", "true", "bert"), "no error");
  EXPECT_EQ(with("mask_share", "0.3", "bert"), "no error");
  EXPECT_EQ(with("mask_share", "0.3", "resnet"),
            "data.mask_share is for masked language models, but model.family resnet is none: leave "
            "it out");
  // bad input: `train`: `data.mask_share` 0, or more than 1 | --data.mask_share 0: must be at least
  // 0.001 and at most 1 | 2
  EXPECT_EQ(with("mask_share", "0", "bert"),
            "--data.mask_share 0: must be at least 0.001 and at most 1");
  EXPECT_EQ(with("mask_share", "1.5", "bert"),
            "--data.mask_share 1.5: must be at least 0.001 and at most 1");
}

TEST(Config, WordsOfPicturesAndNormsAreListed) {
  // bad input: `train`: a `data.crop` that does not exist | --data.crop middle: is not one of
  // centre, random, resized | 2
  EXPECT_EQ(refusal({"--model.family", "resnet", "--data.crop", "middle"}),
            "--data.crop middle: is not one of centre, random, resized");
  // bad input: `train`: a `model.batch_norm` that does not exist | --model.batch_norm global: is
  // not one of replica, sync | 2
  EXPECT_EQ(refusal({"--model.family", "resnet", "--model.batch_norm", "global"}),
            "--model.batch_norm global: is not one of replica, sync");
}

TEST(Config, TheGlobalBatchIsWholeMicroBatches) {
  EXPECT_EQ(
      refusal({"--batch.global", "10", "--batch.micro", "4"}),
      "batch.global is 10, which is no multiple of batch.micro, 4: set batch.global to 8 or 12, "
      "or batch.micro to 2");
  EXPECT_EQ(refusal({"--batch.global", "3", "--batch.micro", "4"}),
            "batch.global is 3, which is no multiple of batch.micro, 4: set batch.global to 4, or "
            "batch.micro to 3");
}

TEST(Config, HeadsDivideTheWidth) {
  EXPECT_EQ(refusal({"--model.heads", "5", "--model.width", "12"}),
            "model.heads (5) does not divide model.width (12): one of 1, 2, 3, 4, 6, 12 would");
  EXPECT_EQ(refusal({"--model.kv_heads", "4", "--model.heads", "6"}),
            "model.kv_heads (4) does not divide model.heads (6): one of 1, 2, 3, 6 would");
  EXPECT_EQ(refusal({"--model.heads", "4", "--model.width", "12", "--model.positions", "rotary"}),
            "model.positions = rotary turns pairs of channels, but model.width (12) / model.heads "
            "(4) is 3, an odd number");
  EXPECT_EQ(refusal({"--model.heads", "4", "--model.width", "12"}), "no error");
  EXPECT_EQ(refusal({"--model.heads", "5"}), "no error");  // the preset may fit
}

TEST(Config, LogitsInBf16AreOfModelsThatComputeInIt) {
  for (const char* family : {"gpt", "bert"}) {
    for (const char* precision : {"fp32", "tf32", "fp16"}) {
      // bad input: `train`: `model.logits bf16` in another `run.precision` | model.logits is bf16,
      // but run.precision is fp32: give run.precision bf16, or leave model.logits out | 2
      EXPECT_EQ(refusal({"--model.family", family, "--model.logits", "bf16", "--run.precision",
                         precision}),
                fmt::format("model.logits is bf16, but run.precision is {}: give run.precision "
                            "bf16, or leave model.logits out",
                            precision));
      EXPECT_EQ(refusal({"--model.family", family, "--model.logits", "fp32", "--run.precision",
                         precision}),
                "no error");
    }
    EXPECT_EQ(
        refusal({"--model.family", family, "--model.logits", "bf16", "--run.precision", "bf16"}),
        "no error");
  }
  EXPECT_NE(refusal({"--model.family", "resnet", "--model.logits", "bf16"}), "no error");
}

TEST(Config, NcclNeedsADevice) {
  EXPECT_EQ(refusal({"--comm.backend", "nccl"}),
            "comm.backend = nccl needs run.device = cuda, but it is auto");
}

TEST(Config, NcclsChannelsHaveAnOrder) {
  // bad input: `nccl.min_channels` above `nccl.max_channels` | nccl.min_channels is 8, but
  // nccl.max_channels is 4 | 2
  EXPECT_EQ(refusal({"--nccl.min_channels", "8", "--nccl.max_channels", "4"}),
            "nccl.min_channels is 8, but nccl.max_channels is 4");
  EXPECT_EQ(refusal({"--nccl.min_channels", "4", "--nccl.max_channels", "4"}), "no error");
  EXPECT_EQ(refusal({"--nccl.min_channels", "8"}), "no error");
}

// Several islands meet every 50 steps, one never does, unless sync.every says otherwise.
TEST(Config, IslandsMeetWhereThereAreSeveral) {
  EXPECT_EQ(steps_between_meetings(parsed({})), std::nullopt);
  EXPECT_EQ(steps_between_meetings(parsed({"--grid.islands", "2"})), 50);
  EXPECT_EQ(steps_between_meetings(parsed({"--grid.islands", "2", "--sync.every", "7"})), 7);
  EXPECT_EQ(steps_between_meetings(parsed({"--sync.every", "7"})), 7);
  for (const auto& [key, value] :
       {std::pair("outer", "average"), std::pair("lr", "0.5"), std::pair("momentum", "0.5"),
        std::pair("first", "3"), std::pair("fragments", "2"), std::pair("delay", "1"),
        std::pair("mix", "0.25"), std::pair("reduce", "int8")}) {
    EXPECT_EQ(
        refusal({fmt::format("--sync.{}", key), value}),
        fmt::format("sync.{} is {}, but there is one island (grid.islands) and no sync.every: "
                    "leave it out",
                    key, value));
  }
  EXPECT_EQ(refusal({"--sync.every", "7", "--sync.lr", "0.5", "--sync.first", "3"}), "no error");
  // bad input: `train`: `sync.reduce` of one island | sync.reduce is int8, but one island
  // (grid.islands) sends nothing: leave it out | 2
  EXPECT_EQ(refusal({"--sync.every", "7", "--sync.reduce", "int8"}),
            "sync.reduce is int8, but one island (grid.islands) sends nothing: leave it out");
  EXPECT_EQ(refusal({"--grid.islands", "2", "--sync.reduce", "int2"}), "no error");
}

TEST(Config, MeetingsHaveOneMeaning) {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--grid.islands", "2", "--sync.every", "10"});
    return refusal(more);
  };
  EXPECT_EQ(refused({"--sync.lr", "0.5", "--sync.momentum", "0", "--sync.fragments", "10",
                     "--sync.delay", "9", "--sync.mix", "0"}),
            "no error");
  for (const char* key : {"lr", "momentum"}) {
    EXPECT_EQ(refused({"--sync.outer", "average", fmt::format("--sync.{}", key), "0.5"}),
              fmt::format("sync.{} is 0.5, but sync.outer is average: leave it out", key));
  }
  // bad input: `train`: `sync.mix` without `sync.delay` | sync.mix is 0.25, but without sync.delay
  // an island goes on with the outer weights alone: leave it out | 2
  EXPECT_EQ(refused({"--sync.mix", "0.25"}),
            "sync.mix is 0.25, but without sync.delay an island goes on with the outer weights "
            "alone: leave it out");
  EXPECT_EQ(refused({"--sync.delay", "10"}),
            "sync.delay is 10, but a fragment meets again after 10 steps (sync.every): give fewer");
  EXPECT_EQ(refused({"--sync.fragments", "11"}),
            "sync.fragments is 11, but at most one meets after each of the 10 steps of sync.every");
  EXPECT_EQ(refusal({"--grid.islands", "2", "--sync.delay", "50"}),
            "sync.delay is 50, but a fragment meets again after 50 steps (sync.every): give fewer");
  EXPECT_EQ(refused({"--comm.tune", "true"}),
            "comm.tune tries algorithms in the steps of all ranks, which islands (grid.islands) do "
            "not have: leave it out");
  EXPECT_EQ(refused({"--sync.first", "3", "--cuda.graphs", "true"}),
            "cuda.graphs captures one kind of step, and the first sync.first steps are of another: "
            "leave one out");
  EXPECT_EQ(refused({"--cuda.graphs", "true"}), "no error");
  EXPECT_TRUE(
      refused({"--sync.mix", "1", "--sync.delay", "1"}).starts_with("--sync.mix 1: must be"));
  EXPECT_TRUE(refused({"--sync.momentum", "1"}).starts_with("--sync.momentum 1: must be"));
  EXPECT_TRUE(refused({"--sync.lr", "0"}).starts_with("--sync.lr 0: must be"));
}

}  // namespace
}  // namespace trireme
