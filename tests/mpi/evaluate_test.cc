// Evaluation on every grid equals evaluation on one rank, and counts every token once.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/inference/evaluation.h"
#include "trireme/inference/evaluator.h"
#include "trireme/io/token_shard.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/tasks/task.h"
#include "trireme/tasks/texts.h"

#include "models/bert/bert.h"
#include "models/gpt/gpt.h"
#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::test {
namespace {

using trireme::testing::runtime;
using trireme::testing::TemporaryFolder;

class Evaluate : public ::testing::Test {
 protected:
  Evaluate() {
    model_.vocabulary = 257;
    if (runtime().rank() == 0) made_.emplace();
    folder_ = runtime().world().broadcast_text(made_ ? made_->path().string() : "");
  }
  ~Evaluate() override { runtime().world().barrier().wait_host(); }

  // A shard of `count` tokens: letters, cut into two documents; its text is `bytes` long.
  std::string shard(const std::string& name, int count, std::uint64_t bytes) {
    const std::string path = folder_ + "/" + name;
    if (runtime().rank() == 0) {
      TokenShardWriter writer(path, make_byte_tokenizer(), "validation", "made up");
      std::vector<std::int32_t> tokens;
      for (int i = 0; i < count; ++i) tokens.push_back('a' + i * i % 23);
      tokens[static_cast<std::size_t>(count / 2)] = 256;
      tokens.back() = 256;
      const std::vector<std::uint64_t> starts = {0, static_cast<std::uint64_t>(count / 2 + 1)};
      writer.append(tokens, starts, bytes);
      writer.commit();
    }
    runtime().world().barrier().wait_host();
    return path;
  }
  std::shared_ptr<const TokenDataset> open(const std::vector<WeightedPath>& list) {
    return TokenDataset::open(
        {.data = list, .split = "", .context = model_.context, .order = SampleOrder::kSequential},
        runtime().world());
  }
  nn::EvaluationSums on(const parallel::Stage& stage,
                        const std::shared_ptr<const TokenDataset>& data, std::int64_t micro,
                        bool mask_documents = false) {
    const auto texts = tasks::texts(data, mask_documents);
    const EvaluationReport report = evaluate_on(ctx_, stage, *texts, micro, model_.context);
    EXPECT_GT(report.seconds, 0.0);
    return report.sums;
  }
  nn::EvaluationSums on(const ProcessGrid& grid, const std::shared_ptr<const TokenDataset>& data,
                        std::int64_t micro, bool mask_documents = false) {
    return on(parallel::Stage(ctx_, grid, models::gpt_plan(model_), {.seed = 3}), data, micro,
              mask_documents);
  }

  models::GptConfig model_ = models::gpt_preset("test-llama");
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime(), {1, 1, 1}, {runtime().rank()}};
  std::optional<TemporaryFolder> made_;
  std::string folder_;
};

// Three tokens of probability 1/2, 1/4 and 1/8 for two bytes: 6 bits.
TEST(EvaluationOfTexts, BitsPerByteDivideByTheBytesOfTheText) {
  EXPECT_DOUBLE_EQ(tasks::bits_per_byte(6 * std::log(2.0), 2), 3.0);
}

// With all weights 0 every token has probability 1/257, wherever it stands.
TEST_F(Evaluate, UniformModelNeedsTheLogarithmOfTheVocabulary) {
  const auto data = open({{shard("a.h5", 101, 99)}, {shard("b.h5", 35, 31)}});
  const ProcessGrid grid(runtime(), {1, 1, runtime().size()});
  const parallel::Stage stage(ctx_, grid, models::gpt_plan(model_), {.trains = false, .seed = {}});
  const nn::EvaluationSums sums = on(stage, data, 3);
  EXPECT_EQ(sums.targets, 136);
  EXPECT_NEAR(sums.mean_loss(), std::log(257.0), 1e-6);
  std::map<std::string, std::string> figures;
  for (const auto& [name, value] : tasks::texts(data, false)->figures(sums)) figures[name] = value;
  EXPECT_EQ(figures.at("loss"), "5.549076");
  EXPECT_EQ(figures.at("perplexity"), "257.0000");
  EXPECT_EQ(figures.at("bits per byte"), fmt::format("{:.6f}", 136 * std::log2(257.0) / 130));
  EXPECT_EQ(figures.at("tokens"), "136, of 130 bytes, in windows of 16");
}

