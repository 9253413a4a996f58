// The task of models that classify pictures: its data, micro-batches and evaluations, with a model
// of one product that no registry knows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/inference/evaluation.h"
#include "trireme/inference/probabilities.h"
#include "trireme/io/image_shard.h"
#include "trireme/io/token_shard.h"
#include "trireme/nn/pictures.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/setup/data_request.h"
#include "trireme/setup/run_grid.h"
#include "trireme/tasks/pictures.h"

#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

constexpr PictureSize kShardSize{6, 8};
constexpr std::int64_t kColours = 3;
const Shape kSample = {4, 4, kColours};
const std::vector<std::string> kClasses = {"cat", "dog", "emu", "fox", "gnu", "owl", "yak"};

// Shrinks a picture to its mean colours and classifies these.
class MeanColour : public nn::Block {
 public:
  explicit MeanColour(nn::BuildContext& build)
      : classes_({parameters_, {&build.grid.comm(Axis::kTensor), false}, "classes"},
                 {nn::ColumnParallelLinear::split_part(
                     {parameters_, {&build.grid.comm(Axis::kTensor), false}, "classes"}, "classes",
                     std::ssize(kClasses))},
                 kColours, true, 0.5f) {}
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    const nn::Value pixels = tape.input(batch.field(nn::kPixels), false);
    nn::classification_loss(tape, batch,
                            classes_.forward(tape, nn::global_average_pooling(tape, pixels)), 0.0f);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  nn::ColumnParallelLinear classes_;
};

nn::ModelPlan plan() {
  nn::ModelPlan plan;
  plan.blocks.resize(1);
  plan.blocks[0].name = "classes";
  plan.blocks[0].loss = true;
  plan.blocks[0].build = [](nn::BuildContext& build) {
    return std::make_unique<MeanColour>(build);
  };
  return plan;
}

class Classification : public ::testing::Test {
 protected:
  Classification() {
    if (runtime().rank() == 0) made_.emplace();
    folder_ = world().broadcast_text(made_ ? made_->path().string() : "");
  }
  ~Classification() override { world().barrier().wait_host(); }

  static Communicator& world() { return runtime().world(); }

  // Red is 10 times the column, green 10 times the row, blue the picture's number; the label is the
  // number modulo the classes.
  std::string shard(const std::string& name, std::int64_t count,
                    std::vector<std::string> classes = kClasses,
                    const std::optional<PixelStatistics>& statistics = {}) {
    const std::string path = folder_ + "/" + name;
    if (runtime().rank() == 0) {
      const auto number_of_classes = std::ssize(classes);
      ImageShardWriter(path, {.size = kShardSize,
                              .images = count,
                              .classes = std::move(classes),
                              .source = "test",
                              .split = "train",
                              .fetch =
                                  [&](std::int64_t i, std::span<std::uint8_t> pixels) {
                                    fill(i, pixels);
                                    return static_cast<std::int32_t>(i % number_of_classes);
                                  },
                              .statistics = statistics,
                              .threads = 1})
          .commit();
    }
    world().barrier().wait_host();
    return path;
  }
  static void fill(std::int64_t number, std::span<std::uint8_t> pixels) {
    for (std::int64_t i = 0; i < std::ssize(pixels); ++i) {
      const std::int64_t x = i / kColours % kShardSize.width, y = i / kColours / kShardSize.width;
      const std::array<std::int64_t, 3> values = {10 * x, 10 * y, number};
      pixels[static_cast<std::size_t>(i)] =
          static_cast<std::uint8_t>(values[static_cast<std::size_t>(i % kColours)]);
    }
  }

  std::shared_ptr<const tasks::TaskData> open(const std::string& path, bool training) {
    return task_.open({.paths = {{path}}, .training = training, .sample = kSample}, world());
  }
  std::string refusal(const std::string& path, const Shape& sample = kSample) {
    return message_of<Error>([&] { task_.open({.paths = {{path}}, .sample = sample}, world()); });
  }

  const tasks::Task& task_ = tasks::find_task("classification");
  ops::Context ctx_ = ops::make_cpu_context(1);
  std::optional<TemporaryFolder> made_;
  std::string folder_;
};

