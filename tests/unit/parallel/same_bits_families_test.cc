// The bits of every family of models are those of plain 1F1B on one rank with the same runs of
// micro-batches, under every schedule, with any number of stages. What waits for a schedule
// differs between families: in the head of BERT some weight gradients come with the loss.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/vit/vit.h"
#include "support/decoder_choices.h"
#include "support/pairwise.h"
#include "support/simulated_training.h"
#include "support/small_bert.h"
#include "support/small_convolutional.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSamples = 2;  // of a micro-batch

EqualityCase gpt_case(bool tied) {
  EqualityCase test;
  test.model = models::gpt_preset("test-gpt");  // 9 blocks
  test.model.tied = tied;
  test.model.dropout = 0.1f;
  test.batch.micro = kSamples;
  test.batch.length = 8;
  return test;
}

// A Llama with choices of published models, in 9 blocks.
EqualityCase decoder_case(const char* name) {
  EqualityCase test = gpt_case(false);
  test.model = models::gpt_preset("test-llama");
  test.model.dropout = 0.1f;
  test.choices = name;
  for (const DecoderChoices& choices : kDecoderChoices) {
    if (test.choices == choices.name) choices.apply(test.model);
  }
  return test;
}

EqualityCase bert_case() {
  models::BertConfig model = small_bert();
  model.layers = 6;
  model.dropout = 0.1;
  EqualityCase test;
  test.other =
      OtherModel{models::bert_plan(model), [model](ops::Context& ctx, int number, bool training) {
                   return make_masked_texts(ctx, model, number, kSamples, training);
                 }};
  return test;
}

EqualityCase pictures_case(nn::ModelPlan plan, const models::ConvolutionalConfig& pictures) {
  EqualityCase test;
  test.other =
      OtherModel{std::move(plan), [pictures](ops::Context& ctx, int number, bool training) {
                   return make_picture_batch(ctx, pictures, kSamples, number, training);
                 }};
  return test;
}

EqualityCase mobilenet_case() {
  const models::MobileNetV2Config model = small_mobilenet();
  return pictures_case(models::mobilenet_v2_plan(model), model);
}

EqualityCase resnet_case() {
  const models::ResNetConfig model = small_resnet(true);
  return pictures_case(models::resnet_plan(model), model);
}

EqualityCase vit_case() {
  const models::MobileNetV2Config pictures = small_mobilenet();
  const models::VitConfig model{.layers = 6,
                                .width = 16,
                                .heads = 2,
                                .hidden = 24,
                                .patch = 4,
                                .image = pictures.image,
                                .classes = pictures.classes,
                                .dropout = 0.1};
  return pictures_case(models::vit_plan(model), pictures);
}

struct Family {
  const char* name;
  EqualityCase made;
};

std::vector<Family> families() {
  return {{"gpt, tied", gpt_case(true)},
          {"gpt, untied", gpt_case(false)},
          {"gemma3", decoder_case("gemma3")},
          {"olmo2", decoder_case("olmo2")},
          {"bert", bert_case()},
          {"mobilenet_v2", mobilenet_case()},
          {"resnet", resnet_case()},
          {"vit", vit_case()}};
}

std::size_t blocks_of(const EqualityCase& test) {
  return (test.other ? test.other->plan : models::gpt_plan(test.model)).blocks.size();
}

// The runs of a step of so many micro-batches.
struct Runs {
  int runs, micro_batches;
};
constexpr Runs kRuns[] = {{2, 6}, {2, 8}, {4, 16}, {6, 6}, {8, 8}};
constexpr int kStages[] = {1, 2, 3, 4};

enum Factor { kFamily, kSchedule, kStage, kRun, kReplicas, kRounds, kRecompute, kFactors };

class SameBitsOfFamilies : public ::testing::Test {
 protected:
  EqualityCase case_of(const Combination& values) const {
    const auto value = [&](Factor factor) { return static_cast<std::size_t>(values[factor]); };
    EqualityCase test = families_[value(kFamily)].made;
    test.schedule = parallel::schedule_names()[value(kSchedule)];
    test.grid = {1 + values[kReplicas], kStages[value(kStage)], 1};
    test.micro_batches = kRuns[value(kRun)].micro_batches;
    test.batch_runs = {kRuns[value(kRun)].runs, values[kRounds] == 1};
    if (values[kRecompute] == 1) test.runs = {2, parallel::Recompute::kFull};
    test.steps = 1;
    return test;
  }

  bool is_possible(const Combination& values) const {
    const EqualityCase test = case_of(values);
    const auto layout =
        parallel::schedule_layout(test.schedule, test.grid[Axis::kPipeline], test.chunks);
    const int replicas = test.grid.extent(kDataAxes);
    return static_cast<std::size_t>(layout.parts()) <= blocks_of(test) &&
           parallel::takes_micro_batches(test.schedule, layout, test.micro_batches / replicas);
  }

  const std::vector<Observed>& reference(const Combination& values) {
    const auto key = std::pair(values[kFamily], values[kRun]);
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    EqualityCase alone = case_of(values);
    alone.grid = {1, 1, 1};
    alone.schedule = "1f1b";
    alone.batch_runs.reduces_each = false;
    alone.runs = {};
    return references_.emplace(key, observe_simulated(alone)).first->second;
  }

  std::vector<Family> families_ = families();
  std::map<std::pair<int, int>, std::vector<Observed>> references_;  // by family and runs
};

TEST_F(SameBitsOfFamilies, EverySchedule) {
  std::vector<int> levels(kFactors, 2);
  levels[kFamily] = static_cast<int>(families_.size());
  levels[kSchedule] = static_cast<int>(parallel::schedule_names().size());
  levels[kStage] = static_cast<int>(std::size(kStages));
  levels[kRun] = static_cast<int>(std::size(kRuns));
  const auto cover =
      pairwise_cover(levels, [this](const Combination& values) { return is_possible(values); });
  EXPECT_GE(cover.size(), families_.size() * parallel::schedule_names().size());
  for (const Combination& values : cover) {
    const EqualityCase test = case_of(values);
    SCOPED_TRACE(fmt::format("{}, {} micro-batches",
                             families_[static_cast<std::size_t>(values[kFamily])].name,
                             test.micro_batches));
    expect_bits_of(reference(values), test);
  }
}

}  // namespace
}  // namespace trireme::testing
