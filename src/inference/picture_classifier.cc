#include "trireme/inference/picture_classifier.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/inference/probabilities.h"
#include "trireme/parallel/connections.h"
#include "trireme/tasks/pictures.h"
#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

std::size_t values_of_picture(PictureSize size) {
  return static_cast<std::size_t>(size.height * size.width * 3);
}

}  // namespace

PictureClassifier::PictureClassifier(ops::Context& ctx, const parallel::Stage& stage,
                                     PictureSize pictures, PictureSize seen,
                                     const PixelStatistics& statistics, std::int64_t classes,
                                     std::int64_t micro)
    : ctx_(ctx),
      stage_(stage),
      pictures_(pictures),
      classes_(classes),
      micro_(micro),
      transformer_({.size = seen, .statistics = statistics}, pictures, 0),
      executor_(ctx, stage) {
  parallel::connect_stage(ctx, stage, micro, 1);
}

// This replica's part of the pictures; the rest of the micro-batch is padding. The first stage
// alone needs their pixels.
nn::MicroBatch PictureClassifier::micro_batch(std::span<const std::uint8_t> pixels,
                                              std::size_t micro) {
  const PictureSize seen = transformer_.transform().size;
  const std::size_t each = values_of_picture(pictures_), count = pixels.size() / each;
  const std::size_t each_seen = values_of_picture(seen);
  const std::size_t begin =
      std::min(count, micro * static_cast<std::size_t>(stage_.grid().index(kDataAxes)));
  const std::size_t end = std::min(count, begin + micro);
  ImageBatch batch;
  const bool first = stage_.grid().index(Axis::kPipeline) == 0;
  if (first) batch.pixels.resize(micro * each_seen);
  for (std::size_t i = begin; i < end; ++i) {
    batch.samples.push_back(i);
    if (!first) continue;
    transformer_.apply(pixels.subspan(i * each, each), 0, i,
                       std::span(batch.pixels).subspan((i - begin) * each_seen, each_seen));
  }
  return make_micro_batch(ctx_, batch, seen, 0, static_cast<std::int64_t>(micro),
                          /*training=*/false);
}

std::vector<float> PictureClassifier::probabilities(std::span<const std::uint8_t> pixels) {
  const std::size_t each = values_of_picture(pictures_);
  TRIREME_CHECK(pixels.size() <= each * static_cast<std::size_t>(most()), "too many pictures");
  stage_.weights().refresh(ctx_);
  const ProcessGrid& grid = stage_.grid();
  const auto replicas = static_cast<std::size_t>(grid.extent(kDataAxes));
  const auto classes = static_cast<std::size_t>(classes_);
  const std::size_t micro = (pixels.size() / each + replicas - 1) / replicas;
  const nn::MicroBatch batch = micro_batch(pixels, micro);
  const std::vector<Tensors> outputs = executor_.forward({&batch, 1});
  // One rank of each replica knows its rows; the others add zeros to them, which is exact.
  std::vector<float> all(replicas * micro * classes, 0.0f);
  if (stage_.speaks_for_replica()) {
    const std::span<float> mine = std::span(all).subspan(
        static_cast<std::size_t>(grid.index(kDataAxes)) * micro * classes, micro * classes);
    copy(outputs[0][0], Tensor::wrap(mine).reshape(outputs[0][0].shape()), ctx_.stream);
    ctx_.stream.synchronize();
    for (std::size_t i = 0; i < micro; ++i) make_probabilities(mine.subspan(i * classes, classes));
  }
  grid.world().all_reduce_host(std::span(all), ReduceOp::kSum);
  all.resize(pixels.size() / each * classes);
  check_probabilities(all);
  return all;
}

}  // namespace trireme