TEST_F(Classification, IsToldInSamples) {
  EXPECT_EQ(task_.unit(), (tasks::Unit{"sample", "samples"}));
  EXPECT_EQ(task_.unit().rate_key(), "samples_per_s");
  EXPECT_EQ(task_.units_of_sample(kSample), 1);
  EXPECT_EQ(tasks::samples_text(task_, 128, {32, 24, 3}), "128 pictures of 32 x 24");
  EXPECT_EQ(tasks::units(), (std::vector<tasks::Unit>{{"token", "tokens"}, {"sample", "samples"}}));
  nn::EvaluationSums sums{.loss_sum = 5.0, .targets = 10};
  EXPECT_EQ(task_.measures(sums), "loss 0.5000 over 10 samples");
  sums.correct = {8, 10};
  EXPECT_EQ(task_.measures(sums), "loss 0.5000 over 10 samples, top-1 80.00 %, top-5 100.00 %");
}

TEST_F(Classification, StepsAreMicroBatchesOfPictures) {
  const std::string path = shard("train.h5", 11);
  const auto data = open(path, true);
  EXPECT_EQ(data->samples(), 11u);
  EXPECT_EQ(data->facts().classes, 7);
  EXPECT_EQ(data->description(), "11 pictures of 6 x 8, 7 classes");
  const auto steps = data->read_steps(
      [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
        if (step > 0) return {};
        return std::vector<std::uint64_t>{5, 0, 12, 3};
      },
      2, {});
  steps->read();
  const std::vector<nn::MicroBatch> batches = steps->micro_batches(ctx_);
  ASSERT_EQ(batches.size(), 2u);
  const auto pictures = ImageDataset::open({.data = {{path}}});
  const Shape pixels = {2, 4, 4, 3};
  for (std::size_t m = 0; m < 2; ++m) {
    const nn::MicroBatch& batch = batches[m];
    EXPECT_TRUE(batch.training);
    EXPECT_EQ(batch.length, 1);
    EXPECT_EQ(batch.target_count, 2);
    EXPECT_FALSE(batch.correct.defined());
    EXPECT_EQ(batch.field(nn::kPixels).shape(), pixels);
    for (std::size_t b = 0; b < 2; ++b) {
      const auto sample = static_cast<std::uint64_t>(batch.samples.span<std::int64_t>()[b]);
      EXPECT_EQ(sample, (std::vector<std::uint64_t>{5, 0, 12, 3})[2 * m + b]);
      EXPECT_EQ(batch.field(nn::kTargets).span<std::int32_t>()[b],
                static_cast<std::int32_t>(pictures->place_of(sample).picture % 7));
    }
  }
  EXPECT_THROW(steps->read(), InternalError);  // the plan has no more
  const tasks::DataRequest request{.paths = {}, .sample = kSample};
  const auto blank = task_.blank_batch(ctx_, request, 5, {});
  EXPECT_EQ(blank.fields.find(nn::kPixels).shape(), Shape({5, 4, 4, 3}));
  EXPECT_EQ(blank.fields.find(nn::kTargets).shape(), Shape({5}));
  const auto middle = task_.blank_batch(ctx_, request, 5, {.inputs = false, .targets = false});
  EXPECT_TRUE(middle.fields.begin() == middle.fields.end());
}

// A stage of a pipeline reads what its blocks do: what others read is no field of its
// micro-batches.
TEST_F(Classification, StagesReadTheirOwnParts) {
  const std::string path = shard("train.h5", 11);
  const auto data = open(path, true);
  const auto read = [&](const tasks::ReadFor& what) {
    const auto steps = data->read_steps(
        [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
          if (step > 0) return {};
          return std::vector<std::uint64_t>{4, 9, 2, 7, 1, 3};
        },
        2, what);
    steps->read();
    return steps->micro_batches(ctx_);
  };
  const std::vector<nn::MicroBatch> all = read({});
  const std::vector<nn::MicroBatch> first = read({.targets = false});
  const std::vector<nn::MicroBatch> middle = read({.inputs = false, .targets = false});
  const std::vector<nn::MicroBatch> last = read({.inputs = false});
  ASSERT_EQ(all.size(), 3u);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.defined() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), b.bytes()) == 0;
  };
  for (std::size_t m = 0; m < 3; ++m) {
    EXPECT_TRUE(same(first.at(m).field(nn::kPixels), all[m].field(nn::kPixels)));
    EXPECT_TRUE(same(last.at(m).field(nn::kTargets), all[m].field(nn::kTargets)));
    EXPECT_FALSE(first[m].field(nn::kTargets).defined());
    EXPECT_FALSE(last[m].field(nn::kPixels).defined());
    EXPECT_FALSE(middle.at(m).field(nn::kPixels).defined());
    EXPECT_FALSE(middle[m].field(nn::kTargets).defined());
    for (const auto* part : {&first, &middle, &last}) {
      EXPECT_TRUE(same((*part)[m].samples, all[m].samples));
      EXPECT_EQ((*part)[m].target_count, 2);
    }
  }
}

