// Keys of the optimizer and of the learning rate that a configuration refuses, and what it reads in
// them.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/config/config.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/config/schedule_options.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::Arguments;
using testing::parsed;
using testing::refusal;

TEST(Config, LossScalesAreForFp16) {
  EXPECT_EQ(refusal({"--run.precision", "fp16"}), "no error");
  EXPECT_EQ(refusal({"--run.precision", "fp16", "--optim.loss_scale", "128"}), "no error");
  for (const char* wrong : {"-1", "0", "65536", "many", "nan"}) {
    EXPECT_EQ(refusal({"--run.precision", "fp16", "--optim.loss_scale", wrong}),
              fmt::format("optim.loss_scale {}: must be dynamic, or from 1e-30 to 32768", wrong));
  }
  EXPECT_EQ(refusal({"--run.precision", "bf16", "--optim.loss_scale", "128"}),
            "optim.loss_scale is 128, but run.precision is bf16: only fp16 needs one, so leave it "
            "out");
  // bad input: `train`: `optim.loss_scale_interval` without a loss scale that is searched for |
  // optim.loss_scale_interval is 15, but run.precision is fp32: only fp16 has a loss scale, so
  // leave it out | 2
  EXPECT_EQ(refusal({"--optim.loss_scale_interval", "15"}),
            "optim.loss_scale_interval is 15, but run.precision is fp32: only fp16 has a loss "
            "scale, so leave it out");
  EXPECT_EQ(refusal({"--optim.loss_scale_interval", "15", "--run.precision", "fp16",
                     "--optim.loss_scale", "128"}),
            "optim.loss_scale_interval is 15, but optim.loss_scale is 128: only dynamic doubles, "
            "so leave it out");
  EXPECT_EQ(refusal({"--optim.loss_scale_interval", "15", "--run.precision", "fp16"}), "no error");
  EXPECT_EQ(fixed_loss_scale("dynamic"), std::nullopt);
  EXPECT_EQ(fixed_loss_scale("0.5"), 0.5);
}

TEST(Config, SplitMastersAreForBf16AndRulesThatTakeThem) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--optim.masters", "split"});
    return refusal(more);
  };
  // bad input: `train`: `optim.masters split` without `run.precision bf16`, with a rule that needs
  // its values in one piece, or with `optim.average` | optim.masters is split, but run.precision is
  // fp32, and only weights in bf16 are a part of fp32 values: give optim.masters fp32, or leave it
  // out | 2
  for (const std::string precision : {"fp32", "tf32", "fp16"}) {
    EXPECT_EQ(
        with({"--run.precision", precision}),
        fmt::format("optim.masters is split, but run.precision is {}, and only weights in "
                    "bf16 are a part of fp32 values: give optim.masters fp32, or leave it out",
                    precision));
  }
  const auto in_bf16 = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--run.precision", "bf16"});
    return with(more);
  };
  for (const std::string rule : {"adam", "adamw", "lion", "muon", "sgd"}) {
    EXPECT_EQ(in_bf16({"--optim.name", rule}), "no error");
  }
  for (const std::string rule : {"adafactor", "lamb", "lars"}) {
    const std::string expected = fmt::format(
        "optim.masters is split, but {} needs fp32 values that lie in one piece: give "
        "optim.masters fp32, or leave it out",
        rule);
    EXPECT_EQ(in_bf16({"--optim.name", rule}), expected);
    EXPECT_EQ(in_bf16({"--optim.groups", "embedding.*: " + rule}), expected);
  }
  EXPECT_EQ(in_bf16({"--optim.name", "schedule_free", "--schedule.name", "constant"})
                .find("optim.masters is split, but schedule_free needs "),
            0u);
  EXPECT_EQ(in_bf16({"--optim.average", "ema"}),
            "optim.masters is split, but optim.average is ema, and evaluations of the average take "
            "the place of the weights, which are a part of the values that the steps go on from: "
            "give optim.masters fp32, or leave it out");
}

