// Generation on every grid equals generation on one rank, and the cache changes nothing.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "trireme/inference/generator.h"
#include "trireme/inference/inference.h"
#include "trireme/parallel/pipeline_executor.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/tasks/texts.h"

#include "models/gpt/gpt.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::test {
namespace {

using Tokens = std::vector<std::int32_t>;
using trireme::testing::runtime;
using trireme::testing::TemporaryFolder;

const Tokens kPrompt = {3, 14, 15, 9, 26, 5};

models::GptConfig model_of(bool llama) {
  return models::gpt_preset(llama ? "test-llama" : "test-gpt");
}

// Random weights, larger than a fresh model's, so that tokens depend on the text before them and
// probabilities are far from equal.
std::unique_ptr<parallel::Stage> make_stage(ops::Context& ctx, const ProcessGrid& grid,
                                            const models::GptConfig& model,
                                            bool whole_weights = true) {
  auto stage = std::make_unique<parallel::Stage>(
      ctx, grid, models::gpt_plan(model),
      parallel::StageOptions{.seed = 11, .whole_weights = whole_weights});
  for (const nn::FlatGroup* group : stage->groups()) {
    // A tied embedding takes the part of the text that is near to the token last read: less of it.
    const float scale = !group->decay() ? 1.0f : group->shared() ? 4.0f : 25.0f;
    for (float& value : group->master().span<float>()) value *= scale;
  }
  stage->refresh_weights(ctx);
  return stage;
}

std::vector<GridShape> grids(int ranks) {
  std::vector<GridShape> found;
  for (const int tensor : {1, 2, 4}) {
    if (ranks % tensor == 0) found.push_back({1, ranks / tensor, tensor});
  }
  return found;
}

class Generate : public ::testing::TestWithParam<bool> {
 protected:
  Tensor logits_of(const parallel::Stage& stage, std::span<const std::int32_t> tokens,
                   std::int64_t capacity) {
    nn::KeyValueCache fresh;
    fresh.capacity = capacity;
    nn::MicroBatch batch;
    batch.batch = 1;
    batch.length = std::ssize(tokens);
    const Tensor given = ctx_.allocate({batch.length}, DType::kI32);
    std::copy(tokens.begin(), tokens.end(), given.data<std::int32_t>());
    batch.fields.set(nn::kTokens, given);
    batch.cache = &fresh;
    return parallel::PipelineExecutor(ctx_, stage).forward({&batch, 1})[0][0];
  }

  // Each token from a pass over the whole text; the window of the context as Generator has it.
  template <class Choose>
  Tokens without_cache(const Tokens& prompt, std::int64_t count, const Choose& choose) {
    const auto stage = make_stage(ctx_, alone_, model_);
    Tokens text = prompt;
    std::size_t begin = text.size() - std::min<std::size_t>(text.size(), context());
    for (std::int64_t i = 0; i < count; ++i) {
      if (text.size() - begin > context()) begin = text.size() - context() / 2;
      Tokens seen(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end());
      if (begins_ && begin > 0) seen.front() = *begins_;
      const Tensor logits = logits_of(*stage, seen, model_.context);
      text.push_back(choose(logits.span<float>(), i));
    }
    return {text.begin() + std::ssize(prompt), text.end()};
  }
  // Returns also the smallest distance between the likeliest token and the next.
  Tokens greedy_without_cache(const Tokens& prompt, std::int64_t count, double& smallest_gap) {
    smallest_gap = std::numeric_limits<double>::infinity();
    return without_cache(prompt, count, [&](std::span<const float> values, std::int64_t) {
      const auto best = std::max_element(values.begin(), values.end());
      double second = -std::numeric_limits<double>::infinity();
      for (auto it = values.begin(); it != values.end(); ++it) {
        if (it != best) second = std::max(second, double{*it});
      }
      smallest_gap = std::min(smallest_gap, *best - second);
      return static_cast<std::int32_t>(best - values.begin());
    });
  }
  Tokens drawn_without_cache(const GenerationOptions& options, const Tokens& prompt,
                             std::uint64_t number) {
    return without_cache(
        prompt, options.tokens, [&](std::span<const float> values, std::int64_t position) {
          const double draw =
              sampling_uniform(options.seed, number, static_cast<std::uint64_t>(position));
          const std::int32_t token = sample_token(values, options.sampling, draw);
          for (const double rounded : {std::max(draw - 1e-6, 1e-9), std::min(draw + 1e-6, 1.0)}) {
            EXPECT_EQ(sample_token(values, options.sampling, rounded), token)
                << "a near tie: choose another seed";
          }
          return token;
        });
  }