// What a reader may hold is known before it reads: a step's micro-batches, at least two, one for
// each thread, and one that it hands on.
TEST_F(Classification, ReadersHoldAStepAndAMicroBatchForEachThread) {
  const tasks::DataRequest request{.paths = {}, .sample = kSample, .threads = 3};
  EXPECT_EQ(task_.most_read_ahead(request, 8), 12);
  EXPECT_EQ(task_.most_read_ahead(request, 1), 6);
}

TEST_F(Classification, StepsHaveABoundedNumberOfPixels) {
  const models::Model model = models::resolve({"resnet", {{"image", "4096"}}}, {});
  Config config;
  config.batch.micro = 4;
  config.batch.global = 21845;
  EXPECT_NO_THROW(check_model_fits_grid(config, model, {1, 1, 1}));
  config.batch.global = 21846;
  // bad input: `train`: a step of more than 2^40 numbers of pictures | batch.global ... x 4096 x
  // 4096 pixels of 3 colours are ... numbers a step: at most 1099511627776 can be | 2
  EXPECT_EQ(
      message_of([&] {
        check_model_fits_grid(config, model, {1, 1, 1});
      }),
      "batch.global 21846 x 4096 x 4096 pixels of 3 colours are 1099545182208 numbers a step: "
      "at most 1099511627776 can be");
}

// The centre of each picture, normalised as the model's training data say; what is past the end is
// padding.
TEST_F(Classification, EvaluationsSeeTheCentreAsInTraining) {
  const PixelStatistics of_training{{0.25, 0.5, 0.125}, {0.5, 0.25, 0.75}};
  const auto trained = open(shard("train.h5", 8, kClasses, of_training), true);
  const std::vector<tasks::DataMark> marks = trained->encoding();
  ASSERT_EQ(marks.size(), 3u);
  EXPECT_EQ(marks[0].attribute, "classes");
  EXPECT_EQ(marks[0].value, "cat\ndog\nemu\nfox\ngnu\nowl\nyak");
  EXPECT_EQ(marks[1].value, "mean 0.25 0.5 0.125, deviation 0.5 0.25 0.75");
  EXPECT_EQ(read_normalisation(marks[1].value), of_training);
  EXPECT_EQ(marks[2].attribute, "picture_size");
  const std::string path = shard("validation.h5", 9);
  const auto held_out = task_.open(
      {.paths = {{path}}, .training = false, .sample = kSample, .trained_on = marks}, world());
  EXPECT_EQ(held_out->encoding()[1].value, marks[1].value);
  EXPECT_NE(open(path, false)->encoding()[1].value, marks[1].value);
  const auto read = held_out->read_steps(
      [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
        if (step > 0) return {};
        return std::vector<std::uint64_t>{6, 7, 8};
      },
      4, {.training = false});
  read->read();
  const nn::MicroBatch batch = read->micro_batches(ctx_).at(0);
  EXPECT_FALSE(batch.training);
  EXPECT_EQ(batch.target_count, 3);
  EXPECT_EQ(batch.correct.span<std::int64_t>()[1], 0);
  const auto targets = batch.field(nn::kTargets).span<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(targets.begin(), targets.end()),
            (std::vector<std::int32_t>{6, 0, 1, ops::kMaskedTarget}));
  const auto pixels = batch.field(nn::kPixels).span<float>();
  for (std::size_t i = 0; i < 3 * 4 * 4; ++i) {
    // Rows 1 to 4 of 6, columns 2 to 5 of 8.
    const double x = 10.0 * static_cast<double>(i % 4 + 2);
    const double y = 10.0 * static_cast<double>(i / 4 % 4 + 1);
    EXPECT_NEAR(pixels[3 * i], (x / 255 - 0.25) / 0.5, 1e-6);
    EXPECT_NEAR(pixels[3 * i + 1], (y / 255 - 0.5) / 0.25, 1e-6);
    EXPECT_NEAR(pixels[3 * i + 2], (static_cast<double>(6 + i / 16) / 255 - 0.125) / 0.75, 1e-6);
  }
  for (const float padding : pixels.last(4 * 4 * 3)) EXPECT_EQ(padding, 0.0f);
  for (const char* bad : {"mean 0.5 0.5, deviation 1 1 1", "mean 0.5 0.5 2, deviation 1 1 1",
                          "mean 0.5 0.5 1, deviation 1 1 1 ", ""}) {
    EXPECT_FALSE(read_normalisation(bad)) << bad;
  }
  EXPECT_EQ(message_of<CheckpointError>([&] {
              task_.open({.paths = {{path}},
                          .training = false,
                          .sample = kSample,
                          .trained_on = {{kNormalisationAttribute, "", "mean 2"}}},
                         world());
            }),
            "the checkpoint's normalisation 'mean 2': expected 'mean R G B, deviation R G B', "
            "numbers of 0 to 1");
}

