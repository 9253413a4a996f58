#include <algorithm>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/inference/picture_classifier.h"
#include "trireme/inference/probabilities.h"
#include "trireme/io/picture_files.h"
#include "trireme/io/prepare_images.h"
#include "trireme/tasks/pictures.h"

#include "cli/predict.h"

namespace trireme::cli {
namespace {

int classes_of(const InferenceModel& model) {
  return *model.model().data.classes;
}

// The names of the classes, or their numbers where the checkpoint has no names.
std::vector<std::string> class_names(const InferenceModel& model) {
  const auto count = static_cast<std::size_t>(classes_of(model));
  std::istringstream known(tasks::mark_of(model.trained_on().marks, kClassesAttribute));
  std::vector<std::string> names;
  for (std::string line; std::getline(known, line);) names.push_back(line);
  while (names.size() < count) names.push_back(fmt::format("class {}", names.size()));
  return names;
}

// Refuses a mark of the checkpoint that is not what we write.
[[noreturn]] void refuse_mark(const InferenceModel& model, const char* attribute,
                              const std::string& value, std::string_view expected) {
  throw CheckpointError(fmt::format("{}: its {} is '{}'; expected {}", model.trained_on().origin,
                                    attribute, shown(value), expected));
}

PixelStatistics normalisation_of(const InferenceModel& model, const PredictArguments& given) {
  if (given.statistics) return *given.statistics;
  const std::string known = tasks::mark_of(model.trained_on().marks, kNormalisationAttribute);
  if (known.empty()) {
    throw ConfigError(fmt::format(
        "{}: no mean and deviation are known of imported weights: give those that the model was "
        "trained with, as in --normalisation 'mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225'",
        model.trained_on().origin));
  }
  const auto statistics = read_normalisation(known);
  if (!statistics) refuse_mark(model, kNormalisationAttribute, known, kNormalisationForm);
  return *statistics;
}

PictureSize size_of_model(const InferenceModel& model) {
  const Shape sample = models::sample_shape(model.training().model);
  return {sample[0], sample[1]};
}

// The size of the pictures that the model was trained on: it sees the middle of them.
PictureSize size_of_training(const InferenceModel& model) {
  const std::string known = tasks::mark_of(model.trained_on().marks, kPictureSizeAttribute);
  if (known.empty()) return size_of_model(model);
  const auto size = read_picture_size(known);
  if (!size) refuse_mark(model, kPictureSizeAttribute, known, "HEIGHTxWIDTH, as in 24x32");
  return *size;
}

// The size to which pictures are brought.
PictureSize size_of_pictures(const InferenceModel& model, const PredictArguments& given) {
  const PictureSize size = given.picture_size ? *given.picture_size : size_of_training(model);
  const PictureSize seen = size_of_model(model);
  if (size.height < seen.height || size.width < seen.width) {
    throw ConfigError(
        fmt::format("{}: the model sees {} x {} pixels: give at least that",
                    given.size ? fmt::format("--size {}", shown(*given.size))
                               : fmt::format("--size is {} x {}, that of the pictures in training",
                                             size.height, size.width),
                    seen.height, seen.width));
  }
  return size;
}

// Says on the leading rank what is on each picture.
class PictureSpeaker {
 public:
  PictureSpeaker(std::vector<std::string> names, int top, JsonLines& json)
      : names_(std::move(names)), top_(static_cast<std::size_t>(top)), json_(json) {}

  void say(const std::string& picture, std::span<const float> probabilities) {
    const std::vector<std::size_t> order = likeliest(probabilities, top_);
    std::string line = fmt::format("{}: ", shown(picture));
    Json likely = Json::array({});
    for (const std::size_t number : order) {
      const auto share = shortest(probabilities[number]);
      line += fmt::format("{}{} {:.2f} %", number == order.front() ? "" : ", ",
                          shown(names_[number]), 100.0 * share);
      likely.push_back(Json::object({{"class", names_[number]},
                                     {"number", static_cast<std::int64_t>(number)},
                                     {"probability", share}}));
    }
    print_line(line);
    json_.add(Json::object({{"file", picture}, {"likely", std::move(likely)}}));
  }

