// Continues texts with a trained model: `trireme generate`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/inference/sampler.h"
#include "trireme/parallel/pipeline_executor.h"

namespace trireme {

struct GenerationOptions {
  SamplingOptions sampling = {};
  std::uint64_t seed = 1;
  std::int64_t tokens = 200;                    // maximum to add
  std::int64_t vocabulary = 0;                  // only the first so many rows are tokens; 0: all
  std::optional<std::int32_t> begin = {};       // the token that the model has seen before texts
  std::optional<std::int32_t> stop_token = {};  // ends a text, and is not part of it
  // The end-of-text token of a model that was trained with data.mask_documents: tokens after it do
  // not attend to tokens before it or to it. nullopt: each token attends to the whole text before
  // it.
  std::optional<std::int32_t> document_end = {};
  // Model::far_from. Where a text grows beyond one of them, its kept keys are computed anew.
  std::vector<std::int64_t> far_from = {};
};

// Computes one continuation at a time, on tensor x pipeline ranks. The random draws depend on the
// seed, the prompt's number and the position in the continuation, not on the grid.
class Generator {
 public:
  // Collective over the replica, grid.comm(kModelAxes): connects its GPUs (parallel/connections.h).
  // `stage` must outlive this object. `context` is the model's number of positions. Throws
  // ConfigError for a stage with sequence parallelism, since one position cannot be split.
  Generator(ops::Context& ctx, const parallel::Stage& stage, std::int64_t context,
            const GenerationOptions& options);

  // Called with each new token as soon as it is chosen.
  using OnToken = std::function<void(std::int32_t token)>;

  // Collective over the replica, grid.comm(kModelAxes), and over the grid if the stage is sharded
  // (Stage::sharded): then every replica calls it. Returns the continuation of `prompt` on every
  // rank of the replica. `prompt` has at least one token and is the same on all these ranks.
  // If it is longer than the context, its last tokens count. A text that has filled the context
  // goes on from its last half. What is left of a text begins with options.begin. Throws
  // CheckpointError where the model's probabilities are not finite.
  std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt, std::uint64_t number,
                                     const OnToken& on_token = {});

  // Collective over the grid. Takes at most one prompt per data replica: replica d continues
  // prompts[d], whose number is first_number + d. Returns all continuations on every rank. Only the
  // first replica calls on_token.
  std::vector<std::vector<std::int32_t>> generate_on_replicas(
      std::span<const std::vector<std::int32_t>> prompts, std::uint64_t first_number,
      const OnToken& on_token = {});

 private:
  // Appends `tokens` to the cache. Returns the logits of the last position; an undefined tensor on
  // all stages but the last. After an end of text attention starts afresh, as in training, while
  // positions go on.
  Tensor forward(std::span<const std::int32_t> tokens);
  // Returns, for each of the tokens that go into the cache next, the first key that it attends to.
  Tensor first_keys(std::span<const std::int32_t> tokens);
  // Where replicas need each other for a micro-batch (Stage::collective), all of them go on as long
  // as one has a token to make. Collective over the grid there: whether one has.
  bool a_replica_goes_on(bool mine) const;
  // Runs empty micro-batches until no replica goes on.
  void keep_others_company();
  std::int32_t choose(const Tensor& logits, std::uint64_t number, std::int64_t position);

  ops::Context& ctx_;
  const parallel::Stage& stage_;
  std::int64_t context_;
  GenerationOptions options_;
  parallel::PipelineExecutor executor_;
  nn::KeyValueCache cache_;
  std::int32_t document_ = 0;  // position in the cache where the last document begins
};

// Joins bytes into whole characters, since a token may end inside one. Bytes that are not UTF-8
// pass unchanged.
class Utf8Stream {
 public:
  // Returns what can be shown now.
  std::string add(std::string_view bytes);
  // Returns what was held back; call it at the end of a text.
  std::string rest();

 private:
  std::string held_;
};

}  // namespace trireme
