// What batch.micro auto comes to.
#include "trireme/setup/settled_micro.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"

#include "support/message_of.h"

namespace trireme {
namespace {

struct Case {
  int global = 32;
  GridShape grid = {};
  std::string family = "gpt";
  bool on_gpus = false;
  std::string schedule = "1f1b";
  std::optional<int> runs = {};
  int stage = 0;
  std::optional<MicroBefore> before = {};
  std::optional<double> memory = {};  // bytes; empty: everything fits
  int context = 16;
};

Config config_of(const Case& c) {
  Config config;
  config.model.family = c.family;
  if (c.family == "vit") {
    config.model.keys = {{"preset", "vit-tiny-cifar"}, {"layers", "2"}};
  } else {
    config.model.keys = {{"layers", "8"}, {"width", "16"}, {"heads", "2"}, {"vocabulary", "64"}};
    config.model.keys["context"] = std::to_string(c.context);
  }
  config.batch.global = c.global;
  config.batch.runs = c.runs;
  config.grid.ask_for(c.grid);
  config.grid.schedule = c.schedule;
  config.grid.sequence_parallel = c.grid[Axis::kTensor] > 1;
  config.shard.stage = c.stage;
  return config;
}

struct Found {
  int samples = 0;
  std::string why;
  int dry_runs = 0;
};

Found found(const Case& c) {
  const Config config = config_of(c);
  const models::Model model = models::resolve(config.model, {});
  OpenMicro run{.config = config,
                .model = model,
                .grid = resolve_run_grid(config, c.grid.ranks()),
                .on_gpus = c.on_gpus,
                .before = c.before};
  int dry_runs = 0;
  const FitsMemory fits = [&](const PeakMemory& memory) {
    ++dry_runs;
    return !c.memory || memory.total <= *c.memory;
  };
  const SettledMicro settled = settled_micro(run, fits);
  return {settled.samples, settled.why, dry_runs};
}

int samples(const Case& c) {
  return found(c).samples;
}

// The bytes that a rank's tensors take with so many samples at a time.
double memory_with(const Case& c, int size) {
  Config config = config_of(c);
  config.batch.micro = size;
  const models::Model model = models::resolve(config.model, {});
  const GridShape grid = resolve_run_grid(config, c.grid.ranks());
  return largest_of(plan::dry_run_largest(dry_run_input(config, model, grid))).total;
}

TEST(SettledMicro, IsAReplicasShareWhereNothingElseLimitsIt) {
  const Found alone = found({});
  EXPECT_EQ(alone.samples, 32);
  EXPECT_EQ(alone.dry_runs, 1);
  EXPECT_EQ(alone.why, "batch.micro auto: 32: all that a replica computes in a step");
  EXPECT_EQ(samples({.grid = GridShape(2, 1, 1)}), 16);
  EXPECT_EQ(samples({.global = 24, .grid = GridShape(2, 1, 1)}), 12);
  EXPECT_EQ(samples({.global = 1}), 1);
}

TEST(SettledMicro, IsNotBeyondWhatWasMeasuredToHelp) {
  // 512 positions at a time.
  EXPECT_EQ(samples({.global = 512}), 32);
  EXPECT_EQ(samples({.global = 512, .context = 256}), 2);
  EXPECT_EQ(samples({.global = 8, .context = 2048}), 1);
  EXPECT_EQ(samples({.global = 36, .context = 128}), 4);
  EXPECT_EQ(samples({.global = 10, .context = 128}), 2);
  EXPECT_EQ(samples({.global = 64, .family = "vit"}), 4);  // of 65 positions
  EXPECT_EQ(found({.global = 512}).why,
            "batch.micro auto: 32: more than 512 positions at a time are not faster with gpt on "
            "CPUs");
  // Nothing was measured there.
  EXPECT_EQ(samples({.global = 512, .on_gpus = true}), 512);
}

TEST(SettledMicro, LeavesAFifthOfTheMemory) {
  const Case all{.global = 64, .on_gpus = true};
  for (const int size : {1, 2, 16, 32}) {
    Case limited = all;
    limited.memory = memory_with(all, size) / 0.8 + 1.0;
    const Found fits = found(limited);
    EXPECT_EQ(fits.samples, size);
    EXPECT_LE(fits.dry_runs, 4);
    EXPECT_NE(fits.why.find("more would take over 80 % of the memory"), std::string::npos);
    limited.memory = memory_with(all, size) / 0.8 - 1.0;
    EXPECT_EQ(samples(limited), std::max(1, size / 2));  // not even the smallest: it is that
  }
  // Where micro-batches are reduced one by one, smaller ones may need more.
  const Case sharded{.global = 64, .grid = GridShape(2, 1, 1), .on_gpus = true, .stage = 2};
  Case limited = sharded;
  limited.memory = memory_with(sharded, 8) / 0.8 + 1.0;
  EXPECT_EQ(samples(limited), 8);
}

TEST(SettledMicro, KeepsStagesBusy) {
  EXPECT_EQ(samples({.global = 32, .grid = GridShape(1, 2, 1)}), 4);
  EXPECT_EQ(samples({.global = 64, .grid = GridShape(2, 2, 1)}), 4);
  EXPECT_EQ(samples({.global = 48, .grid = GridShape(1, 4, 1)}), 3);
  // It has too few samples for that.
  EXPECT_EQ(samples({.global = 8, .grid = GridShape(1, 4, 1)}), 1);
  EXPECT_EQ(samples({.global = 32, .grid = GridShape(1, 4, 1), .schedule = "interleaved"}), 2);
  EXPECT_EQ(samples({.global = 12, .grid = GridShape(1, 4, 1), .schedule = "interleaved"}), 1);
  EXPECT_EQ(found({.grid = GridShape(1, 2, 1)}).why,
            "batch.micro auto: 4: 8 micro-batches of a replica keep 2 stages busy");
}

TEST(SettledMicro, IsOneThatTheRunCanHave) {
  EXPECT_EQ(samples({.runs = 8}), 4);
  EXPECT_EQ(samples({.grid = GridShape(2, 1, 1), .runs = 8}), 4);
  // The positions of a micro-batch, 65 of each picture, are divided among tensor ranks.
  EXPECT_EQ(samples({.global = 6, .grid = GridShape(1, 1, 3), .family = "vit"}), 6);
  EXPECT_EQ(samples({.global = 7, .grid = GridShape(1, 1, 3), .family = "vit"}), 1);
  // Three replicas have 10 or 11 samples of 32.
  EXPECT_EQ(samples({.grid = GridShape(3, 1, 1)}), 2);
  // There is none where a replica has no sample.
  EXPECT_EQ(testing::message_of([] { found({.global = 8, .grid = GridShape(16, 1, 1)}); }),
            "8 micro-batches a step (batch.global 8 / batch.micro 1) are fewer than 16 data "
            "replicas: each needs one at least");
}

TEST(SettledMicro, StaysWhatItWas) {
  const GridShape alone, two(2, 1, 1), stages(1, 2, 1);
  const auto after = [](int before, const GridShape& on) { return MicroBefore{before, on}; };
  const Found same = found({.global = 512, .before = after(128, alone), .memory = 1.0});
  EXPECT_EQ(same.samples, 128);  // memory is checked as for a number that is given
  EXPECT_EQ(same.dry_runs, 0);
  EXPECT_EQ(same.why, "batch.micro auto: 128, as before");
  EXPECT_EQ(samples({.before = after(4, alone)}), 4);  // the default of earlier versions
  // On another grid it is the largest divisor that is not above it.
  EXPECT_EQ(samples({.global = 512, .before = after(128, two)}), 128);
  const Found fewer = found({.grid = two, .before = after(32, alone)});
  EXPECT_EQ(fewer.samples, 16);
  EXPECT_EQ(fewer.why,
            "batch.micro auto: 16 in place of 32: all that a replica computes in a step");
  const Found divisor = found({.global = 24, .grid = two, .before = after(8, alone)});
  EXPECT_EQ(divisor.samples, 6);
  EXPECT_EQ(divisor.why, "batch.micro auto: 6 in place of 8: not above the one before");
  EXPECT_EQ(samples({.grid = stages, .before = after(32, alone)}), 4);
  EXPECT_EQ(samples({.grid = alone, .before = after(4, stages)}), 4);
  // What shard.group comes to is no other grid.
  GridShape sharded;
  sharded[Axis::kShard] = 2;
  EXPECT_EQ(samples({.grid = two, .before = after(16, sharded)}), 16);
}

TEST(MicroOfKeys, IsANumberWhereResultsDependOnIt) {
  Config config;
  EXPECT_EQ(micro_of_keys(config), std::nullopt);
  config.run.same_bits = true;
  EXPECT_EQ(micro_of_keys(config), 4);
  config.batch.micro = 2;
  EXPECT_EQ(micro_of_keys(config), 2);
  Config pictures;
  pictures.model.family = "resnet";
  write_out_micro(pictures);
  EXPECT_EQ(pictures.batch.micro, 4);
}

// 48 positions of a sample are whole blocks of 128 eight at a time.
TEST(SettledMicro, WithFp8ItHasWholeBlocks) {
  for (const auto& [precision, samples] : {std::pair{"bf16", 10}, {"fp8", 8}}) {
    Config config = config_of({.global = 40, .context = 48});
    config.model.keys["width"] = "128";
    config.run.precision = precision;
    const models::Model model = models::resolve(config.model, {});
    const OpenMicro run{.config = config, .model = model, .grid = resolve_run_grid(config, 1)};
    EXPECT_EQ(settled_micro(run, [](const PeakMemory&) { return true; }).samples, samples)
        << precision;
  }
}

}  // namespace
}  // namespace trireme
