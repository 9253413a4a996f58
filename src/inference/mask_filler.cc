#include "trireme/inference/mask_filler.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/inference/probabilities.h"
#include "trireme/parallel/connections.h"
#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

// Returns a size that is as large as the largest of the texts needs.
MaskedSize size_for(std::span<const TextToFill> texts, std::int32_t pad) {
  MaskedSize size{.length = 0, .most = 1, .pad = pad, .padded = true};
  for (const TextToFill& text : texts) {
    size.length = std::max<std::int64_t>(size.length, std::ssize(text.tokens));
    size.most = std::max<std::int64_t>(size.most, std::ssize(text.masks));
  }
  return size;
}

// What ranks tell each other of one token: its number and its probability.
constexpr std::size_t kBytesOfLikely = sizeof(std::int64_t) + sizeof(float);
constexpr std::size_t kMostBytesTold = std::size_t{16} << 20;

}  // namespace

std::size_t texts_at_once(std::span<const TextToFill> texts, std::size_t replicas,
                          std::size_t top) {
  std::size_t masks = 1, count = 0;
  for (; count < texts.size(); ++count) {
    masks = std::max(masks, texts[count].masks.size());
    const std::size_t rows = (count / replicas + 1) * replicas * masks;
    // This divides, since a product could overflow.
    if (count > 0 && rows > kMostBytesTold / kBytesOfLikely / top) break;
  }
  return count;
}

MaskFiller::MaskFiller(ops::Context& ctx, const parallel::Stage& stage,
                       const SpecialTokens& special, std::int64_t context, std::int64_t micro)
    : ctx_(ctx),
      stage_(stage),
      special_(special),
      context_(context),
      micro_(micro),
      executor_(ctx, stage) {
  parallel::connect_stage(ctx, stage, micro, context);
}

// This replica's part of the texts; the rest of the micro-batch is padding.
nn::MicroBatch MaskFiller::micro_batch(std::span<const TextToFill> texts, const MaskedSize& size,
                                       std::size_t micro) const {
  const std::size_t begin =
      std::min(texts.size(), micro * static_cast<std::size_t>(stage_.grid().index(kDataAxes)));
  const std::size_t end = std::min(texts.size(), begin + micro);
  MaskedBatch batch;
  for (std::size_t i = begin; i < end; ++i) {
    const auto append = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from,
                           std::int64_t length, std::int32_t rest) {
      to.insert(to.end(), from.begin(), from.end());
      to.resize(to.size() + static_cast<std::size_t>(length) - from.size(), rest);
    };
    batch.samples.push_back(i);
    append(batch.tokens, texts[i].tokens, size.length, size.pad);
    append(batch.positions, texts[i].masks, size.most, 0);
    batch.ends.push_back(static_cast<std::int32_t>(texts[i].tokens.size()));
  }
  return make_micro_batch(ctx_, batch, size, 0, static_cast<std::int64_t>(micro),
                          /*training=*/false);
}

std::size_t MaskFiller::tokens_told(int top) const {
  return static_cast<std::size_t>(std::min(top, special_.vocabulary));
}

std::size_t MaskFiller::most_of(std::span<const TextToFill> texts, int top) const {
  return texts_at_once(texts, static_cast<std::size_t>(stage_.grid().extent(kDataAxes)),
                       tokens_told(top));
}

std::vector<LikelyTokens> MaskFiller::fill(std::span<const TextToFill> texts, int top) {
  const MaskedSize size = size_for(texts, special_.pad);
  TRIREME_CHECK(!texts.empty() && std::ssize(texts) <= most() && size.length <= context_ &&
                    most_of(texts, top) == texts.size(),
                "no texts, too many or too long ones");
  stage_.weights().refresh(ctx_);
  const ProcessGrid& grid = stage_.grid();
  const auto replicas = static_cast<std::size_t>(grid.extent(kDataAxes));
  const std::size_t micro = (texts.size() + replicas - 1) / replicas;
  const nn::MicroBatch batch = micro_batch(texts, size, micro);
  const std::vector<Tensors> outputs = executor_.forward({&batch, 1});
  const auto vocabulary = static_cast<std::size_t>(special_.vocabulary), count = tokens_told(top),
             rows = micro * static_cast<std::size_t>(size.most);
  // One rank of each replica knows its rows; the others add zeros to them, which is exact.
  const std::size_t values = replicas * rows * count;
  std::vector<std::int64_t> tokens(values);
  std::vector<float> probabilities(values);
  if (stage_.speaks_for_replica()) {
    const Tensor all =
        outputs[0][0].reshape({static_cast<std::int64_t>(rows), special_.vocabulary});
    std::vector<float> logits(vocabulary);
    std::size_t at = static_cast<std::size_t>(grid.index(kDataAxes)) * rows * count;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto number = static_cast<std::int64_t>(row);
      copy(all.rows(number, number + 1),
           Tensor::wrap(std::span(logits)).reshape({1, special_.vocabulary}), ctx_.stream);
      ctx_.stream.synchronize();
      make_probabilities(logits);
      if (!std::isfinite(logits[0]))
        probabilities[at] = logits[0];  // so is the whole row: all see it
      if (!std::isfinite(logits[0])) break;
      for (const std::size_t token : likeliest(logits, count)) {
        tokens[at] = static_cast<std::int64_t>(token);
        probabilities[at++] = logits[token];
      }
    }
  }
  grid.world().all_reduce_host(std::span(tokens), ReduceOp::kSum);
  grid.world().all_reduce_host(std::span(probabilities), ReduceOp::kSum);
  check_probabilities(probabilities);
  std::vector<LikelyTokens> all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t mask = 0; mask < texts[i].masks.size(); ++mask) {
      const std::size_t first = (i * static_cast<std::size_t>(size.most) + mask) * count;
      LikelyTokens& likely = all.emplace_back();
      for (std::size_t at = first; at < first + count; ++at) {
        likely.push_back({static_cast<std::int32_t>(tokens[at]), probabilities[at]});
      }
    }
  }
  return all;
}

}  // namespace trireme