TEST(Probabilities, ThatAreNotFiniteAreRefused) {
  EXPECT_NO_THROW(check_probabilities(std::vector<float>{0.25f, 0.75f}));
  for (const float bad : {NAN, INFINITY}) {
    EXPECT_EQ(message_of<CheckpointError>([&] {
                check_probabilities(std::vector{0.5f, bad});
              }),
              "the model's probabilities are not finite: its weights are not, or --precision is "
              "too narrow for it");
  }
}

// The same pictures, so that what a run draws for a sample follows from the seed and the sample.
TEST_F(Classification, TrainsOnWhatTheConfigurationMakesOfPictures) {
  Config config;
  config.data.train = {{"train.h5"}};
  config.data.validation = {{"validation.h5"}};
  config.data.crop = "random";
  config.data.padding = 2;
  config.data.flip = true;
  config.run.seed = 7;
  const tasks::DataRequest training = training_data(config);
  EXPECT_EQ(training.paths, config.data.train);
  EXPECT_TRUE(training.training);
  EXPECT_EQ(training.seed, 7u);
  EXPECT_EQ(training.threads, 2);
  EXPECT_EQ(training.augmentation.crop, ImageTransform::Crop::kRandom);
  EXPECT_EQ(training.augmentation.padding, 2);
  EXPECT_TRUE(training.augmentation.flip);
  config.data.crop = "resized";
  config.data.least_area = 0.25;
  config.data.most_ratio = 2.0;
  const ImageTransform resized = training_data(config).augmentation;
  EXPECT_EQ(resized.crop, ImageTransform::Crop::kRandomResized);
  EXPECT_EQ(resized.least_area, 0.25);
  EXPECT_EQ(resized.least_ratio, 0.5);
  EXPECT_EQ(resized.most_ratio, 2.0);
  const tasks::DataRequest held_out = held_out_data(config, {{"classes", "", "a"}});
  EXPECT_EQ(held_out.paths, config.data.validation);
  EXPECT_FALSE(held_out.training);
  EXPECT_FALSE(held_out.augmentation.flip);
  EXPECT_EQ(held_out.trained_on.size(), 1u);

  // What is asked for happens: the pictures of two epochs differ, and two readers agree.
  const std::string path = shard("train.h5", 4);
  tasks::DataRequest request = training;
  request.paths = {{path}};
  request.sample = kSample;
  const auto pixels_of = [&](std::uint64_t seed, std::uint64_t first) {
    request.seed = seed;
    const auto steps =
        task_.open(request, world())
            ->read_steps(
                [first](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
                  if (step > 0) return {};
                  return std::vector<std::uint64_t>{first, first + 1, first + 2, first + 3};
                },
                4, {});
    steps->read();
    const auto pixels = steps->micro_batches(ctx_)[0].field(nn::kPixels).span<float>();
    std::vector<float> sorted(pixels.begin(), pixels.end());
    std::ranges::sort(sorted);  // an epoch's order of the same crops would be equal
    return sorted;
  };
  EXPECT_EQ(pixels_of(1, 0), pixels_of(1, 0));
  EXPECT_NE(pixels_of(1, 0), pixels_of(1, 4));
  EXPECT_NE(pixels_of(1, 0), pixels_of(2, 0));
}

