#include "trireme/config/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/config/schedule_options.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::Arguments;
using testing::message_of;
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

// Every key with another value than its default.
Config every_key_changed() {
  Config config;
  config.run = {"out folder", 7, 3, 2, "a/step.h5", "b.h5", "head", true, "cuda", "fp16", true};
  config.model.keys = {
      {"preset", "gpt2-124m"},  {"layers", "3"},         {"width", "48"},
      {"heads", "6"},           {"kv_heads", "2"},       {"hidden", "96"},
      {"vocabulary", "500"},    {"context", "32"},       {"norm", "rms"},
      {"activation", "swiglu"}, {"positions", "rotary"}, {"tied", "true"},
      {"bias", "false"},        {"dropout", "0.125"},    {"rotary_theta", "500000"},
      {"norm_epsilon", "0.001"}};
  config.data = {
      {{"a.h5", 1}, {"b,c.h5", 0.1}}, {{"v.h5", 1}}, true, 0.3, "random", 4, true, 0.25, 2.0, 3};
  config.batch = {24, 8, 3};
  config.optim = {"sgd",      0.1 + 0.2, 0.01, "coupled", 0.8, 0.999,         1e-6,
                  true,       0,         3.5,  4.5,       0.5, true,          "*.bias: lr=2",
                  "original", "bf16",    true, 0.25,      10,  0.01,          2,
                  -0.5,       "ema",     0.5,  7,         5,   "embedding.*", "128",
                  50};
  config.schedule = {"wsd", 2, 3, 0.25, 0.2, 4, 2, "rates.txt"};
  config.grid = {2, 3, 4, "interleaved", 4, true, "rank"};
  config.shard = {3, 4, 2};
  config.recompute = {"full", 2};
  config.eval = {5, 6, "average"};
  config.log = {11, "3-4", true, 1.5};
  config.checkpoint = {12, 7.25, 13, 4.5};
  config.check = {14};
  config.comm = {"nccl", 2.5, "rates.json"};
  config.nccl = {"table", 2, 8, 4, 106, true, "IB"};
  return config;
}

// All keys but those of one start, which are not written.
TEST(Config, RoundTripThroughIni) {
  for (const Config& config : {Config(), every_key_changed()}) {
    const Config read = config_from_ini(config_to_ini(config), "x.ini");
    EXPECT_EQ(read.run.resume, "auto");
    EXPECT_FALSE(read.run.accept_changes);
    Config expected = config;
    expected.run.resume = read.run.resume;
    expected.run.accept_changes = read.run.accept_changes;
    EXPECT_EQ(read, expected) << config_to_ini(config);
  }
}

TEST(Config, EveryKeyOfARunIsWrittenOnce) {
  const std::string ini = config_to_ini(every_key_changed());
  Config config;
  Options options("");
  add_config_keys(options, config);
  const auto keys = options.keys();
  const auto of_start = static_cast<std::size_t>(
      std::ranges::count(keys, OnChange::kOfStart, &OptionDescription::on_change));
  EXPECT_EQ(of_start, 2u);  // run.resume, run.accept_changes
  std::size_t assignments = 0;
  for (std::size_t at = 0; (at = ini.find(" = ", at)) != std::string::npos; ++at) ++assignments;
  EXPECT_EQ(assignments + of_start, options.names().size());
  EXPECT_EQ(options.names().size(), 117u);
}

// A new key must say what its change means for a run that goes on.
TEST(Config, EveryKeySaysWhatItsChangeMeans) {
  for (const OptionDescription& key : describe_config().options) {
    if (key.name == "config") continue;  // no key: it names a file
    EXPECT_NE(key.on_change, OnChange::kNotOfRuns) << key.name;
    // What may never need the user's consent, and what always does.
    const std::string section = key.name.substr(0, key.name.find('.'));
    if (section == "log" || section == "checkpoint" || section == "eval") {
      EXPECT_NE(key.on_change, OnChange::kOtherRun) << key.name;
    }
    if (key.name == "schedule.file") {
      EXPECT_EQ(key.on_change, OnChange::kCompared);  // what the file holds counts
    } else if (section == "optim" || section == "schedule") {
      EXPECT_EQ(key.on_change, OnChange::kResults) << key.name;
    }
  }
}

// "optim.lr was 0.001, is 0.002; ..."
std::string changes(const std::string& before, const Config& now) {
  std::string text;
  for (const ChangedSetting& change : changed_settings(before, "before", now)) {
    text += (text.empty() ? "" : "; ") + change.text();
  }
  return text;
}

