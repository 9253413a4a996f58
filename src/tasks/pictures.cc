#include "trireme/tasks/pictures.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/io/image_reader.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/softmax_loss.h"

#include "tasks/read_steps.h"

namespace trireme {
namespace {

std::size_t values_of(PictureSize size) {
  return static_cast<std::size_t>(size.height * size.width * 3);
}

Tensor add_pixels(ops::Context& ctx, nn::HostMicroBatch& host, PictureSize size) {
  return host.add(ctx, nn::kPixels, {host.batch, size.height, size.width, 3}, DType::kF32);
}

Tensor add_targets(ops::Context& ctx, nn::HostMicroBatch& host) {
  return host.add(ctx, nn::kTargets, {host.batch}, DType::kI32);
}

// Takes `word` and three numbers from the beginning of `text`.
bool take_colours(std::string_view& text, std::string_view word, std::array<double, 3>& colours) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  for (double& colour : colours) {
    if (!text.starts_with(' ')) return false;
    text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), colour);
    if (error != std::errc() || !(colour >= 0.0 && colour <= 1.0)) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return true;
}

}  // namespace

nn::HostMicroBatch make_host_pictures(ops::Context& ctx, std::int64_t batch, PictureSize size,
                                      bool pixels, bool targets) {
  nn::HostMicroBatch host(ctx, batch, 1);
  if (pixels) add_pixels(ctx, host, size);
  if (targets) add_targets(ctx, host);
  return host;
}

nn::MicroBatch make_micro_batch(ops::Context& ctx, const ImageBatch& data, PictureSize size,
                                std::size_t begin, std::int64_t micro, bool training) {
  const std::size_t real = std::min(data.samples.size() - begin, static_cast<std::size_t>(micro));
  // Parts that were not read are no fields.
  nn::HostMicroBatch host(ctx, micro, 1);
  const auto take = [&](const auto& from, auto to, std::size_t each, auto rest) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin * each);
    const auto last = first + static_cast<std::ptrdiff_t>(real * each);
    std::fill(std::copy(first, last, to.begin()), to.end(), rest);
  };
  if (!data.pixels.empty()) {
    take(data.pixels, add_pixels(ctx, host, size).span<float>(), values_of(size), 0.0f);
  }
  if (!data.labels.empty()) {
    take(data.labels, add_targets(ctx, host).span<std::int32_t>(), 1, ops::kMaskedTarget);
  }
  take(data.samples, host.samples.span<std::int64_t>(), 1, std::int64_t{0});
  nn::MicroBatch made = host.to_device(ctx, static_cast<std::int64_t>(real), training);
  if (!training) {
    made.correct = ctx.allocate({2}, DType::kI64);
    ops::fill(ctx, made.correct, 0.0f);
  }
  return made;
}

std::string normalisation_text(const PixelStatistics& statistics) {
  return fmt::format("mean {}, deviation {}", fmt::join(statistics.mean, " "),
                     fmt::join(statistics.deviation, " "));
}

std::optional<PixelStatistics> read_normalisation(std::string_view text) {
  PixelStatistics statistics;
  if (take_colours(text, "mean", statistics.mean) &&
      take_colours(text, ", deviation", statistics.deviation) && text.empty()) {
    return statistics;
  }
  return {};
}

namespace tasks {
namespace {

class Pictures final : public TaskData {
 public:
  Pictures(std::shared_ptr<const ImageDataset> data, const ImageTransform& transform, int threads)
      : data_(std::move(data)), transform_(transform), threads_(threads) {
    check_transform(transform_, data_->size());
  }