  // The loss of `target` behind `text`, computed as in training, without a cache.
  double training_loss(const parallel::Stage& stage, const Tokens& text, std::int32_t target) {
    TokenBatch data{
        .samples = {0}, .tokens = text, .targets = Tokens(text.size(), -1), .first_key = {}};
    data.targets.back() = target;
    std::int32_t first = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      data.first_key.push_back(first);
      if (text[i] == document_end_) first = static_cast<std::int32_t>(i) + 1;
    }
    parallel::PipelineExecutor executor(ctx_, stage);
    return parallel::evaluate(
               executor, 1,
               [&](int) { return make_micro_batch(ctx_, data, std::ssize(text), 0, 1, false); })
        .loss_sum;
  }
  Tokens likeliest_in_training(const parallel::Stage& stage, const Tokens& prompt,
                               std::int64_t count) {
    Tokens text = prompt;
    std::size_t begin = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (text.size() - begin > context()) begin = text.size() - context() / 2;
      const Tokens seen(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end());
      std::vector<double> losses;
      for (std::int32_t target = 0; target < model_.vocabulary; ++target) {
        losses.push_back(training_loss(stage, seen, target));
      }
      text.push_back(static_cast<std::int32_t>(std::min_element(losses.begin(), losses.end()) -
                                               losses.begin()));
    }
    return {text.begin() + std::ssize(prompt), text.end()};
  }

  Tokens with_cache(const parallel::Stage& stage, const GenerationOptions& options,
                    const Tokens& prompt, std::uint64_t number = 0) {
    Tokens streamed;
    const Tokens tokens =
        Generator(ctx_, stage, model_.context, options)
            .generate(prompt, number, [&](std::int32_t token) { streamed.push_back(token); });
    EXPECT_EQ(streamed, tokens);
    return tokens;
  }

  std::size_t context() const { return static_cast<std::size_t>(model_.context); }

  models::GptConfig model_ = model_of(GetParam());
  // Each model's greedy text holds one.
  const std::int32_t document_end_ = GetParam() ? 7 : 9;
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime(), {1, 1, 1}, {runtime().rank()}};
  std::optional<std::int32_t> begins_;  // GenerationOptions::begin
};

constexpr SamplingOptions kGreedy{.temperature = 0.0};

TEST_P(Generate, GreedyEqualsFullPassesOnEveryGrid) {
  // They end within the context of 16, go past it, and begin with a prompt that is longer than it.
  Tokens longer;
  for (std::int32_t i = 0; i < 40; ++i) longer.push_back(i * i % 67);
  for (const auto& [prompt, count, begins] :
       {std::tuple{kPrompt, 10, std::optional<std::int32_t>()},
        {kPrompt, 40, std::nullopt},
        {longer, 12, std::nullopt},
        {kPrompt, 40, 5},
        {longer, 12, 5}}) {
    begins_ = begins;
    double gap = 0.0;
    const Tokens expected = greedy_without_cache(prompt, count, gap);
    EXPECT_GT(gap, 1e-3) << "a near tie: choose other weights";
    EXPECT_GT(std::set<std::int32_t>(expected.begin(), expected.end()).size(), 4u);
    for (const GridShape& shape : grids(runtime().size())) {
      const ProcessGrid grid(runtime(), shape);
      const auto stage = make_stage(ctx_, grid, model_);
      EXPECT_EQ(with_cache(*stage, {.sampling = kGreedy, .tokens = count, .begin = begins}, prompt),
                expected)
          << shape.to_string() << ", prompt of " << prompt.size();
    }
  }
}