TEST(Config, GroupsOfParametersHaveRulesOfTheirOwn) {
  const auto optimizer = [](const std::string& groups) {
    Config config;
    config.optim.name = "muon";
    config.optim.groups = groups;
    return optimizer_of(config);
  };
  const auto read = optimizer(" token.*,head.* : lion lr=0.5; *.bias:decay=0 lr=2;");
  ASSERT_EQ(read.groups.size(), 2u);
  EXPECT_EQ(read.groups[0].names, NamePatterns({"token.*", "head.*"}));
  EXPECT_EQ(read.groups[0].rule->name, "lion");
  EXPECT_EQ(read.groups[0].rule->beta2, 0.99f);  // Lion's own default
  EXPECT_EQ(read.groups[0].rate, 0.5f);
  EXPECT_EQ(read.groups[1].rule, std::nullopt);
  EXPECT_EQ(read.groups[1].decay, 0.0f);
  EXPECT_EQ(read.groups[1].rate, 2.0f);
  EXPECT_TRUE(optimizer("none").groups.empty());
  const std::string expected =
      "; expected PATTERN,...: [RULE] [lr=FACTOR] [decay=FACTOR], and ; between groups, as in "
      "'embedding.*: lr=0.5; *.down.weight: lion lr=0.1'";
  const auto refused = [&](const std::string& groups) {
    return refusal({"--optim.groups", groups});
  };
  EXPECT_EQ(refused(" ;"), "optim.groups:  ; holds no group" + expected);
  EXPECT_EQ(refused("token.*,: lr=2"),
            "optim.groups: token.*,: lr=2 holds an empty pattern" + expected);
  EXPECT_EQ(refused("token.*"), "optim.groups: token.* has no colon" + expected);
  EXPECT_EQ(refused("token.*:"),
            "optim.groups: token.*: says nothing of its parameters" + expected);
  EXPECT_EQ(refused("*: adagrad"),
            "optim.groups: *: adagrad names no optimizer: adagrad is none of adafactor, adam, "
            "adamw, lamb, lars, lion, "
            "muon, schedule_free, sgd" +
                expected);
  EXPECT_TRUE(
      refused("*: lionn").starts_with("optim.groups: *: lionn names no optimizer: lionn is"));
  EXPECT_TRUE(refused("*: lionn").ends_with(", sgd; did you mean lion?" + expected));
  // bad input: `train`: an optimizer or a factor twice in a group of `optim.groups` | optim.groups:
  // *: lamb lars has more than one optimizer; expected ... | 2
  EXPECT_EQ(refused("*: lamb lars"),
            "optim.groups: *: lamb lars has more than one optimizer" + expected);
  EXPECT_EQ(refused("*: lion lion"),
            "optim.groups: *: lion lion has more than one optimizer" + expected);
  EXPECT_EQ(refused("*: lr=1 lion lr=2"),
            "optim.groups: *: lr=1 lion lr=2 has more than one lr" + expected);
  EXPECT_EQ(refused("*: decay=0 decay=0"),
            "optim.groups: *: decay=0 decay=0 has more than one decay" + expected);
  EXPECT_EQ(refused("*: eps=2"), "optim.groups: *: eps=2 has no eps" + expected);
  EXPECT_EQ(refused("*: lr=-1"),
            "optim.groups: *: lr=-1 has a factor that is no number from 0: lr=-1" + expected);
}