// The default of checkpoint.every is a number.
TEST(Config, AKeyWithADefaultMayBeWrittenAsAuto) {
  const Config config = parsed({"--checkpoint.every", "auto", "--checkpoint.mtbf", "24"});
  EXPECT_EQ(config.checkpoint.every, std::nullopt);
  EXPECT_EQ(config_from_ini(config_to_ini(config), "x.ini"), config) << config_to_ini(config);
  EXPECT_EQ(std::ranges::count(config_to_flags(config), "--checkpoint.every=auto"), 1);
  EXPECT_EQ(changes(config_to_ini(config), config), "");
}

TEST(Config, ChangesThatCanChangeResultsAreListed) {
  Config before;
  before.model.keys["dropout"] = "0";
  const std::string ini = config_to_ini(before);
  EXPECT_EQ(changes(ini, before), "");
  Config now = before;
  now.optim.lr = 2e-3;
  now.batch.global = 64;
  now.model.keys["dropout"] = "0.1";
  now.run.seed = 7;
  now.grid.sequence_parallel = true;
  EXPECT_EQ(changes(ini, now),
            "run.seed was 1, is 7; model.dropout was 0, is 0.1; batch.global was 32, is 64; "
            "optim.lr was 0.001, is 0.002; grid.sequence_parallel was false, is true");
  // A float that an earlier version wrote with the digits of a double.
  now = before;
  now.model.keys["dropout"] = "0.1";
  before.model.keys["dropout"] = "0.10000000149011612";
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  before.model.keys["dropout"] = "0.1000001";
  EXPECT_EQ(changes(config_to_ini(before), now), "model.dropout was 0.1000001, is 0.1");
  before.model.keys["dropout"] = "0";
  // Paths, logs, checkpoints and communication; and what is compared by what it comes to.
  now = before;
  now.run.folder = "elsewhere";
  now.run.resume = "never";
  now.run.threads = 3;
  now.run.accept_changes = true;
  now.data.train = {{"moved.h5"}};
  now.log.every = 7;
  now.checkpoint.keep = 9;
  now.comm.timeout = 5;
  now.grid[Axis::kTensor] = 2;
  EXPECT_EQ(changes(ini, now), "");
  now.comm.order = "any";
  now.comm.reduce = "bf16";
  EXPECT_EQ(changes(ini, now), "comm.order was tree, is any; comm.reduce was fp32, is bf16");
}

TEST(Config, WhereSumsDependOnTheAlgorithmTheNetworkAndTheOrderOfRanksCount) {
  const std::string others =
      "grid.order was auto, is rank; comm.network was auto, is none; comm.algorithms was auto, is "
      "all_reduce=tiered";
  for (const bool before_too : {false, true}) {
    for (const auto& [order, reduce] : std::vector<std::pair<std::string, std::string>>{
             {"tree", "fp32"}, {"any", "fp32"}, {"tree", "bf16"}}) {
      Config before;
      Config now;
      now.comm.order = order;
      now.comm.reduce = reduce;
      if (before_too) before = now;
      std::swap(before, now);
      now.grid.order = "rank";
      now.comm.network = "none";
      now.comm.algorithms = "all_reduce=tiered";
      now.comm.tune = true;  // a start that follows has its own measurements in any case
      std::string listed;
      for (const ChangedSetting& change : changed_settings(config_to_ini(before), "before", now)) {
        if (change.name == "comm.order" || change.name == "comm.reduce") continue;
        listed += (listed.empty() ? "" : "; ") + change.text();
        EXPECT_EQ(change.on_change, OnChange::kRounding);
      }
      EXPECT_EQ(listed, order == "tree" && reduce == "fp32" ? "" : others) << order << reduce;
    }
  }
}

