#include "tasks/classification.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/base/printable.h"
#include "trireme/tasks/pictures.h"

#include "tasks/file_here.h"

namespace trireme::tasks {
namespace {

PictureSize picture_size(const Shape& sample) {
  TRIREME_CHECK(sample.rank() == 3 && sample[2] == 3, "a sample that is no picture");
  return {sample[0], sample[1]};
}

PixelStatistics normalisation_of_training(const DataMark& mark) {
  if (const auto known = read_normalisation(mark.value)) return *known;
  throw CheckpointError(fmt::format("the checkpoint's normalisation '{}': expected {}",
                                    shown(mark.value), kNormalisationForm));
}

class Classification final : public Task {
 public:
  std::string_view name() const override { return "classification"; }

  std::shared_ptr<const TaskData> open(const DataRequest& request,
                                       Communicator& comm) const override {
    auto data = ImageDataset::open(
        {.data = request.paths,
         .split = request.any_split  ? ""
                  : request.training ? "train"
                                     : "validation",
         .seed = request.seed,
         .order = request.training ? SampleOrder::kShuffled : SampleOrder::kSequential},
        comm);
    ImageTransform transform = request.training ? request.augmentation : ImageTransform();
    transform.size = picture_size(request.sample);
    transform.statistics = data->statistics();
    for (const DataMark& mark : request.trained_on) {
      if (mark.attribute == kNormalisationAttribute) {
        transform.statistics = normalisation_of_training(mark);
      }
    }
    return pictures(std::move(data), transform, request.threads);
  }

  models::DataFacts facts_on_this_host(const std::vector<WeightedPath>& paths) const override {
    const std::optional<std::string> path = file_here(paths);
    if (!path) return {};
    return {.classes = static_cast<int>(read_image_shard_info(*path).classes.size())};
  }

  Unit unit() const override { return {"sample", "samples"}; }
  std::int64_t units_of_sample(const Shape& /*sample*/) const override { return 1; }
  std::string_view samples_name() const override { return "pictures"; }
  std::string size_of(const Shape& sample) const override {
    const PictureSize size = picture_size(sample);
    return fmt::format("{} x {}", size.height, size.width);
  }

  std::string measures(const nn::EvaluationSums& sums) const override {
    std::string text = fmt::format("loss {:.4f} over {} samples", sums.mean_loss(), sums.targets);
    if (!sums.correct) return text;
    return text + fmt::format(", top-1 {:.2f} %, top-5 {:.2f} %",
                              100.0 * sums.share(sums.correct->top1),
                              100.0 * sums.share(sums.correct->top5));
  }

  int most_read_ahead(const DataRequest& request, int micro_batches) const override {
    return pictures_ahead(micro_batches) + request.threads + 1;  // one is being handed on
  }
  nn::HostMicroBatch blank_batch(ops::Context& ctx, const DataRequest& request, std::int64_t micro,
                                 const ReadFor& what) const override {
    return make_host_pictures(ctx, micro, picture_size(request.sample), what.inputs, what.targets);
  }

  nn::MicroBatch made_up_batch(ops::Context& ctx, const models::Model& model, int number,
                               std::int64_t micro) const override {
    const PictureSize size = picture_size(models::sample_shape(model.request));
    ImageBatch data;
    const std::int64_t values = size.height * size.width * 3;
    const auto uniform = [](std::uint64_t key, std::int64_t at) {
      return philox_uniform_at(key, static_cast<std::uint64_t>(at));
    };
    for (std::int64_t i = 0; i < micro; ++i) {
      const std::int64_t sample = number * micro + i;
      data.samples.push_back(static_cast<std::uint64_t>(sample));
      data.labels.push_back(static_cast<std::int32_t>(uniform(1, sample) * 0.999f *
                                                      static_cast<float>(*model.data.classes)));
      for (std::int64_t value = 0; value < values; ++value) {
        data.pixels.push_back(4.0f * uniform(2, sample * values + value) - 2.0f);
      }
    }
    return make_micro_batch(ctx, data, size, 0, micro, true);
  }
};

}  // namespace

const Task& classification() {
  static const Classification kTask;
  return kTask;
}

}  // namespace trireme::tasks