TEST_P(Generate, SamplesDependOnSeedAndPromptNotOnTheGrid) {
  GenerationOptions options{
      .sampling = {.temperature = 1.5, .top_k = 40, .top_p = 0.95}, .seed = 3, .tokens = 24};
  const auto stage = make_stage(ctx_, alone_, model_);
  const Tokens expected = with_cache(*stage, options, kPrompt);
  EXPECT_EQ(with_cache(*stage, options, kPrompt), expected);
  EXPECT_NE(with_cache(*stage, options, kPrompt, 1), expected);
  options.seed = 4;
  EXPECT_NE(with_cache(*stage, options, kPrompt), expected);
  options.seed = 3;
  for (const GridShape& shape : grids(runtime().size())) {
    const ProcessGrid grid(runtime(), shape);
    EXPECT_EQ(with_cache(*make_stage(ctx_, grid, model_), options, kPrompt), expected)
        << shape.to_string();
  }
  options.sampling = {.temperature = 2.0, .top_k = 1};
  const Tokens one = with_cache(*stage, options, kPrompt);
  options.sampling = kGreedy;
  EXPECT_EQ(with_cache(*stage, options, kPrompt), one);
}

// Each option alone: where one is not heeded, two of the texts are the same.
TEST_P(Generate, DrawsEqualFullPassesOnEveryGrid) {
  std::vector<GenerationOptions> options;
  for (const SamplingOptions& sampling :
       std::initializer_list<SamplingOptions>{{},
                                              {.temperature = 0.5},
                                              {.temperature = 2.5},
                                              {.top_k = 2},
                                              {.top_p = 0.4},
                                              {.temperature = 2.5, .top_k = 9, .top_p = 0.7}}) {
    options.push_back({.sampling = sampling, .seed = 5, .tokens = 24});
  }
  std::vector<Tokens> expected;
  for (const auto& each : options) expected.push_back(drawn_without_cache(each, kPrompt, 2));
  EXPECT_EQ(std::set<Tokens>(expected.begin(), expected.end()).size(), options.size());
  for (const GridShape& shape : grids(runtime().size())) {
    const ProcessGrid grid(runtime(), shape);
    const auto stage = make_stage(ctx_, grid, model_);
    for (std::size_t i = 0; i < options.size(); ++i) {
      EXPECT_EQ(with_cache(*stage, options[i], kPrompt, 2), expected[i])
          << shape.to_string() << ", options " << i;
    }
  }
}

TEST_P(Generate, TextsOneAfterTheOtherShareNothing) {
  const auto stage = make_stage(ctx_, alone_, model_);
  const GenerationOptions options{.sampling = kGreedy, .tokens = 12};
  Generator one(ctx_, *stage, model_.context, options);
  for (const Tokens& prompt : {kPrompt, Tokens{1, 2, 3}, kPrompt}) {
    EXPECT_EQ(one.generate(prompt, 0), with_cache(*stage, options, prompt));
  }
}

TEST_P(Generate, StopsAtTheStopToken) {
  const auto stage = make_stage(ctx_, alone_, model_);
  GenerationOptions options{.sampling = kGreedy, .tokens = 20};
  const Tokens all = with_cache(*stage, options, kPrompt);
  const auto at = std::find(all.begin(), all.end(), all[5]);
  options.stop_token = all[5];
  EXPECT_EQ(with_cache(*stage, options, kPrompt), Tokens(all.begin(), at));
}

TEST_P(Generate, PromptsAreDealtToReplicas) {
  const int ranks = runtime().size();
  if (ranks % 2 != 0) GTEST_SKIP() << "one rank is one replica";
  GenerationOptions options{.sampling = {.temperature = 1.5}, .seed = 9, .tokens = 12};
  const std::vector<Tokens> prompts = {kPrompt, {1, 2, 3}};
  const auto reference = make_stage(ctx_, alone_, model_);
  const auto alone = [&](std::size_t prompt, std::uint64_t number) {
    return with_cache(*reference, options, prompts[prompt], number);
  };
  // Two texts of different lengths.
  options.stop_token = alone(1, 5)[7];
  ASSERT_NE(alone(0, 4).size(), alone(1, 5).size());
  // Replicas with copies, with shards of the master values, with shards of the weights.
  std::vector<std::pair<GridShape, bool>> cases;
  for (GridShape shape : {GridShape{2, ranks / 2, 1}, GridShape{2, 1, ranks / 2}}) {
    cases.emplace_back(shape, true);
    std::swap(shape[Axis::kReplicate], shape[Axis::kShard]);
    cases.emplace_back(shape, true);
    cases.emplace_back(shape, false);
  }
  for (const auto& [shape, whole_weights] : cases) {
    const ProcessGrid grid(runtime(), shape);
    const auto stage = make_stage(ctx_, grid, model_, whole_weights);
    Tokens streamed;
    Generator generator(ctx_, *stage, model_.context, options);
    const auto texts = generator.generate_on_replicas(
        prompts, 4, [&](std::int32_t token) { streamed.push_back(token); });
    const auto last = generator.generate_on_replicas({prompts.data(), 1}, 6);
    EXPECT_EQ(texts, (std::vector<Tokens>{alone(0, 4), alone(1, 5)})) << shape.to_string();
    EXPECT_EQ(streamed, grid.index(kDataAxes) == 0 ? alone(0, 4) : Tokens()) << shape.to_string();
    EXPECT_EQ(last, std::vector<Tokens>{alone(0, 6)}) << shape.to_string();
  }
}