TEST(Config, AlgorithmsAreNamedByCollective) {
  const Config config = parsed({"--comm.algorithms", "all_reduce=halving,broadcast=chain"});
  const auto chosen = chosen_algorithms(config.comm);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].collective, Collective::kAllReduce);
  EXPECT_EQ(chosen[0].algorithm, Algorithm::kHalving);
  EXPECT_EQ(chosen[1].algorithm, Algorithm::kChain);
  EXPECT_TRUE(chosen_algorithms(Config().comm).empty());
  EXPECT_EQ(
      parsed({"--comm.algorithms", "all_reduce=library", "--comm.order", "any"}).comm.algorithms,
      "all_reduce=library");
  const auto said = [](const std::string& value) { return refusal({"--comm.algorithms", value}); };
  // bad input: `train`: `comm.algorithms` names what does not exist, twice the same collective, or
  // an algorithm that `comm.order tree` does not allow | comm.algorithms WORD: no such algorithm of
  // all_reduce, there are ...; ... | 2
  EXPECT_EQ(
      said("all_reduce=halfing"),
      "comm.algorithms all_reduce=halfing: no such algorithm of all_reduce, there are direct, "
      "pairwise, stepwise, bruck, doubling, halving, binomial, tiered; did you mean halving?");
  EXPECT_EQ(
      refusal({"--comm.algorithms", "all_reduce=library-ring", "--comm.order", "any"}),
      "comm.algorithms all_reduce=library-ring: no such algorithm of all_reduce, there are "
      "direct, pairwise, stepwise, bruck, doubling, halving, binomial, tiered, ring, library");
  EXPECT_EQ(said("all_reduce=chain").find("comm.algorithms all_reduce=chain: no such algorithm"),
            0u);
  EXPECT_EQ(said("allreduce=halving"),
            "comm.algorithms allreduce=halving: no such collective, there are all_reduce, "
            "reduce_scatter, all_gather, broadcast, all_to_all; did you mean all_reduce?");
  EXPECT_EQ(said("exchange=direct").find("comm.algorithms exchange=direct: no such collective"),
            0u);
  EXPECT_EQ(said("reduce_scatter=ring"),
            "comm.algorithms reduce_scatter=ring: comm.order tree allows pairwise, stepwise, "
            "halving, tiered; "
            "comm.order any allows this one too");
  EXPECT_EQ(said("all_gather=ring"), "no error");  // adds nothing
  for (const char* word : {"halving", "all_reduce=halving,", ",", "all_reduce"}) {
    EXPECT_NE(said(word).find("must be auto or COLLECTIVE=ALGORITHM, as in all_reduce=halving"),
              std::string::npos)
        << word;
  }
  EXPECT_EQ(said("all_reduce=halving,all_reduce=tiered"),
            "comm.algorithms all_reduce=halving,all_reduce=tiered: all_reduce stands there twice");
}

TEST(Config, LengthsThatFollowFromTheStepsAreComparedAsWhatTheyComeTo) {
  const Config before;
  Config now = before;
  now.run.steps = 2000;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "run.steps was 1000, is 2000; schedule.decay was 900, is 1900");
  now.run.steps = 500;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "run.steps was 1000, is 500; schedule.warmup was 100, is 50; "
            "schedule.decay was 900, is 450");
  now = before;
  now.schedule.warmup = 100;  // what it was
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  now.schedule.name = "constant";
  EXPECT_EQ(changes(config_to_ini(before), now).find("schedule.name was cosine, is constant"), 0u);
  // The floor that a curve has without being told; earlier versions had no key for it.
  now = before;
  now.schedule.least = 0.1;
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  EXPECT_EQ(changes("[run]\nsteps = 1000\n[schedule]\nname = cosine\n", now), "");
  now.schedule.least = 0;
  EXPECT_EQ(changes(config_to_ini(before), now), "schedule.least was 0.1, is 0");
  now = before;
  now.schedule.name = "cosine_restarts";
  now.schedule.period = 300;
  now.schedule.period_factor = 2;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "schedule.name was cosine, is cosine_restarts; schedule.decay was 900, is auto; "
            "schedule.least was 0.1, is 0; schedule.period was auto, is 300; "
            "schedule.period_factor was 1, is 2");
  // Of a table what it holds counts, not its path (train/run_changes.h).
  now = before;
  now.schedule.name = "table";
  now.schedule.file = "rates.txt";
  EXPECT_EQ(changes(config_to_ini(now), now), "");
  const std::string with_table = config_to_ini(now);
  now.schedule.file = "other.txt";
  EXPECT_EQ(changes(with_table, now), "");
}

// Neither keys that an older version did not have, nor those of a newer one.
TEST(Config, WhatWasNotRecordedIsNotCompared) {
  Config now;
  now.batch.micro = 2;
  now.model.keys["width"] = "64";
  now.run.steps = 3;
  EXPECT_EQ(changes("[optim]\nlr = 0.5\nnovel = 3\n[new]\nkey = 1\n", now),
            "optim.lr was 0.5, is 0.001");
}

