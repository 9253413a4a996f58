#include "trireme/tasks/pictures.h"

#include <algorithm>
#include <charconv>
#include <numeric>
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

nn::HostMicroBatch make_host_pictures(ops::Context& ctx, std::int64_t batch, PictureSize size) {
  nn::HostMicroBatch host(ctx, batch, 1);
  host.add(ctx, nn::kPixels, {batch, size.height, size.width, 3}, DType::kF32);
  host.add(ctx, nn::kTargets, {batch}, DType::kI32);
  return host;
}

nn::MicroBatch make_micro_batch(ops::Context& ctx, const ImageBatch& data, PictureSize size,
                                std::size_t begin, std::int64_t micro, bool training) {
  const std::size_t real = std::min(data.samples.size() - begin, static_cast<std::size_t>(micro));
  const nn::HostMicroBatch host = make_host_pictures(ctx, micro, size);
  const auto take = [&](const auto& from, auto to, std::size_t each, auto rest) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin * each);
    const auto last = first + static_cast<std::ptrdiff_t>(real * each);
    std::fill(std::copy(first, last, to.begin()), to.end(), rest);
  };
  take(data.pixels, host.fields.find(nn::kPixels).span<float>(), values_of(size), 0.0f);
  take(data.labels, host.fields.find(nn::kTargets).span<std::int32_t>(), 1, ops::kMaskedTarget);
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

PixelStatistics read_normalisation(const std::string& text) {
  PixelStatistics statistics;
  std::string_view rest = text;
  if (take_colours(rest, "mean", statistics.mean) &&
      take_colours(rest, ", deviation", statistics.deviation) && rest.empty()) {
    return statistics;
  }
  throw DataError(fmt::format(
      "normalisation '{}': expected mean R G B, deviation R G B, numbers of 0 to 1", shown(text)));
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
             normalisation_text(transform_.statistics)}};
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

  std::unique_ptr<StepReader> read_steps(BatchPlan plan, std::int64_t micro) const override {
    return std::make_unique<ReadSteps<ImageReader, PictureSize>>(
        transform_.size, micro, data_, transform_, std::move(plan),
        ReadAheadOptions{.threads = threads_});
  }
  nn::MicroBatch evaluation_batch(ops::Context& ctx, std::uint64_t first,
                                  std::int64_t micro) const override {
    std::vector<std::uint64_t> wanted(
        std::min(static_cast<std::uint64_t>(micro), data_->samples() - first));
    std::iota(wanted.begin(), wanted.end(), first);
    const auto centre =
        data_->transformer({.size = transform_.size, .statistics = transform_.statistics});
    return make_micro_batch(ctx, data_->read(wanted, *centre), transform_.size, 0, micro, false);
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
  const auto mark = std::ranges::find(model.marks, kClassesAttribute, &DataMark::attribute);
  const auto classes = static_cast<int>(data_->classes().size());
  const std::string file = paths().front();
  if (model.facts.classes != classes) {
    throw DataError(fmt::format(
        "{} has {} classes, the model of {} {}: use pictures of the classes that it was trained on",
        file, classes, model.origin, model.facts.classes.value_or(0)));
  }
  if (mark != model.marks.end() && mark->value != class_lines()) {
    throw DataError(
        fmt::format("{} has other classes than the model of {} was trained on, though "
                    "as many: prepare both with the same folders of classes",
                    file, model.origin));
  }
}

}  // namespace

std::shared_ptr<const TaskData> pictures(std::shared_ptr<const ImageDataset> data,
                                         const ImageTransform& transform, int threads) {
  return std::make_shared<Pictures>(std::move(data), transform, threads);
}

}  // namespace tasks

}  // namespace trireme