  std::uint64_t samples() const override { return data_->samples(); }
  models::DataFacts facts() const override {
    return {.classes = static_cast<int>(data_->classes().size())};
  }
  std::string description() const override {
    const PictureSize size = data_->size();
    return fmt::format("{} pictures of {} x {}, {} classes",
                       short_number(static_cast<double>(data_->samples())), size.height, size.width,
                       data_->classes().size());
  }
  std::string contents() const override { return data_->contents(); }
  std::vector<DataMark> encoding() const override {
    return {{kClassesAttribute, "the classes of data.train", class_lines()},
            {kNormalisationAttribute, "the normalisation of data.train",
             normalisation_text(transform_.statistics)},
            {kPictureSizeAttribute, "the size of pictures in data.train",
             fmt::format("{}x{}", data_->size().height, data_->size().width)}};
  }
  void check_fits(const TaskData& other) const override;
  void check_trained(const TrainedOn& model) const override;
  std::vector<std::string> paths() const override {
    std::vector<std::string> all;
    for (const ImageShardInfo& shard : data_->shards()) all.push_back(shard.path);
    return all;
  }
  std::vector<Measure> figures(const nn::EvaluationSums& sums) const override {
    TRIREME_CHECK(sums.targets == static_cast<std::int64_t>(data_->samples()) && sums.correct,
                  "each picture is looked at once");
    const auto percent = [&](std::int64_t count) {
      return fmt::format("{:.2f} %", 100.0 * sums.share(count));
    };
    return {{"loss", fmt::format("{:.6f}", sums.mean_loss())},
            {"top-1", percent(sums.correct->top1)},
            {"top-5", percent(sums.correct->top5)},
            {"pictures", fmt::format("{}", sums.targets)}};
  }

  // Each thread reads a micro-batch and not a whole step, so that beyond the next step a rank holds
  // no more pictures than threads are reading.
  std::unique_ptr<StepReader> read_steps(BatchPlan plan, std::int64_t micro,
                                         const ReadFor& what) const override {
    const int count = micro_batches_of(plan, micro);
    const ImageTransform centre{.size = transform_.size, .statistics = transform_.statistics};
    return std::make_unique<ReadSteps<ImageReader, PictureSize>>(
        transform_.size, micro, what.training, count, data_, what.training ? transform_ : centre,
        plan_by_micro_batches(std::move(plan), micro, count),
        ReadAheadOptions{.batches_ahead = pictures_ahead(count), .threads = threads_},
        ImageParts{.pixels = what.inputs, .labels = what.targets});
  }

 private:
  // A name may hold any characters.
  std::string class_lines() const {
    std::string lines;
    for (const std::string& name : data_->classes()) {
      lines += fmt::format("{}{}", lines.empty() ? "" : "\n", printable(name));
    }
    return lines;
  }

  std::shared_ptr<const ImageDataset> data_;
  ImageTransform transform_;
  int threads_;
};

void Pictures::check_fits(const TaskData& other) const {
  const auto* pictures = dynamic_cast<const Pictures*>(&other);
  TRIREME_CHECK(pictures != nullptr, "held-out data of another kind");
  const std::vector<std::string>&mine = data_->classes(), &others = pictures->data_->classes();
  if (mine == others) return;
  const auto differs = std::ranges::mismatch(mine, others);
  const std::string what =
      mine.size() != others.size()
          ? fmt::format("data.validation has {} classes, data.train {}", others.size(), mine.size())
          : fmt::format("class {} is '{}' in data.validation and '{}' in data.train",
                        differs.in1 - mine.begin(), shown(*differs.in2), shown(*differs.in1));
  throw DataError(what + ": prepare both with the same folders of classes");
}

void Pictures::check_trained(const TrainedOn& model) const {
  const std::string trained = mark_of(model.marks, kClassesAttribute);
  const auto classes = static_cast<int>(data_->classes().size());
  const std::string file = paths().front();
  if (model.facts.classes != classes) {
    throw DataError(fmt::format(
        "{} has {} classes, the model of {} {}: use pictures of the classes that it was trained on",
        file, classes, model.origin, model.facts.classes.value_or(0)));
  }
  if (!trained.empty() && trained != class_lines()) {
    throw DataError(
        fmt::format("{} has other classes than the model of {} was trained on, though "
                    "as many: prepare both with the same folders of classes",
                    file, model.origin));
  }
}

}  // namespace

int pictures_ahead(int micro_batches) {
  return std::max(2, micro_batches);
}

std::shared_ptr<const TaskData> pictures(std::shared_ptr<const ImageDataset> data,
                                         const ImageTransform& transform, int threads) {
  return std::make_shared<Pictures>(std::move(data), transform, threads);
}

}  // namespace tasks

}  // namespace trireme