TEST(Config, KeysOfARuleNeedIt) {
  for (const auto& [key, value, rule] : {std::tuple("lamb_clip", "10", "lamb"),
                                         {"lars_coefficient", "0.01", "lars"},
                                         {"adafactor_clip", "2", "adafactor"},
                                         {"adafactor_decay", "-0.5", "adafactor"}}) {
    const std::string flag = fmt::format("--optim.{}", key);
    EXPECT_EQ(refusal({flag, value}),
              fmt::format("optim.{} is given, but optim.name is adamw: only {} has it, so leave it "
                          "out",
                          key, rule));
    EXPECT_EQ(refusal({flag, value, "--optim.name", rule}), "no error");
    EXPECT_EQ(refusal({flag, value, "--optim.groups", fmt::format("*.up.weight: {}", rule)}),
              "no error");
  }
  // bad input: `train`: a key of `optim.*` that no rule of the run has | optim.momentum is given,
  // but optim.name is adamw: only lars, muon, sgd have it, so leave it out, or give auto | 2
  EXPECT_EQ(
      refusal({"--optim.momentum", "0.95"}),
      "optim.momentum is given, but optim.name is adamw: only lars, muon, sgd have it, so leave "
      "it out, or give auto");
  for (const optim::RuleKind& kind : optim::rule_kinds()) {
    Arguments name = {"--optim.name", std::string(kind.name)};
    if (kind.averages_weights) name.insert(name.end(), {"--schedule.name", "constant"});
    for (const char* key : {"beta1", "beta2", "eps", "momentum"}) {
      Arguments given = name;
      given.insert(given.end(), {fmt::format("--optim.{}", key), "0.25"});
      // Muon leaves vectors to AdamW.
      if (kind.has(key) || (kind.of_matrices && optim::rule_kind("adamw").has(key))) {
        EXPECT_EQ(refusal(given), "no error") << kind.name;
      } else {
        EXPECT_TRUE(refusal(given).starts_with(
            fmt::format("optim.{} is given, but optim.name is {}: only ", key, kind.name)));
        given.back() = "auto";
        EXPECT_EQ(refusal(given), "no error");
        given.back() = "0.25";
        given.insert(given.end(), {"--optim.groups", "*.up.weight: adamw; *.down.weight: sgd"});
        EXPECT_EQ(refusal(given), "no error");
      }
    }
    // Earlier versions recorded these, whatever the rule was, and it was AdamW, Adam or SGD.
    const std::string record =
        "[optim]\nbeta1 = 0.9\nbeta2 = 0.95\neps = 1e-08\nmomentum = 0.9\nnesterov = false\n";
    Arguments from_record = {"--data.train", "x", "--config", "run/config.ini"};
    from_record.insert(from_record.end(), name.begin(), name.end());
    EXPECT_NO_THROW(parse_config(from_record, {}, [&](const std::string&) { return record; }));
  }
  Config config;
  config.optim.name = "lamb";
  EXPECT_EQ(optimizer_of(config).rule, optim::rule_kind("lamb").defaults);
  config.optim.name = "lars";
  EXPECT_EQ(optimizer_of(config).rule, optim::rule_kind("lars").defaults);
  config.optim.name = "adafactor";
  EXPECT_EQ(optimizer_of(config).rule, optim::rule_kind("adafactor").defaults);
  EXPECT_EQ(with_defaults_of_rule(config.optim).lr, 0.01);
}

TEST(Config, KeysOfTheAverageNeedIt) {
  const std::string none =
      " is given, but optim.average is none: give --optim.average ema or swa, or leave it out";
  EXPECT_EQ(refusal({"--eval.weights", "average"}), "eval.weights average" + none);
  EXPECT_EQ(refusal({"--optim.recompute_norms", "8"}), "optim.recompute_norms" + none);
  EXPECT_EQ(refusal({"--optim.average_from", "10"}), "optim.average_from" + none);
  EXPECT_EQ(refusal({"--optim.average_decay", "0.99", "--optim.average", "swa"}),
            "optim.average_decay is given, but optim.average is not ema: leave it out");
  // bad input: `train`: `optim.recompute_norms` of a model without batch norms |
  // optim.recompute_norms is given, but model.family gpt has no batch norms: leave it out | 2
  EXPECT_EQ(
      refusal({"--optim.average", "ema", "--optim.recompute_norms", "8"}),
      "optim.recompute_norms is given, but model.family gpt has no batch norms: leave it out");
  EXPECT_EQ(refusal({"--optim.average", "ema", "--optim.recompute_norms", "8", "--model.family",
                     "resnet"}),
            "no error");
  EXPECT_EQ(refusal({"--optim.average", "ema", "--optim.average_decay", "0.99", "--eval.weights",
                     "average", "--optim.average_from", "2ep"}),
            "no error");
  Config config;
  EXPECT_EQ(optimizer_of(config).average, std::nullopt);
  config.optim.average = "swa";
  config.optim.average_from = 7;
  EXPECT_EQ(optimizer_of(config).average, (ops::WeightAverage{.decay = 1.0f, .from = 7}));
}

TEST(Config, ScheduleFreeHasNoOtherSchedule) {
  EXPECT_EQ(refusal({"--optim.name", "schedule_free"}),
            "schedule.name is cosine, but schedule_free's average takes the place of a decay: give "
            "--schedule.name constant, which has a warm-up, too");
  EXPECT_EQ(refusal({"--optim.name", "schedule_free", "--schedule.name", "constant"}), "no error");
  EXPECT_EQ(refusal({"--optim.groups", "*.up.weight: schedule_free", "--schedule.name", "constant",
                     "--optim.average", "ema"}),
            "optim.average is given, but schedule_free averages the weights itself: leave it out");
  const Arguments constant = {"--optim.name", "schedule_free", "--schedule.name", "constant"};
  for (const auto& [key, value] :
       {std::pair("eval.weights", "average"), {"optim.average_from", "10"}}) {
    Arguments given = constant;
    given.insert(given.end(), {fmt::format("--{}", key), value});
    const std::string said = refusal(given);
    EXPECT_TRUE(said.ends_with("schedule_free's weights are an average themselves: leave it out"))
        << said;
  }
}

