// Says what is on pictures, with a trained model: `trireme predict`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/io/image_transform.h"
#include "trireme/parallel/pipeline_executor.h"

namespace trireme {

class PictureClassifier {
 public:
  // Collective over the grid: connects its GPUs (parallel/connections.h). `stage` must outlive this
  // object. Of pictures of size `pictures` its model sees the middle, of size `seen`, normalised by
  // `statistics`, in micro-batches of `micro`. It knows `classes` classes. Throws ConfigError where
  // `seen` is no part of `pictures`.
  PictureClassifier(ops::Context& ctx, const parallel::Stage& stage, PictureSize pictures,
                    PictureSize seen, const PixelStatistics& statistics, std::int64_t classes,
                    std::int64_t micro);

  // How many pictures one call takes: a micro-batch for each data replica.
  std::int64_t most() const { return micro_ * stage_.grid().extent(kDataAxes); }

  // Collective over the grid. `pixels` (n, height, width, 3) are n <= most() pictures, the same on
  // every rank. Returns their probabilities (n, classes), the same on every rank. Throws
  // CheckpointError where they are not finite.
  std::vector<float> probabilities(std::span<const std::uint8_t> pixels);

 private:
  nn::MicroBatch micro_batch(std::span<const std::uint8_t> pixels, std::size_t micro);

  ops::Context& ctx_;
  const parallel::Stage& stage_;
  PictureSize pictures_;
  std::int64_t classes_, micro_;
  ImageTransformer transformer_;
  parallel::PipelineExecutor executor_;
};

}  // namespace trireme