// 7 + 3 windows, the last of each shard partial; the micro-batches of 1, 3 and 4 divide among the
// replicas unevenly, and the last holds fewer windows.
TEST_F(Evaluate, EveryGridAgreesWithOneRank) {
  const auto data = open({{shard("a.h5", 101, 99)}, {shard("b.h5", 35, 31)}});
  ASSERT_EQ(data->samples(), 10u);
  const int ranks = runtime().size();
  for (const bool mask : {false, true}) {
    const nn::EvaluationSums reference = on(alone_, data, 1, mask);
    EXPECT_EQ(reference.targets, 136);
    for (const std::int64_t micro : {1, 3, 4, 16}) {
      for (const GridShape& shape : {GridShape{ranks, 1, 1}, GridShape{1, ranks, 1},
                                     GridShape{1, 1, ranks}, GridShape{ranks / 2, 1, 2}}) {
        if (shape.ranks() != ranks) continue;
        const ProcessGrid grid(runtime(), shape);
        const nn::EvaluationSums sums = on(grid, data, micro, mask);
        EXPECT_EQ(sums.targets, 136) << shape.to_string();
        EXPECT_NEAR(sums.loss_sum / reference.loss_sum, 1.0, 1e-6)
            << shape.to_string() << ", " << micro;
      }
    }
  }
}

// The order of the windows does not matter, what is in them does: a window's inputs begin with the
// token before it.
TEST_F(Evaluate, WindowsGoThroughTheWholeText) {
  const std::string path = shard("a.h5", 40, 38);
  const auto data = open({{path}});
  const parallel::Stage stage(ctx_, alone_, models::gpt_plan(model_), {.seed = 3});
  const double whole = on(stage, data, 8).mean_loss();
  std::vector<std::int32_t> text;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const TokenBatch window = data->read(std::vector<std::uint64_t>{i});
    EXPECT_EQ(window.tokens[0], i == 0 ? 256 : text.back());
    for (const std::int32_t target : window.targets) {
      if (target >= 0) text.push_back(target);
    }
  }
  EXPECT_EQ(text.size(), 40u);
  EXPECT_EQ(text[0], 'a');
  EXPECT_EQ(text[20], 256);
  double sum = 0.0;
  parallel::PipelineExecutor executor(ctx_, stage);
  for (std::size_t i = 0; i < 3; ++i) {
    TokenBatch window{.samples = {i}, .tokens = {}, .targets = {}, .first_key = {}};
    for (std::size_t t = i * 16; t < i * 16 + 16; ++t) {
      window.tokens.push_back(t == 0 || t > 40 ? 256 : text[t - 1]);
      window.targets.push_back(t < 40 ? text[t] : -1);
    }
    sum += parallel::evaluate(executor, 1, [&](int) {
             return make_micro_batch(ctx_, window, 16, 0, 1, false);
           }).loss_sum;
  }
  EXPECT_NEAR(whole, sum / 40, 1e-6);
}

// A part of the data comes from everywhere in them, always in the same order.
TEST_F(Evaluate, SomeMicroBatchesAreOfAllTheData) {
  const auto data = open({{shard("a.h5", 101, 99)}, {shard("b.h5", 35, 31)}});
  const auto texts = tasks::texts(data, false);
  const parallel::Stage stage(ctx_, alone_, models::gpt_plan(model_), {.seed = 3});
  parallel::PipelineExecutor executor(ctx_, stage);
  std::vector<double> in_order, taken;
  for (std::uint64_t i = 0; i < data->samples(); ++i) {
    const TokenBatch window = data->read(std::vector{i});
    in_order.push_back(parallel::evaluate(executor, 1, [&](int) {
                         return make_micro_batch(ctx_, window, 16, 0, 1, false);
                       }).loss_sum);
  }
  const auto sum_of = [&](std::int64_t micro, std::optional<std::int64_t> limit) {
    return evaluate(executor, *texts, micro, limit).loss_sum;
  };
  for (std::int64_t count = 1; count <= 9; ++count) {
    taken.push_back(sum_of(1, count) - (count == 1 ? 0.0 : sum_of(1, count - 1)));
  }
  taken.push_back(sum_of(1, {}) - sum_of(1, 9));
  const auto times = [](std::span<const double> losses, double one) {
    return std::ranges::count_if(losses, [&](double loss) { return std::abs(loss - one) < 1e-6; });
  };
  for (const double loss : in_order) EXPECT_EQ(times(taken, loss), times(in_order, loss));
  const std::span<const double> first = std::span(in_order).first(5);
  EXPECT_TRUE(std::any_of(taken.begin(), taken.begin() + 5,
                          [&](double loss) { return times(first, loss) == 0; }));
  // The number of samples alone decides, and all of them are taken in their order.
  EXPECT_NEAR(sum_of(3, 2), sum_of(1, 6), 1e-6);
  EXPECT_EQ(sum_of(3, 4), sum_of(3, {}));
  const ProcessGrid grid(runtime(), {runtime().size(), 1, 1});
  const parallel::Stage shared(ctx_, grid, models::gpt_plan(model_), {.seed = 3});
  parallel::PipelineExecutor together(ctx_, shared);
  EXPECT_EQ(evaluate(together, *texts, 1, 5).loss_sum, sum_of(1, 5));
}