TEST(Config, KeysOfMuonNeedMuon) {
  const std::string why = " is given, but optim.name is adamw: only muon has it, so leave it out";
  EXPECT_EQ(refusal({"--optim.adamw_lr", "1"}), "optim.adamw_lr" + why + ", or give auto");
  EXPECT_EQ(refusal({"--optim.adamw_lr", "1", "--optim.groups", "*.up.weight: muon"}),
            "optim.adamw_lr" + why + ", or give auto");
  EXPECT_EQ(refusal({"--optim.muon_scale", "original"}), "optim.muon_scale" + why);
  EXPECT_EQ(refusal({"--optim.muon_precision", "bf16"}),
            "optim.muon_precision" + why + ", or give auto");
  EXPECT_EQ(refusal({"--optim.muon_heads", "true"}), "optim.muon_heads" + why);
  EXPECT_EQ(refusal({"--optim.muon_heads", "true", "--optim.groups", "*.up.weight: muon"}),
            "no error");
  Config config;
  config.optim.name = "muon";
  EXPECT_EQ(optimizer_of(config).others.rate, 1.0f);
  EXPECT_EQ(with_defaults_of_rule(config.optim).lr, 1e-3);
  config.optim.muon_scale = "original";
  EXPECT_EQ(with_defaults_of_rule(config.optim).lr, 0.02);
  EXPECT_EQ(optimizer_of(config).others.rate, 0.05f);
}

TEST(Config, TheOptimizerSaysHowWeightsDecay) {
  const auto coupled = [](const char* name, std::optional<std::string> decay) {
    Config config;
    config.optim.name = name;
    config.optim.decay = std::move(decay);
    return optimizer_of(config).rule.coupled_decay;
  };
  EXPECT_TRUE(coupled("adam", {}));
  EXPECT_FALSE(coupled("adamw", {}));
  EXPECT_FALSE(coupled("sgd", {}));
  EXPECT_TRUE(coupled("sgd", "coupled"));
  for (const auto& [name, decay] :
       {std::pair("adam", "coupled"), {"adamw", "decoupled"}, {"sgd", "coupled"}}) {
    EXPECT_EQ(refusal({"--optim.name", name, "--optim.decay", decay}), "no error");
  }
  // bad input: `train`: `optim.decay` that the optimizer's name contradicts | optim.decay is
  // decoupled, but optim.name is adam: give --optim.name adamw, which is the same with such decay |
  // 2
  EXPECT_EQ(refusal({"--optim.name", "adam", "--optim.decay", "decoupled"}),
            "optim.decay is decoupled, but optim.name is adam: give --optim.name adamw, which is "
            "the same with such decay");
  EXPECT_EQ(refusal({"--optim.decay", "coupled"}),
            "optim.decay is coupled, but optim.name is adamw: give --optim.name adam, which is the "
            "same with such decay");
}

TEST(Config, NesterovNeedsMomentum) {
  EXPECT_EQ(refusal({"--optim.name", "sgd", "--optim.nesterov", "true"}), "no error");
  EXPECT_EQ(
      refusal({"--optim.nesterov", "true"}),
      "optim.nesterov is given, but optim.name is adamw: only lars, muon, sgd have it, so leave "
      "it out, or give auto");
  // bad input: `train`: `optim.nesterov` without momentum | optim.nesterov is true, but
  // optim.momentum is 0: give it one, such as 0.9 | 2
  EXPECT_EQ(refusal({"--optim.name", "sgd", "--optim.nesterov", "true", "--optim.momentum", "0"}),
            "optim.nesterov is true, but optim.momentum is 0: give it one, such as 0.9");
  // In the optimizer's single precision it is 0.
  EXPECT_EQ(
      refusal({"--optim.name", "sgd", "--optim.nesterov", "true", "--optim.momentum", "1e-50"}),
      "optim.nesterov is true, but optim.momentum is 0: give it one, such as 0.9");
}

