// Reads, crops and normalises pictures ahead of their use, on threads of its own.
#pragma once

#include <memory>
#include <optional>

#include "trireme/io/batch_plan.h"
#include "trireme/io/image_dataset.h"

namespace trireme {

class ImageReader {
 public:
  // Throws ConfigError as check_transform.
  ImageReader(std::shared_ptr<const ImageDataset> dataset, const ImageTransform& transform,
              BatchPlan plan, const ReadAheadOptions& options = {}, const ImageParts& parts = {});
  ~ImageReader();  // waits only for the reads in progress
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  // Returns the next step's batch, or nothing after the plan's end. If a thread threw at that step,
  // this call and every later one rethrow it. Only one thread may call it at a time.
  std::optional<ImageBatch> next();

  // The total time that next() has waited for data.
  double wait_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
