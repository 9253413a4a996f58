// Continues texts with a trained model: `trireme generate`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/stage.h"
#include "trireme/train/sampler.h"

namespace trireme {

struct GenerationOptions {
  SamplingOptions sampling = {};
  std::uint64_t seed = 1;
  std::int64_t tokens = 200;                    // to add at most
  std::optional<std::int32_t> stop_token = {};  // ends a text, and is not part of it
  // The end of text of a model that was trained with data.mask_documents: behind it nothing of what
  // stands before is seen. None: the whole text is.
  std::optional<std::int32_t> document_end = {};
};

// One continuation at a time, on tensor x pipeline ranks. What is drawn depends on the seed, the
// prompt's number and the place in the continuation, not on the grid.
class Generator {
 public:
  // `stage` outlives this object. Throws ConfigError for a stage with sequence parallelism: one
  // position cannot be split. `context`: positions of the model.
  Generator(ops::Context& ctx, const parallel::Stage& stage, std::int64_t context,
            const GenerationOptions& options);

  // Told of each new token as soon as it is chosen.
  using OnToken = std::function<void(std::int32_t token)>;

  // The continuation of `prompt` (at least one token, the same on all ranks of the replica), on
  // every rank of it. Of a prompt longer than the context the last tokens count; a text that has
  // filled the context goes on from its last half. Throws CheckpointError where the model's
  // probabilities are not finite. Collective over the replica, grid.model().
  std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt, std::uint64_t number,
                                     const OnToken& on_token = {});

  // At most one prompt for each data replica: replica d continues prompts[d], whose number is
  // first_number + d. Returns all continuations, on every rank; only the first replica's reaches
  // on_token. Collective over the grid.
  std::vector<std::vector<std::int32_t>> generate_on_replicas(
      std::span<const std::vector<std::int32_t>> prompts, std::uint64_t first_number,
      const OnToken& on_token = {});

 private:
  // Appends to the cache. The logits of the last position; undefined before the last stage.
  // Behind an end of text attention begins anew, as in training; positions go on.
  Tensor forward(std::span<const std::int32_t> tokens);
  // Of tokens that go into the cache next.
  Tensor first_keys(std::span<const std::int32_t> tokens);
  std::int32_t choose(const Tensor& logits, std::uint64_t number, std::int64_t position);

  ops::Context& ctx_;
  const parallel::Stage& stage_;
  std::int64_t context_;
  GenerationOptions options_;
  nn::KeyValueCache cache_;
  std::int32_t document_ = 0;  // where in the cache the last document begins
};

// Puts bytes together to characters: a token may end inside one. Bytes that are no UTF-8 pass
// unchanged.
class Utf8Stream {
 public:
  // What can be shown now.
  std::string add(std::string_view bytes);
  // What was held back, at the end of a text.
  std::string rest();

 private:
  std::string held_;
};

}  // namespace trireme