TEST_P(Generate, LogitsAreThoseOfTraining) {
  const auto stage = make_stage(ctx_, alone_, model_);
  const Tensor logits = logits_of(*stage, kPrompt, model_.context);
  double sum = 0.0;
  for (const float x : logits.span<float>()) sum += std::exp(double{x});
  for (const std::int32_t target : {0, 7, 66}) {
    TokenBatch data{
        .samples = {0}, .tokens = kPrompt, .targets = Tokens(kPrompt.size(), -1), .first_key = {}};
    data.targets.back() = target;
    const auto length = std::ssize(kPrompt);
    parallel::PipelineExecutor executor(ctx_, *stage);
    const double loss = parallel::evaluate(executor, 1, [&](int) {
                          return make_micro_batch(ctx_, data, length, 0, 1, false);
                        }).loss_sum;
    EXPECT_NEAR(
        loss, std::log(sum) - double{logits.span<float>()[static_cast<std::size_t>(target)]}, 1e-4);
  }
}

// A model that was trained with data.mask_documents sees as far back as it did in training: in a
// prompt of several documents, behind an end of text that it writes itself, and in a text that
// outgrows the context.
TEST_P(Generate, DocumentsAreMaskedAsInTraining) {
  const auto reference = make_stage(ctx_, alone_, model_);
  const Tokens prompt = {3, 14, document_end_, 15, 9, 26, document_end_, 5};
  constexpr std::int64_t kCount = 24;
  const auto generate = [&](const parallel::Stage& stage, std::optional<std::int32_t> end) {
    return with_cache(
        stage, {.sampling = kGreedy, .tokens = kCount, .stop_token = {}, .document_end = end},
        prompt);
  };
  const Tokens expected = likeliest_in_training(*reference, prompt, kCount);
  EXPECT_NE(std::find(expected.begin(), expected.end() - 4, document_end_), expected.end() - 4)
      << "no end of text was written: choose another token for it";
  EXPECT_NE(generate(*reference, {}), expected);
  for (const GridShape& shape : grids(runtime().size())) {
    const ProcessGrid grid(runtime(), shape);
    EXPECT_EQ(generate(*make_stage(ctx_, grid, model_), document_end_), expected)
        << shape.to_string();
  }
}

TEST_P(Generate, NotFiniteLogitsAreOneErrorOnAllRanks) {
  const ProcessGrid grid(runtime(), {1, runtime().size(), 1});
  const auto stage = make_stage(ctx_, grid, model_);
  for (const nn::FlatGroup* group : stage->groups()) {
    group->master().span<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  }
  Generator generator(ctx_, *stage, model_.context, {.tokens = 2});
  EXPECT_THROW(generator.generate(Tokens{0, 1}, 0), CheckpointError);
}

// A model in a run folder, loaded on another grid than the one that wrote it.
class FromRunFolder : public Generate {
 protected:
  FromRunFolder() {
    if (runtime().rank() == 0) made_.emplace();
    run_ = runtime().world().broadcast_text(made_ ? made_->path().string() : "");
  }
  ~FromRunFolder() override { runtime().world().barrier().wait_host(); }