// Ends of texts are never hidden.
TEST_F(Evaluate, DataWithoutOneTargetAreAFault) {
  const std::string path = folder_ + "/ends.h5";
  if (runtime().rank() == 0) {
    TokenShardWriter writer(path, make_byte_tokenizer(), "validation", "made up");
    writer.append(std::vector<std::int32_t>(40, 256), std::vector<std::uint64_t>{0}, 1);
    writer.commit();
  }
  runtime().world().barrier().wait_host();
  models::BertConfig model;
  model.layers = 1;
  model.width = 16;
  model.heads = 2;
  model.hidden = 16;
  model.vocabulary = 261;
  model.context = 12;
  const auto data =
      tasks::find_task("masked_language_model")
          .open({.paths = {{path}}, .training = false, .any_split = true, .sample = {12}},
                runtime().world());
  const parallel::Stage stage(ctx_, alone_, models::bert_plan(model), {.seed = 3});
  // bad input: `eval`: data without one target | ...: 4 samples without one target: there is no
  // loss to tell | 3
  EXPECT_EQ(testing::message_of<DataError>([&] { evaluate_on(ctx_, stage, *data, 4, 12); }),
            path + ": 4 samples without one target: there is no loss to tell");
}

TEST_F(Evaluate, TheTaskMakesMicroBatchesOfTexts) {
  const auto texts = tasks::texts(open({{shard("a.h5", 40, 38)}}), true);
  EXPECT_EQ(texts->samples(), 3u);
  EXPECT_EQ(texts->facts().vocabulary, 257);
  std::string attributes;
  for (const tasks::DataMark& mark : texts->encoding()) attributes += mark.attribute + " ";
  EXPECT_EQ(attributes, "tokenizer begin_of_text end_of_text token_bytes ");
  // Samples past the end are padding, which has no targets.
  const auto evaluated = texts->read_steps(
      [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
        if (step > 0) return {};
        return std::vector<std::uint64_t>{2};
      },
      4, {.training = false});
  evaluated->read();
  const nn::MicroBatch last = evaluated->micro_batches(ctx_).at(0);
  EXPECT_EQ(last.batch, 4);
  EXPECT_EQ(last.target_count, 8);
  EXPECT_FALSE(last.training);
  EXPECT_TRUE(last.field(nn::kFirstKey).defined());
  const auto plan = [](std::uint64_t step) -> std::optional<std::vector<std::uint64_t>> {
    if (step > 0) return {};
    return std::vector<std::uint64_t>{2, 0};
  };
  const auto steps = texts->read_steps(plan, 1, {});
  steps->read();
  const std::vector<nn::MicroBatch> batches = steps->micro_batches(ctx_);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].samples.span<std::int64_t>()[0], 2);
  EXPECT_EQ(batches[0].target_count, 8);
  EXPECT_EQ(batches[1].target_count, 16);
  EXPECT_TRUE(batches[1].training);
  EXPECT_THROW(steps->read(), InternalError);  // the plan has no more
}

TEST(Task, IsFoundByItsName) {
  const tasks::Task& task = tasks::task_of(models::ModelRequest());
  EXPECT_EQ(task.name(), "causal_language_model");
  EXPECT_EQ(task.unit(), (tasks::Unit{"token", "tokens"}));
  EXPECT_EQ(task.unit(), tasks::Unit());
  EXPECT_EQ(task.unit().rate(), "tokens/s");
  EXPECT_EQ(task.unit().rate_key(), "tokens_per_s");
  EXPECT_EQ(tasks::samples_text(task, 32, {16}), "32 sequences of 16");
  EXPECT_EQ(task.units_of_sample({16}), 16);
  EXPECT_EQ(task.measures({20 * std::log(2.0), 10}), "loss 1.3863 over 10 tokens, perplexity 4.00");
  EXPECT_EQ(testing::message_of([] { tasks::find_task("translation"); }),
            "task translation: is not one of causal_language_model, masked_language_model, "
            "classification");
}

}  // namespace
}  // namespace trireme::test