TEST(Config, ModelKeysStayUnsetUntilGiven) {
  const Config config = parsed({"--model.layers", "12"});
  EXPECT_EQ(config.model.keys, (OptionValues{{"layers", "12"}}));
  EXPECT_EQ(config_to_ini(config).find("width"), std::string::npos);
}

TEST(Config, TheFamilyOfModelsIsAKey) {
  EXPECT_EQ(parsed({}).model.family, "gpt");
  EXPECT_EQ(parsed({"--model.family", "gpt", "--model.heads", "2"}).model.keys.at("heads"), "2");
  // bad input: `train`: a family of models that does not exist | --model.family gtp: is not one of
  // gpt, bert, mobilenet_v2, resnet, vit | 2
  EXPECT_EQ(refusal({"--model.family", "gtp", "--model.depth", "3"}),
            "--model.family gtp: is not one of gpt, bert, mobilenet_v2, resnet, vit");
  EXPECT_EQ(message_of([] { models::find_family("gtp"); }),
            "model.family gtp: is not one of gpt, bert, mobilenet_v2, resnet, vit");
  // Runs of before there were families are of the first one.
  Config now;
  EXPECT_EQ(changes("[model]\nlayers = 6\n", now), "model.layers was 6, is auto");
  EXPECT_EQ(config_from_ini("[model]\nlayers = 6\n", "a.ini").model.family, "gpt");
  // A key that was not there yet had the value that it has without being given.
  Config other;
  other.model.keys = {{"layers", "6"}, {"vocabulary", "300"}, {"norm_epsilon", "1e-06"}};
  EXPECT_EQ(changes("[model]\nlayers = 6\nvocabulary = 300\n", other),
            "model.norm_epsilon was 1e-05, is 1e-06");
  EXPECT_EQ(changes("[model]\nfamily = novel\n", now), "");
}

TEST(Config, EveryFamilyHasItsOwnKeys) {
  const Config pictures =
      parsed({"--model.width_multiple", "0.5", "--model.family", "mobilenet_v2"});
  EXPECT_EQ(pictures.model.keys, (OptionValues{{"width_multiple", "0.5"}}));
  EXPECT_EQ(config_from_ini(config_to_ini(pictures), "a.ini"), pictures);
  EXPECT_EQ(config_to_flags(pictures),
            (std::vector<std::string>{"--model.family=mobilenet_v2", "--model.width_multiple=0.5",
                                      "--data.train=a.h5"}));
  // bad input: `train`: a key of another family of models | --model.layers is a key of model.family
  // gpt, bert, vit, not of mobilenet_v2 | 2
  EXPECT_EQ(refusal({"--model.layers", "3", "--model.family", "mobilenet_v2"}),
            "--model.layers is a key of model.family gpt, bert, vit, not of mobilenet_v2");
  EXPECT_EQ(refusal({"--model.classes", "3"}),
            "--model.classes is a key of model.family mobilenet_v2, resnet, vit, not of gpt");
  EXPECT_EQ(
      message_of([] { config_from_ini("[model]\nfamily = mobilenet_v2\nlayers = 6\n", "a.ini"); }),
      "a.ini:3: model.layers is a key of model.family gpt, bert, vit, not of mobilenet_v2");
  EXPECT_EQ(
      refusal({"--model.layer", "3", "--model.family", "mobilenet_v2"}),
      "unknown flag --model.layer; model has family, preset, width_multiple, dropout, classes, "
      "image, stem, batch_norm, label_smoothing");
  // The help shows all of them, or those of the family that was given.
  EXPECT_NE(config_help().find("model, with model.family mobilenet_v2:"), std::string::npos);
  EXPECT_NE(config_help().find("--model.width_multiple X"), std::string::npos);
  EXPECT_NE(config_help().find("--model.layers N"), std::string::npos);
  const auto help = parse_config({"--help", "--model.family", "mobilenet_v2"}).help;
  EXPECT_EQ(help_text(*help).find("--model.layers"), std::string::npos);
  EXPECT_NE(help_text(*help).find("--model.width_multiple X"), std::string::npos);
}