  std::string write(const ProcessGrid& grid, std::int64_t step,
                    const std::map<std::string, std::string>& extra = {}) {
    const auto stage = make_stage(ctx_, grid, model_);
    Config config;
    config.model = models::gpt_model(model_).request;
    CheckpointInfo info{.step = step, .config = config_to_ini(config), .extra = extra};
    return write_checkpoint(runtime().world(), runtime().recorder(), run_ + "/checkpoints", info,
                            checkpoint_slices(*stage, nullptr, true));
  }
  template <class E, class Body>
  std::string message_of(const Body& body) {
    try {
      body();
    } catch (const E& error) {
      return error.what();
    }
    return "no error";
  }

  std::optional<TemporaryFolder> made_;
  std::string run_;
};

TEST_P(FromRunFolder, LoadsOnEveryGridWithoutGradients) {
  const std::vector<GridShape> shapes = grids(runtime().size());
  const ProcessGrid writing(runtime(), shapes.front());
  const std::string path = write(writing, 5);
  const GenerationOptions options{.sampling = kGreedy, .tokens = 12};
  const Tokens expected = with_cache(*make_stage(ctx_, alone_, model_), options, kPrompt);
  for (const GridShape& shape : shapes) {
    const ProcessGrid grid(runtime(), shape);
    for (const std::string& where : {path, run_, run_ + "/checkpoints"}) {
      const Checkpoint checkpoint = open_checkpoint_or_run(runtime().world(), where);
      const InferenceModel model(ctx_, grid, checkpoint, InferencePlan(checkpoint));
      EXPECT_EQ(model.model().request, models::gpt_model(model_).request);
      EXPECT_EQ(with_cache(model.stage(), options, kPrompt), expected) << shape.to_string();
      for (const nn::FlatGroup* group : model.stage().groups()) {
        EXPECT_FALSE(group->gradients().defined());
      }
    }
  }
}

TEST_P(FromRunFolder, WhatIsMissingOrForeignIsNamed) {
  Communicator& world = runtime().world();
  const auto refused = [&](const std::string& where) {
    return message_of<CheckpointError>([&] { open_checkpoint_or_run(world, where); });
  };
  // bad input: `eval`, `generate`: a checkpoint that is not there | ...: there is no such file or
  // folder; name a checkpoint (step-00001000.h5) or a run folder | 4
  EXPECT_NE(refused(run_ + "/nothing").find("nothing: there is no such file or folder"),
            std::string::npos);
  // bad input: `eval`, `generate`: a folder without a checkpoint | ...: no checkpoint is there; a
  // run writes its first after checkpoint.every steps | 4
  EXPECT_NE(refused(run_).find("no checkpoint is there"), std::string::npos);

  const TokenizerPtr bytes = make_byte_tokenizer();  // 257 tokens
  model_.vocabulary = 257;
  const ProcessGrid grid(runtime(), {1, 1, runtime().size()});
  const auto load = [&](const std::string& path) {
    const Checkpoint checkpoint = Checkpoint::open(world, path);
    return InferenceModel(ctx_, grid, checkpoint, InferencePlan(checkpoint));
  };
  const auto check = [&](const std::string& path, const char* origin) {
    tasks::check_tokenizer(load(path).trained_on(), *bytes, origin);
  };
  check(write(grid, 1), "shard.h5");
  check(write(grid, 2, {{kTokenizerAttribute, tokenizer_checksum(*bytes)}}), "shard.h5");
  const auto with_other = write(grid, 3, {{kTokenizerAttribute, "xxh64:0123456789abcdef"}});
  EXPECT_NE(message_of<DataError>([&] {
              check(with_other, "shard.h5");
            }).find("shard.h5 has another tokenizer"),
            std::string::npos);
  model_.vocabulary = 67;
  EXPECT_NE(message_of<DataError>([&] {
              check(write(grid, 4), "s.h5");
              // bad input: `eval`, `generate`: data of another vocabulary | ... has a vocabulary of
              // 257 tokens, the model of ... one of 67: use data of the tokenizer that the model
              // was trained with | 3
            }).find("s.h5 has a vocabulary of 257 tokens, the model of"),
            std::string::npos);
}

const auto kName = [](const auto& family) { return family.param ? "llama" : "gpt2"; };
INSTANTIATE_TEST_SUITE_P(Families, Generate, ::testing::Values(false, true), kName);
INSTANTIATE_TEST_SUITE_P(Families, FromRunFolder, ::testing::Values(false, true), kName);

}  // namespace
}  // namespace trireme::test