TEST(Config, NumbersAreAsSinglePrecisionHasThem) {
  // bad input: `train`: a share below 1 that fp32 rounds to 1 | --optim.beta1 0.99999999: must be
  // at least 0 and below 1, but fp32 rounds it to 1 | 2
  for (const char* key :
       {"optim.beta1", "optim.beta2", "optim.momentum", "optim.average_decay", "model.dropout"}) {
    EXPECT_EQ(refusal({fmt::format("--{}", key), "0.99999999"}),
              fmt::format(
                  "--{} 0.99999999: must be at least 0 and below 1, but fp32 rounds it to 1", key));
  }
  EXPECT_EQ(refusal({"--optim.beta1", "0.9999999"}), "no error");
  // bad input: `train`: a limit of gradients or steps so small that fp32 has 0 | optim.clip is
  // 1e-50: must be at least 1e-30, or 0 for no limit | 2
  for (const char* key : {"optim.clip", "optim.clip_each", "optim.clip_value", "optim.lamb_clip"}) {
    const auto with = [&](const char* value) {
      return refusal({"--optim.name", "lamb", fmt::format("--{}", key), value});
    };
    EXPECT_EQ(with("1e-50"),
              fmt::format("{} is 1e-50: must be at least 1e-30, or 0 for no limit", key));
    EXPECT_EQ(with("1e-30"), "no error");
    EXPECT_EQ(with("0"), "no error");
  }
}

TEST(Config, AdafactorSquaresItsEpsilon) {
  // bad input: `train`: `optim.eps` whose square fp32 cannot hold, for Adafactor | optim.eps is
  // 1e-30, but adafactor squares it, which fp32 cannot hold: give at least 1.1e-19; where others
  // have 1e-30 as epsilon1, that is the square: give 1e-15 | 2
  const std::string why =
      "optim.eps is 1e-30, but adafactor squares it, which fp32 cannot hold: give at least "
      "1.1e-19; "
      "where others have 1e-30 as epsilon1, that is the square: give 1e-15";
  EXPECT_EQ(refusal({"--optim.name", "adafactor", "--optim.eps", "1e-30"}), why);
  EXPECT_EQ(refusal({"--optim.groups", "*.up.weight: adafactor", "--optim.eps", "1e-30"}), why);
  for (const char* taken : {"1.1e-19", "1e-15", "auto"}) {
    EXPECT_EQ(refusal({"--optim.name", "adafactor", "--optim.eps", taken}), "no error");
  }
  EXPECT_EQ(refusal({"--optim.eps", "1e-30"}), "no error");
}

TEST(Config, AStepDropsTheLearningRateByAFactor) {
  const Config config =
      parse_config({"--data.train", "x", "--schedule.name", "step", "--schedule.factor", "0.25"})
          .config;
  EXPECT_EQ(schedule_options(config)->factor, 0.25);
  for (const char* wrong : {"0", "-1", "1.5"}) {
    EXPECT_TRUE(refusal({"--schedule.factor", wrong}).starts_with("--schedule.factor ")) << wrong;
  }
}

TEST(Config, AKeyOfAnotherCurveIsRefused) {
  // bad input: `train`: a key of `schedule.*` that the curve does not have | schedule.decay is
  // given, but schedule.name is constant: only linear, cosine, step, wsd have it, so leave it out |
  // 2
  const std::vector<std::pair<Arguments, const char*>> givens = {
      {{"--schedule.warmup", "1"},
       "constant, linear, cosine, cosine_restarts, step, wsd, inverse_sqrt have"},
      {{"--schedule.decay", "1"}, "linear, cosine, step, wsd have"},
      {{"--schedule.factor", "0.5"}, "step has"},
      {{"--schedule.least", "0.5"},
       "linear, cosine, cosine_restarts, step, wsd, inverse_sqrt have"},
      {{"--schedule.period", "5"}, "cosine_restarts has"},
      {{"--schedule.period_factor", "2"}, "cosine_restarts has"},
      {{"--schedule.file", "F"}, "table has"}};
  for (const optim::LearningRateCurveKind& kind : optim::learning_rate_curves()) {
    for (const auto& [given, who] : givens) {
      Arguments arguments = {"--schedule.name", std::string(kind.name)};
      if (kind.has("period")) arguments.insert(arguments.end(), {"--schedule.period", "7"});
      if (kind.has("file")) arguments.insert(arguments.end(), {"--schedule.file", "G"});
      arguments.insert(arguments.end(), given.begin(), given.end());
      const std::string key = given.front().substr(2);
      EXPECT_EQ(refusal(arguments),
                kind.has(key.substr(key.find('.') + 1))
                    ? "no error"
                    : fmt::format("{} is given, but schedule.name is {}: only {} it, so leave it "
                                  "out",
                                  key, kind.name, who));
    }
  }
}

