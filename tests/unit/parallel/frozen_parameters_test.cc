// Frozen parameters: they keep their values, what trains has the bits that it has otherwise, and
// the backward stops where nothing before it trains. On every layout the bits are those of one
// rank.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/simulated_training.h"
#include "support/small_bert.h"
#include "support/small_convolutional.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSamples = 2;  // of a micro-batch

NamePatterns patterns_of(const std::string& list) {
  return list.empty() ? NamePatterns() : NamePatterns::of_list(list);
}

EqualityCase frozen_gpt(const std::string& frozen, bool tied) {
  EqualityCase test;
  test.model = models::gpt_preset("test-gpt");  // 9 blocks, for 4 stages of 2 chunks
  test.model.tied = tied;
  test.model.dropout = 0.1f;
  test.batch.micro = 1;
  test.batch.length = 8;
  test.micro_batches = 8;
  test.batch_runs.runs = 8;
  test.steps = 2;
  test.frozen = patterns_of(frozen);
  return test;
}

nn::ModelPlan plan_of_case(const EqualityCase& test) {
  return test.other ? test.other->plan : models::gpt_plan(test.model);
}

std::string refusal(const nn::ModelPlan& plan, const char* patterns) {
  try {
    nn::trained_parameters(plan, NamePatterns::of_list(patterns));
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(FrozenParameters, WhatTrainsIsKnownBeforeTheModelIsBuilt) {
  const nn::ModelPlan plan = models::gpt_plan(small_gpt());
  const auto trained_with = [&](const char* patterns) {
    return nn::trained_parameters(plan, NamePatterns::of_list(patterns));
  };
  EXPECT_TRUE(nn::trained_parameters(plan, {}).all());
  const nn::TrainedParameters first = trained_with("embedding.*,positions.*,blocks.[01].*");
  EXPECT_EQ(first.first_block(), 3);
  EXPECT_EQ(first.elements[0] + first.elements[2], 0);
  EXPECT_EQ(first.frozen_names.front(), "embedding.weight");
  std::int64_t all = first.total();
  const nn::TrainedParameters others = trained_with("blocks.[23].*,norm.*");
  EXPECT_EQ(others.first_block(), 0);
  all += others.total();
  EXPECT_EQ(all, plan.parameters);
  // A matrix that the head shares trains from the embedding on.
  EXPECT_EQ(trained_with("positions.*,blocks.*,norm.*").first_block(), 0);
}

TEST(FrozenParameters, WhatCannotBeFrozenIsRefused) {
  const nn::ModelPlan plan = models::gpt_plan(small_gpt());
  const std::string unknown = refusal(plan, "embedding.*,block.*");
  EXPECT_TRUE(
      unknown.starts_with("optim.freeze block.*: no parameter of the model has such a "
                          "name; there are embedding.weight, positions.weight, "
                          "blocks.*.norm1.weight, "))
      << unknown;
  EXPECT_EQ(refusal(plan, "*"), "optim.freeze *: takes all parameters, so nothing would train");
  EXPECT_EQ(refusal(plan, "blocks.1.attention.query.*"),
            "optim.freeze takes blocks.1.attention.query.weight but not "
            "blocks.1.attention.key.weight: they lie together in memory, so freeze both or none");
  EXPECT_EQ(refusal(plan, "blocks.1.attention.*.bias"), "");
}

// A part of the blocks, of each block, and of what blocks share.
const std::pair<const char*, bool> kFrozen[] = {
    {"embedding.*,positions.*,blocks.[0-3].*", false},
    {"embedding.*,positions.*,blocks.[0-6].*,norm.*", false},
    {"*.weight", true},
    {"embedding.*,blocks.*.attention.*,blocks.5.*", true},
    {"blocks.*.bias,blocks.*.norm?.weight,positions.*", true},
    {"embedding.*,positions.*,blocks.*,head.*", false},
    {"embedding.*,positions.*,blocks.*,norm.*", false},
    {"positions.*,norm.*", true}};

class FrozenLayouts : public ::testing::Test {
 protected:
  // What one rank computes, or tensor ranks alone.
  const std::vector<Observed>& reference(const EqualityCase& test) {
    const int tensor = test.grid[Axis::kTensor];
    const std::string text = test.to_string();
    const auto key = std::pair(tensor, test.rule + text.substr(text.rfind("frozen")));
    if (!references_.contains(key)) {
      EqualityCase alone = frozen_gpt("", test.model.tied);
      alone.frozen = test.frozen;
      alone.grid = {1, 1, tensor};
      alone.sequence_parallel = test.sequence_parallel;
      alone.rule = test.rule;
      references_.emplace(key, observe_simulated(alone));
    }
    return references_.at(key);
  }

 private:
  std::map<std::pair<int, std::string>, std::vector<Observed>> references_;
};

TEST_F(FrozenLayouts, HaveTheBitsOfOneRank) {
  std::size_t number = 0;
  for (const int tensor : {1, 2}) {
    for (const int data : {1, 2, 4}) {
      for (const int stages : {1, 2, 4}) {
        if (data * stages * tensor > 8) continue;
        for (const std::string& schedule : parallel::schedule_names()) {
          const std::size_t turn = number++;
          // Many layouts of one stage are alike.
          if (stages == 1 && schedule != "1f1b" && schedule != "zb-h1") continue;
          const auto& [frozen, tied] = kFrozen[turn % std::size(kFrozen)];
          EqualityCase test = frozen_gpt(frozen, tied);
          test.grid = {data, stages, tensor};
          test.sequence_parallel = tensor > 1;
          test.schedule = schedule;
          test.rule = turn / 3 % 2 == 0 ? "adamw" : "muon";
          const int shard_stage = static_cast<int>(turn / 2 % 4);
          if (shard_stage > 0 && data > 1) {
            const int group = turn % 3 == 0 ? 2 : data;
            test.grid[Axis::kReplicate] = data / group;
            test.grid[Axis::kShard] = group;
            test.whole_weights = shard_stage < 3;
            test.whole_gradients = shard_stage < 2;
            test.batch_runs.reduces_each = shard_stage >= 2;
            test.prefetch = static_cast<int>(turn % 3);
          }
          if (turn % 3 == 1) test.runs.recompute = parallel::Recompute::kSelective;
          if (turn % 3 == 2) {
            test.runs = {static_cast<int>(1 + turn / 3 % 3), parallel::Recompute::kFull};
          }
          if (turn % 4 == 1) test.runs.recomputed_blocks = static_cast<int>(1 + turn / 4 % 2);
          expect_bits_of(reference(test), test);
          if (HasFailure()) return;
        }
      }
    }
  }
}

EqualityCase other_case(nn::ModelPlan plan,
                        std::function<nn::MicroBatch(ops::Context&, int, bool)> make) {
  EqualityCase test;
  test.other = OtherModel{std::move(plan), std::move(make)};
  test.micro_batches = 2;
  test.steps = 2;
  return test;
}

EqualityCase pictures(nn::ModelPlan plan, const models::ConvolutionalConfig& config) {
  return other_case(std::move(plan), [config](ops::Context& ctx, int number, bool training) {
    return make_picture_batch(ctx, config, kSamples, number, training);
  });
}

struct Family {
  const char* name;
  EqualityCase made;
  std::vector<const char*> frozen;
};

std::vector<Family> families_with_frozen() {
  const models::BertConfig bert = small_bert();
  const models::MobileNetV2Config mobilenet = small_mobilenet();
  const models::ResNetConfig resnet = small_resnet(true);
  EqualityCase llama = frozen_gpt("", false);
  llama.model = small_llama();
  const std::vector<const char*> of_pictures = {"stem.*", "*.norm.*", "*.norm.bias,*.convolution.*",
                                                "stem.*,blocks.*"};
  return {
      {"llama", llama, {"blocks.*.norm?.*,embedding.*", "blocks.*.mlp.*", "head.*,blocks.[0-2].*"}},
      {"bert",
       other_case(models::bert_plan(bert),
                  [bert](ops::Context& ctx, int number, bool training) {
                    return make_masked_texts(ctx, bert, number, kSamples, training);
                  }),
       {"embedding.*", "*.weight", "*.bias"}},
      {"mobilenet_v2", pictures(models::mobilenet_v2_plan(mobilenet), mobilenet), of_pictures},
      {"resnet", pictures(models::resnet_plan(resnet), resnet), of_pictures},
  };
}

// What trains has in the first step the gradients that it has where all trains. What is frozen
// stays as it is, and running statistics move as they do.
TEST(FrozenParameters, ChangeNoBitOfTheGradientsOfOthers) {
  for (const Family& family : families_with_frozen()) {
    EqualityCase test = family.made;
    const Observed whole = observe_simulated(test).front();
    EqualityCase untrained = test;
    untrained.steps = 0;
    const LocalParts initial = observe_simulated(untrained).front().weights;
    const nn::ModelPlan plan = plan_of_case(test);
    for (const char* patterns : family.frozen) {
      SCOPED_TRACE(std::string(family.name) + " " + patterns);
      test.frozen = NamePatterns::of_list(patterns);
      for (const auto recompute : {parallel::Recompute::kNone, parallel::Recompute::kSelective,
                                   parallel::Recompute::kFull}) {
        test.runs.recompute = recompute;
        const Observed observed = observe_simulated(test).front();
        EXPECT_EQ(observed.losses.front(), whole.losses.front());
        for (const auto& [name, part] : whole.weights) {
          const bool frozen = test.frozen.match(name);
          ASSERT_EQ(observed.gradients.contains(name), !frozen) << name;
          if (frozen) {
            EXPECT_TRUE(same_bits(observed.weights.at(name).values, initial.at(name).values))
                << name;
          } else {
            EXPECT_TRUE(
                same_bits(observed.gradients.at(name).values, whole.gradients.at(name).values))
                << name;
          }
        }
        ASSERT_EQ(observed.states.size(), whole.states.size());
        for (const auto& [name, values] : observed.states) {
          const auto moved = [](float value) { return value != 0.0f && value != 1.0f; };
          EXPECT_TRUE(std::ranges::any_of(values, moved)) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
