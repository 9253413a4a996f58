// Keys, and how they are written and read.
#include "trireme/config/config.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/schedule_options.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::changes;
using testing::message_of;
using testing::parsed;
using testing::refusal;

// Every key with another value than its default.
Config every_key_changed() {
  Config config;
  config.run = {"out folder", 7, 3, 2, "a/step.h5", "b.h5", "head", true, "cuda", "fp16", true};
  config.model.keys = {{"preset", "gpt2-124m"},
                       {"layers", "3"},
                       {"width", "48"},
                       {"heads", "6"},
                       {"kv_heads", "2"},
                       {"hidden", "96"},
                       {"vocabulary", "500"},
                       {"context", "32"},
                       {"norm", "rms"},
                       {"activation", "swiglu"},
                       {"positions", "rotary"},
                       {"tied", "true"},
                       {"bias", "false"},
                       {"dropout", "0.125"},
                       {"rotary_theta", "500000"},
                       {"norm_epsilon", "0.001"},
                       {"head_size", "16"},
                       {"block", "both"},
                       {"norm_plus_one", "true"},
                       {"query_key_norm", "head"},
                       {"qkv_bias", "true"},
                       {"output_bias", "true"},
                       {"mlp_bias", "true"},
                       {"norm_bias", "false"},
                       {"attention_scale", "0.25"},
                       {"attention_cap", "50"},
                       {"window", "16"},
                       {"window_layers", "110"},
                       {"rotary_scaling", "linear factor=2"},
                       {"rotary_share", "0.5"},
                       {"rotary_pairs", "adjacent"},
                       {"rotary_layers", "101"},
                       {"window_theta", "1000"},
                       {"window_scaling", "none"},
                       {"embedding_scale", "8"},
                       {"residual_scale", "0.5"},
                       {"logit_scale", "0.25"},
                       {"logit_cap", "30"},
                       {"logits", "bf16"}};
  config.data = {
      {{"a.h5", 1}, {"b,c.h5", 0.1}}, {{"v.h5", 1}}, true, 0.3, "random", 4, true, 0.25, 2.0, 3};
  config.batch = {24, 8, 3, BatchBalance::automatic({2, 1})};
  config.optim = {"sgd",      0.1 + 0.2, 0.01, "coupled", 0.8, 0.999,         1e-6,
                  true,       0,         3.5,  4.5,       0.5, true,          "*.bias: lr=2",
                  "original", "bf16",    true, 0.25,      10,  0.01,          2,
                  -0.5,       "ema",     0.5,  7,         5,   "embedding.*", "128",
                  50,         "split"};
  config.schedule = {"wsd", 2, 3, 0.25, 0.2, 4, 2, "rates.txt"};
  config.grid = {2, 3, 4, "interleaved", 4, StageCut::automatic({5, 3}), true, "rank", 5};
  config.sync = {20, "average", 0.5, 0.25, 6, 7, 8, 0.75, "int4", "island-1", 11, 3, 0.25, 12, 13};
  config.shard = {3, 4, 2};
  config.recompute = {"full", 2, 3};
  config.cuda.spare = 4;
  config.cuda.products = "products.json";
  config.attention = {false};
  config.eval = {5, 6, "average"};
  config.log = {11, "3-4", true, 1.5};
  config.checkpoint = {12, 7.25, 13, 4.5};
  config.check = {14};
  config.plan = {0.5, 0.25, 0.75, 64, "h100", "ndr400-fat-tree"};
  config.comm = {"nccl", 2.5, "rates.json", "any", "bf16", "int8", "all_reduce=ring", true};
  config.nccl = {"table", 2, 8, 4, 106, true, "IB", "zero", 16};
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
  EXPECT_EQ(options.names().size(), 172u);
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

// The default of checkpoint.every is a number.
TEST(Config, AKeyWithADefaultMayBeWrittenAsAuto) {
  const Config config = parsed({"--checkpoint.every", "auto", "--checkpoint.mtbf", "24"});
  EXPECT_EQ(config.checkpoint.every, std::nullopt);
  EXPECT_EQ(config_from_ini(config_to_ini(config), "x.ini"), config) << config_to_ini(config);
  EXPECT_EQ(std::ranges::count(config_to_flags(config), "--checkpoint.every=auto"), 1);
  EXPECT_EQ(changes(config_to_ini(config), config), "");
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
  // A step takes batch.global samples on each island.
  Config islands = parsed({"--run.steps", "10ep", "--batch.global", "64", "--grid.islands", "2"});
  resolve_epochs(islands, 50000);
  EXPECT_EQ(islands.run.steps, 3907);
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

}  // namespace
}  // namespace trireme