// 11 pictures in micro-batches of 1, 3 and 4: replicas have shares of different sizes, some none,
// and the last micro-batch is padded.
TEST_F(Classification, EveryGridCountsTheSameAnswers) {
  const auto data = open(shard("validation.h5", 11), false);
  const auto on = [&](const ProcessGrid& grid, std::int64_t micro) {
    const parallel::Stage stage(ctx_, grid, plan(), {.seed = 3});
    parallel::PipelineExecutor executor(ctx_, stage);
    return evaluate(executor, *data, micro, std::nullopt);
  };
  const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
  const nn::EvaluationSums one = on(alone, 11);
  EXPECT_EQ(one.targets, 11);
  ASSERT_TRUE(one.correct);
  EXPECT_LT(one.correct->top1, 11);
  EXPECT_GE(one.correct->top5, 5);
  for (const std::int64_t micro : {1, 3, 4}) {
    const ProcessGrid grid(runtime(), {runtime().size(), 1, 1});
    const nn::EvaluationSums sums = on(grid, micro);
    EXPECT_EQ(sums.targets, 11) << micro;
    EXPECT_EQ(sums.correct, one.correct) << micro;
    EXPECT_NEAR(sums.loss_sum / one.loss_sum, 1.0, 1e-6) << micro;
  }
}

TEST_F(Classification, HeldOutDataHaveTheSameClasses) {
  const auto data = open(shard("train.h5", 8), true);
  const auto said = [&](const std::string& name, std::vector<std::string> classes) {
    const auto other = open(shard(name, 8, std::move(classes)), false);
    return message_of<Error>([&] { data->check_fits(*other); });
  };
  EXPECT_EQ(said("same.h5", kClasses), "no error");
  // bad input: `train`: held-out pictures of other classes | data.validation has 2 classes,
  // data.train 7: prepare both with the same folders of classes | 3
  EXPECT_EQ(said("fewer.h5", {"cat", "dog"}),
            "data.validation has 2 classes, data.train 7: prepare both with the same folders of "
            "classes");
  std::vector<std::string> renamed = kClasses;
  renamed[1] = "wolf";
  EXPECT_EQ(said("renamed.h5", renamed),
            "class 1 is 'wolf' in data.validation and 'dog' in data.train: prepare both with the "
            "same folders of classes");
}

TEST_F(Classification, RefusesOtherData) {
  const std::string pictures = shard("train.h5", 4), text = folder_ + "/text.h5";
  if (runtime().rank() == 0) {
    TokenShardWriter writer(text, make_byte_tokenizer(), "train", "made up");
    std::vector<std::int32_t> tokens(40, 'a');
    tokens.back() = 256;
    writer.append(tokens, std::vector<std::uint64_t>{0}, 39);
    writer.commit();
  }
  world().barrier().wait_host();
  // bad input: `train`: a token shard in the place of pictures | ...: a token shard, not an image
  // shard (made by `trireme prepare --images`) | 3
  const std::string of_text =
      text + ": a token shard, not an image shard (made by `trireme prepare --images`)";
  EXPECT_EQ(refusal(text), of_text);
  EXPECT_THROW(open(text, false), DataError);
  EXPECT_EQ(message_of<Error>([&] { task_.facts_on_this_host({{text}}); }), of_text);
  const tasks::Task& texts = tasks::find_task("causal_language_model");
  const std::string of_pictures =
      pictures + ": an image shard, not a token shard (made by `trireme prepare`)";
  EXPECT_EQ(
      message_of<Error>([&] { texts.open({.paths = {{pictures}}, .sample = {16}}, world()); }),
      of_pictures);
  EXPECT_EQ(message_of<Error>([&] { texts.facts_on_this_host({{pictures}}); }), of_pictures);
  // bad input: `train`: pictures smaller than the model's | pictures of 6 x 8 cannot give parts of
  // 32 x 32; prepare them with a larger --size, or give the model smaller ones
  // (--model.image) | 2
  EXPECT_EQ(refusal(pictures, {32, 32, 3}),
            "pictures of 6 x 8 cannot give parts of 32 x 32; prepare them with a larger --size, or "
            "give the model smaller ones (--model.image)");
  // The facts before a run opens the data.
  EXPECT_EQ(task_.facts_on_this_host({{"/no/such/file.h5"}, {pictures}}).classes, 7);
  EXPECT_FALSE(task_.facts_on_this_host({{"/no/such/file.h5"}}).classes);
}

}  // namespace
}  // namespace trireme::testing
