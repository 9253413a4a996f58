#include "trireme/inference/generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/utf8.h"
#include "trireme/inference/probabilities.h"
#include "trireme/parallel/connections.h"
#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

// The choosing rank sends this if the logits are not finite.
constexpr std::int32_t kNotFinite = -1;

// Returns the number of bytes at the end of `text` that are the beginning of an incomplete
// character.
std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    if (continues_character(text[text.size() - back])) continue;  // its first byte is further left
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

Generator::Generator(ops::Context& ctx, const parallel::Stage& stage, std::int64_t context,
                     const GenerationOptions& options)
    : ctx_(ctx), stage_(stage), context_(context), options_(options), executor_(ctx, stage) {
  if (stage.options().sequence_parallel) {
    throw ConfigError(
        "generation goes position by position, which grid.sequence_parallel cannot "
        "split: leave it off");
  }
  cache_.capacity = context;
  parallel::connect_stage(ctx, stage, 1, context);
}

std::vector<std::int32_t> Generator::generate(std::span<const std::int32_t> prompt,
                                              std::uint64_t number, const OnToken& on_token) {
  TRIREME_CHECK(!prompt.empty(), "an empty prompt");
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::vector<std::int32_t> cut;  // the end of the text, as a text of its own
  const auto last = [&](std::int64_t most) {
    const std::size_t count = std::min(text.size(), static_cast<std::size_t>(most));
    const auto end = std::span<const std::int32_t>(text).last(count);
    if (!options_.begin || count < 2 || count == text.size()) return end;
    cut.assign(end.begin(), end.end());
    cut.front() = *options_.begin;
    return std::span<const std::int32_t>(cut);
  };
  cache_.past = 0;
  stage_.weights().refresh(ctx_);
  std::span<const std::int32_t> next = last(context_);
  for (std::int64_t i = 0; i < options_.tokens; ++i) {
    a_replica_goes_on(true);
    const std::int32_t token = choose(forward(next), number, i);
    if (token == options_.stop_token) break;
    text.push_back(token);
    if (on_token) on_token(token);
    // The context is full. Keys and values depend on their positions, so the last half of the
    // context is computed again from position 0.
    if (cache_.past == context_) {
      cache_.past = 0;
      next = last(std::max<std::int64_t>(context_ / 2, 1));
    } else if (std::ranges::find(options_.far_from, cache_.past) != options_.far_from.end()) {
      // The next position is the first that turns all by others: as transformers' Phi-3 does it.
      next = last(std::exchange(cache_.past, 0) + 1);
    } else {
      next = last(1);
    }
  }
  keep_others_company();
  return {text.begin() + std::ssize(prompt), text.end()};
}

bool Generator::a_replica_goes_on(bool mine) const {
  if (!stage_.collective()) return mine;
  return stage_.grid().world().all_reduce_host(mine ? 1 : 0, ReduceOp::kMax) != 0;
}

void Generator::keep_others_company() {
  const nn::MicroBatch empty;
  while (a_replica_goes_on(false)) executor_.forward({&empty, 1});
}

std::vector<std::vector<std::int32_t>> Generator::generate_on_replicas(
    std::span<const std::vector<std::int32_t>> prompts, std::uint64_t first_number,
    const OnToken& on_token) {
  const ProcessGrid& grid = stage_.grid();
  const auto here = static_cast<std::size_t>(grid.index(kDataAxes));
  const auto replicas = static_cast<std::size_t>(grid.extent(kDataAxes));
  TRIREME_CHECK(prompts.size() <= replicas, "more prompts than replicas at one time");
  std::vector<std::int32_t> mine;
  if (here < prompts.size()) {
    mine = generate(prompts[here], first_number + here, here == 0 ? on_token : OnToken());
  } else {
    stage_.weights().refresh(ctx_);
    keep_others_company();
  }
  // One row for each replica: the number of tokens, then the tokens.
  const std::size_t row = static_cast<std::size_t>(options_.tokens) + 1;
  std::vector<std::int32_t> all(replicas * row);
  const std::span<std::int32_t> own = std::span(all).subspan(here * row, row);
  own[0] = static_cast<std::int32_t>(mine.size());
  std::copy(mine.begin(), mine.end(), own.begin() + 1);
  grid.comm(kDataAxes)
      .all_gather(Stream(), Tensor::wrap(own), Tensor::wrap(std::span(all)))
      .wait_host();
  std::vector<std::vector<std::int32_t>> texts;
  for (std::size_t d = 0; d < prompts.size(); ++d) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(d * row);
    texts.emplace_back(begin + 1, begin + 1 + *begin);
  }
  return texts;
}

Tensor Generator::first_keys(std::span<const std::int32_t> tokens) {
  const Tensor first = ctx_.allocate_host({std::ssize(tokens)}, DType::kI32);
  if (cache_.past == 0) document_ = 0;
  auto place = static_cast<std::int32_t>(cache_.past);
  for (std::int32_t& key : first.span<std::int32_t>()) {
    key = document_;
    // An end of text belongs to the document that it ends.
    const auto row = static_cast<std::size_t>(place++ - cache_.past);
    if (tokens[row] == options_.document_end) document_ = place;
  }
  return ops::to_device(ctx_, first);
}

Tensor Generator::forward(std::span<const std::int32_t> tokens) {
  nn::MicroBatch batch;
  batch.batch = 1;
  batch.length = std::ssize(tokens);
  const Tensor given = ctx_.allocate_host({batch.length}, DType::kI32);
  std::copy(tokens.begin(), tokens.end(), given.data<std::int32_t>());
  batch.fields.set(nn::kTokens, ops::to_device(ctx_, given));
  if (options_.document_end) batch.fields.set(nn::kFirstKey, first_keys(tokens));
  batch.cache = &cache_;
  const std::vector<Tensors> outputs = executor_.forward({&batch, 1});
  cache_.past += batch.length;
  return stage_.last() ? outputs[0][0] : Tensor();
}

std::int32_t Generator::choose(const Tensor& logits, std::uint64_t number, std::int64_t position) {
  const ProcessGrid& grid = stage_.grid();
  std::int32_t token = 0;
  // One rank chooses for all, because processors of different kinds may round differently.
  if (stage_.speaks_for_replica()) {
    std::vector<float> values(static_cast<std::size_t>(logits.elements()));
    copy(logits, Tensor::wrap(std::span(values)), ctx_.stream);
    ctx_.stream.synchronize();
    const bool finite =
        std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    // Rows of padding are never drawn.
    if (options_.vocabulary > 0 && options_.vocabulary < std::ssize(values)) {
      values.resize(static_cast<std::size_t>(options_.vocabulary));
    }
    token = finite ? sample_token(values, options_.sampling,
                                  sampling_uniform(options_.seed, number,
                                                   static_cast<std::uint64_t>(position)))
                   : kNotFinite;
  }
  const int chooser = stage_.layout().last_stage() * grid.shape().stride(Axis::kPipeline);
  grid.comm(kModelAxes)
      .broadcast(Stream(), Tensor::wrap(std::span(&token, 1)), chooser)
      .wait_host();
  if (token == kNotFinite) refuse_probabilities();
  return token;
}

std::string Utf8Stream::add(std::string_view bytes) {
  held_ += bytes;
  std::string shown = held_.substr(0, held_.size() - incomplete_tail(held_));
  held_.erase(0, shown.size());
  return shown;
}

std::string Utf8Stream::rest() {
  return std::exchange(held_, {});
}

}  // namespace trireme