TEST(Config, StepsMayBeGivenInEpochs) {
  Config config =
      parsed({"--run.steps", "10ep", "--schedule.warmup=0.5ep", "--eval.every", "1ep",
              "--checkpoint.every", "2ep", "--check.copies", "7", "--batch.global", "128"});
  EXPECT_EQ(config.run.steps.epochs(), 10.0);
  EXPECT_THROW(std::int64_t{config.run.steps}, InternalError);  // the data are not known yet
  EXPECT_EQ(config_from_ini(config_to_ini(config), "a.ini"), config);
  EXPECT_NE(config_to_ini(config).find("warmup = 0.5ep"), std::string::npos);
  EXPECT_EQ(config_to_flags(config).at(0), "--run.steps=10ep");
  resolve_epochs(config, 50000);
  EXPECT_EQ(config.run.steps, 3907);  // the last one reads beyond the last epoch
  EXPECT_EQ(*config.schedule.warmup, 196);
  EXPECT_EQ(config.eval.every, 391);
  EXPECT_EQ(*config.checkpoint.every, 782);
  EXPECT_EQ(config.check.copies, 7);
  Config restarts = parsed({"--run.steps", "100", "--schedule.name", "cosine_restarts",
                            "--schedule.period", "2ep", "--batch.global", "128"});
  resolve_epochs(restarts, 1280);
  EXPECT_EQ(*restarts.schedule.period, 20);
  EXPECT_EQ(*schedule_options(restarts)->period, 20);
  Config tiny = parsed({"--run.steps", "0.001ep", "--schedule.warmup", "0"});
  resolve_epochs(tiny, 10);
  EXPECT_EQ(tiny.run.steps, 1);
  // bad input: `train`: more epochs than steps can be counted | 1000000ep of 1000000000 samples are
  // 1000000000000000 steps of 1: at most 100000000000 can be | 2
  Config endless = parsed({"--run.steps", "1000000ep", "--batch.global=1", "--batch.micro=1"});
  EXPECT_EQ(message_of([&] { resolve_epochs(endless, 1'000'000'000); }),
            "1000000ep of 1000000000 samples are 1000000000000000 steps of 1: at most 100000000000 "
            "can be");
  // What needs the steps is checked when they are known.
  Config late = parsed({"--run.steps", "1ep", "--schedule.warmup", "500"});
  EXPECT_EQ(message_of([&] { resolve_epochs(late, 320); }),
            "schedule.warmup is 500 steps: 0 to run.steps (10) is possible");
  // bad input: `train`: epochs that are none | --run.steps 0ep: must be above 0 and at most 1000000
  // (of epochs, as in 10ep) | 2
  EXPECT_EQ(refusal({"--run.steps", "0ep"}),
            "--run.steps 0ep: must be above 0 and at most 1000000 (of epochs, as in 10ep)");
  EXPECT_EQ(refusal({"--run.steps", "fewep"}),
            "--run.steps fewep: is not a number (of epochs, as in 10ep)");
  EXPECT_EQ(refusal({"--log.every", "1ep"}), "--log.every 1ep: is not a whole number");
  // bad input: `train`: steps that are neither a number nor epochs | --run.steps 10epochs: is not a
  // whole number, nor epochs as in 10ep | 2
  EXPECT_EQ(refusal({"--run.steps", "10epochs"}),
            "--run.steps 10epochs: is not a whole number, nor epochs as in 10ep");
  EXPECT_EQ(refusal({"--run.steps", "99999999999999999999"}),
            "--run.steps 99999999999999999999: is out of range");
}

// The shares of an epoch are not exact in binary.
TEST(Config, EpochsAreNotRoundedUpOnNoise) {
  const auto steps_of = [](const char* epochs) {
    Config config = parsed(
        {"--run.steps", epochs, "--schedule.warmup=0", "--batch.global=100", "--batch.micro=100"});
    resolve_epochs(config, 100'000);
    return std::int64_t{config.run.steps};
  };
  EXPECT_EQ(steps_of("0.07ep"), 70);
  EXPECT_EQ(steps_of("0.14ep"), 140);
  EXPECT_EQ(steps_of("0.55ep"), 550);
  EXPECT_EQ(steps_of("0.070001ep"), 71);  // one tenth of a sample more
}

TEST(Config, OnlyEpochsOfTheScheduleDeferItsCheck) {
  const std::vector<std::string> too_long = {"--run.steps", "10", "--schedule.warmup", "500"};
  const char* const refused = "schedule.warmup is 500 steps: 0 to run.steps (10) is possible";
  EXPECT_EQ(refusal(too_long), refused);
  for (const char* other : {"--eval.every=1ep", "--check.copies=1ep", "--checkpoint.every=1ep"}) {
    std::vector<std::string> with_other = too_long;
    with_other.emplace_back(other);
    EXPECT_EQ(refusal(with_other), refused) << other;
  }
  EXPECT_EQ(refusal({"--run.steps", "10ep", "--schedule.warmup", "500"}), "no error");
  EXPECT_EQ(refusal({"--run.steps", "10", "--schedule.warmup", "500ep"}), "no error");
  EXPECT_EQ(refusal({"--run.steps", "10", "--schedule.decay", "500ep"}), "no error");
  EXPECT_EQ(refusal({"--run.steps", "10", "--schedule.warmup", "500", "--schedule.name",
                     "cosine_restarts", "--schedule.period", "1ep"}),
            "no error");
}

TEST(Config, AliasesStandForKeysOfRun) {
  const Config config = parsed({"--threads", "3", "--resume", "never", "--device", "cpu"});
  EXPECT_EQ(config.run.threads, 3);
  EXPECT_EQ(config.run.resume, "never");
}

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

TEST(Config, UnknownFlags) {
  EXPECT_EQ(refusal({"--optim.rl", "1"}), "unknown flag --optim.rl; did you mean --optim.lr?");
  EXPECT_EQ(refusal({"--lr", "1"}), "unknown flag --lr; did you mean --optim.lr?");
  EXPECT_EQ(refusal({"--thread", "1"}), "unknown flag --thread; did you mean --threads?");
  EXPECT_EQ(refusal({"--model.head", "1"}),
            "unknown flag --model.head; did you mean --model.heads?");
  EXPECT_EQ(refusal({"--frobnicate", "1"}), "unknown flag --frobnicate; --help lists them all");
}

// The text of one key in --help, with single spaces.
std::string help_of(const std::string& name) {
  const std::string help = config_help();
  const std::size_t at = help.find("\n  --" + name + " ");
  if (at == std::string::npos) return "";
  std::istringstream words(help.substr(at, help.find("\n  --", at + 1) - at));
  std::string text, word;
  while (words >> word) text += word + ' ';
  return text;
}

TEST(Config, HelpNamesEveryKeyWithItsDefault) {
  EXPECT_TRUE(parse_config({"--help"}).help);
  Config config;
  Options options("");
  add_config_keys(options, config);
  for (const std::string& name : options.names()) {
    EXPECT_NE(help_of(name).find("default "), std::string::npos) << name << ": " << help_of(name);
  }
  // The defaults are those that a configuration starts with.
  std::istringstream lines(config_to_ini(config));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2);
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string key = section + "." + line.substr(0, equals);
    const std::string value = line.substr(equals + 3);
    const std::string expected = fmt::format("default {}]", value == "\"\"" ? "none" : value);
    EXPECT_NE(help_of(key).find(expected), std::string::npos) << help_of(key);
  }
}

TEST(Config, HelpNamesUnitsAndChoices) {
  for (const auto& [key, unit] :
       std::vector<std::pair<std::string, std::string>>{{"run.steps", "steps"},
                                                        {"model.width", "channels"},
                                                        {"model.context", "tokens"},
                                                        {"batch.global", "samples"},
                                                        {"grid.pipeline", "stages"},
                                                        {"comm.timeout", "seconds"},
                                                        {"schedule.warmup", "steps"},
                                                        {"checkpoint.keep", "checkpoints"},
                                                        {"data.train", "HDF5 shards"},
                                                        {"run.threads", "threads per rank"}}) {
    EXPECT_NE(help_of(key).find(fmt::format("[{}; default ", unit)), std::string::npos)
        << help_of(key);
  }
  EXPECT_EQ(
      help_of("grid.schedule"),
      "--grid.schedule TEXT pipeline schedule; interleaved: 1F1B over grid.chunks parts of the "
      "model on each stage, for less idle time and more messages; zb-h1: 1F1B whose weight "
      "gradients fill idle time; zb-v: the same over two chunks in a V, with the least idle "
      "time; both hold as much on every stage as 1f1b does on the first: gpipe, 1f1b, "
      "interleaved, zb-h1, zb-v [default 1f1b] ");
  EXPECT_EQ(
      help_of("run.device"),
      "--run.device TEXT where to compute; cuda: each rank on a GPU; auto: cuda where every rank "
      "sees a GPU, else cpu: auto, cpu, cuda [default auto] (also --device) ");
  EXPECT_NE(help_of("config"), "");
}

TEST(Config, HelpFitsATerminalOf100Columns) {
  std::istringstream lines(config_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace trireme