TEST(Config, ACurveNeedsItsPeriodOrItsFile) {
  // bad input: `train`: `schedule.name cosine_restarts` without a period, or `table` without a file
  // | schedule.name is cosine_restarts, which needs a period: give the steps to the first restart,
  // as in --schedule.period 10ep; ... | 2
  EXPECT_EQ(refusal({"--schedule.name", "cosine_restarts"}),
            "schedule.name is cosine_restarts, which needs a period: give the steps to the first "
            "restart, as in --schedule.period 10ep");
  EXPECT_EQ(refusal({"--schedule.name", "cosine_restarts", "--run.steps", "10ep"}),
            "schedule.name is cosine_restarts, which needs a period: give the steps to the first "
            "restart, as in --schedule.period 10ep");
  EXPECT_EQ(refusal({"--schedule.name", "table"}),
            "schedule.name is table, which needs a file: name it, as in --schedule.file rates.txt");
  EXPECT_TRUE(refusal({"--schedule.name", "cosin"}).starts_with("--schedule.name cosin: is not"));
  for (const char* wrong : {"-0.1", "1.5", "nan"}) {
    EXPECT_TRUE(refusal({"--schedule.least", wrong}).starts_with("--schedule.least ")) << wrong;
  }
  for (const char* wrong : {"0", "1.5"}) {
    EXPECT_TRUE(
        refusal({"--schedule.period_factor", wrong}).starts_with("--schedule.period_factor "))
        << wrong;
  }
}

TEST(Config, WhatALongerRunDoesToItsLearningRateIsSaid) {
  const auto leap = [](Arguments arguments, Arguments more, std::int64_t step) {
    const Config before = parsed(arguments);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return words_on_leap(before, parsed(arguments), step);
  };
  const Arguments before = {"--run.steps", "100", "--schedule.warmup", "10"};
  EXPECT_EQ(leap(before, {"--run.steps", "200"}, 100),
            "the learning rate goes from 1.00e-04 at step 100 to 5.87e-04 at step 101: its curve "
            "followed run.steps, which was 100; --schedule.decay 90 keeps the old curve");
  EXPECT_EQ(leap(before, {"--run.steps", "200", "--schedule.decay", "90"}, 100), "");
  EXPECT_EQ(leap(before, {"--run.steps", "200"}, 1), "");
  EXPECT_EQ(leap(before, {"--optim.lr", "1"}, 100), "");
  const auto remedy = [&](Arguments arguments, Arguments more, std::int64_t step) {
    const std::string said = leap(std::move(arguments), std::move(more), step);
    return said.empty() ? "nothing" : said.substr(said.find("which was"));
  };
  // A warm-up that follows run.steps, too.
  EXPECT_EQ(remedy({"--run.steps", "100"}, {"--run.steps", "200"}, 100),
            "which was 100; --schedule.warmup 10 --schedule.decay 90 keeps the old curve");
  EXPECT_EQ(remedy({"--run.steps", "100"}, {"--run.steps", "200", "--schedule.decay", "80"}, 50),
            "which was 100");
  EXPECT_EQ(remedy({"--run.steps", "100", "--schedule.name", "inverse_sqrt"},
                   {"--run.steps", "200"}, 100),
            "which was 100; --schedule.warmup 10 keeps the old curve");
  EXPECT_EQ(remedy({"--run.steps", "100", "--schedule.name", "cosine_restarts", "--schedule.period",
                    "30"},
                   {"--run.steps", "200"}, 50),
            "which was 100; --schedule.warmup 10 keeps the old curve");
  EXPECT_EQ(remedy({"--run.steps", "100", "--schedule.name", "wsd"}, {"--run.steps", "200"}, 95),
            "which was 100");
  EXPECT_EQ(remedy({"--schedule.name", "table", "--schedule.file", "F"}, {"--run.steps", "200"}, 9),
            "nothing");
}

TEST(Config, TheScheduleFitsTheRun) {
  EXPECT_EQ(refusal({"--run.steps", "10", "--schedule.warmup", "11"}),
            "schedule.warmup is 11 steps: 0 to run.steps (10) is possible");
  EXPECT_EQ(refusal({"--run.steps", "10", "--schedule.warmup", "4", "--schedule.name", "wsd",
                     "--schedule.decay", "7"}),
            "schedule.decay is 7 steps, but the warm-up leaves 6 of run.steps (10)");
  EXPECT_EQ(refusal({"--run.steps", "1"}), "no error");
}

}  // namespace
}  // namespace trireme