  // Returns whether further pictures are in vain.
  bool flush() {
    json_.flush();
    return json_.in_vain();
  }
  void finish() { json_.finish(); }

 private:
  std::vector<std::string> names_;
  std::size_t top_;
  JsonLines& json_;
};

// Reads pictures, as many at a time as the grid computes and as kMostBytesAtOnce allows. The
// leading rank reads them and sends them to all.
class PictureBatches {
 public:
  PictureBatches(Communicator& comm, const PredictArguments& given, PictureSize size)
      : comm_(comm),
        files_(split_list(given.input), size, given.skips_bad),
        most_at_once_(std::max<std::int64_t>(
            1, static_cast<std::int64_t>(kMostBytesAtOnce) / (size.height * size.width * 3))) {}

  // Returns the pixels of up to `most` pictures, on every rank; none after the last one.
  std::string next(std::int64_t most) {
    return comm_.read_once([&] {
      names_.clear();
      most = std::min(most, most_at_once_);
      std::string pixels;
      NamedPicture picture;
      while (std::ssize(names_) < most && files_.next(picture)) {
        pixels.append(reinterpret_cast<const char*>(picture.pixels.data()), picture.pixels.size());
        names_.push_back(std::move(picture.name));
      }
      for (; said_ < files_.skipped().size(); ++said_) {
        report_line("left out: " + files_.skipped()[said_]);
      }
      return pixels;
    });
  }
  // The names of the pictures that next() has returned; on the leading rank.
  const std::vector<std::string>& names() const { return names_; }
  // Collective. Throws the DataError of inputs without a picture.
  void refuse_none() {
    comm_.read_once([&]() -> std::string {
      const std::size_t skipped = files_.skipped().size();
      throw DataError(
          skipped == 0
              ? "no pictures: --input names JPEG or PNG files, or folders of them"
              : fmt::format("none of the {} pictures is good: --skip-bad true left all of them out",
                            skipped));
    });
  }

 private:
  Communicator& comm_;
  PictureFiles files_;
  std::int64_t most_at_once_;
  std::vector<std::string> names_;
  std::size_t said_ = 0;
};

}  // namespace

void predict_pictures(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                      const PredictArguments& given, JsonLines& json) {
  if (given.text || !given.tokenizer.empty()) {
    throw ConfigError(
        fmt::format("--{} is for models of texts, and {} is one of pictures: leave it out",
                    given.text ? "text" : "tokenizer", model.trained_on().origin));
  }
  const int classes = classes_of(model);
  const PictureSize size = size_of_pictures(model, given);
  PictureClassifier classifier(ctx, model.stage(), size, size_of_model(model),
                               normalisation_of(model, given), classes, given.micro);
  std::optional<PictureSpeaker> speaker;
  runtime.world().read_once([&] {
    speaker.emplace(class_names(model), given.top, json);
    return std::string();
  });
  PictureBatches batches(runtime.world(), given, size);
  const Stopwatch watch;
  std::int64_t count = 0;
  std::string in_vain;
  for (std::string pixels = batches.next(classifier.most()); !pixels.empty() && in_vain.empty();
       pixels = batches.next(classifier.most())) {
    const std::vector<float> all = classifier.probabilities(
        {reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()});
    in_vain = runtime.world().read_once([&] {
      for (std::size_t i = 0; i < batches.names().size(); ++i) {
        const auto each = static_cast<std::size_t>(classes);
        speaker->say(batches.names()[i], std::span(all).subspan(i * each, each));
      }
      return std::string(speaker->flush() ? "in vain" : "");
    });
    count += std::ssize(all) / classes;
  }
  if (count == 0) batches.refuse_none();
  runtime.world().read_once([&] {
    speaker->finish();
    return std::string();
  });
  if (runtime.rank() == 0) {
    report_line(fmt::format("{} pictures in {:.1f} s, {:.1f} pictures/s", count, watch.seconds(),
                            static_cast<double>(count) / watch.seconds()));
  }
}

}  // namespace trireme::cli
