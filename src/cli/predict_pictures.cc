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
#include "trireme/io/picture_files.h"
#include "trireme/io/prepare_images.h"
#include "trireme/tasks/pictures.h"
#include "trireme/train/picture_classifier.h"
#include "trireme/train/probabilities.h"

#include "cli/predict.h"

namespace trireme::cli {
namespace {

// What the checkpoint says of its data under that attribute; empty if it says nothing.
std::string mark_of(const InferenceModel& model, std::string_view attribute) {
  for (const tasks::DataMark& mark : model.trained_on().marks) {
    if (mark.attribute == attribute) return mark.value;
  }
  return "";
}

int classes_of(const InferenceModel& model) {
  return *model.model().data.classes;
}

// The names of the classes, or their numbers where the checkpoint has no names.
std::vector<std::string> class_names(const InferenceModel& model) {
  const auto count = static_cast<std::size_t>(classes_of(model));
  std::istringstream known(mark_of(model, kClassesAttribute));
  std::vector<std::string> names;
  for (std::string line; std::getline(known, line);) names.push_back(line);
  while (names.size() < count) names.push_back(fmt::format("class {}", names.size()));
  return names;
}

PixelStatistics normalisation_of(const InferenceModel& model, const std::string& given) {
  if (!given.empty()) return read_normalisation(given);
  const std::string known = mark_of(model, kNormalisationAttribute);
  if (known.empty()) {
    throw ConfigError(fmt::format(
        "{}: no mean and deviation are known of imported weights: give those that the model was "
        "trained with, as in --normalisation 'mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225'",
        model.trained_on().origin));
  }
  return read_normalisation(known);
}

PictureSize size_of_model(const InferenceModel& model) {
  const Shape sample = models::sample_shape(model.training().model);
  return {sample[0], sample[1]};
}

// The size of the pictures that the model was trained on: it sees the middle of them.
PictureSize size_of_pictures(const InferenceModel& model, const std::optional<std::string>& given) {
  const std::string known = given.value_or(mark_of(model, kPictureSizeAttribute));
  return known.empty() ? size_of_model(model) : parse_picture_size(known);
}

// Says on the leading rank what is on each picture.
class PictureSpeaker {
 public:
  PictureSpeaker(std::vector<std::string> names, int top, const std::string& json)
      : names_(std::move(names)), top_(static_cast<std::size_t>(top)), json_(json) {}

  void say(const std::string& picture, std::span<const float> probabilities) {
    const std::vector<std::size_t> order = likeliest(probabilities, top_);
    std::string line = fmt::format("{}: ", shown(picture));
    Json likely = Json::array({});
    for (const std::size_t number : order) {
      const auto share = static_cast<double>(probabilities[number]);
      line += fmt::format("{}{} {:.2f} %", number == order.front() ? "" : ", ",
                          shown(names_[number]), 100.0 * share);
      likely.push_back(Json::object({{"class", names_[number]},
                                     {"number", static_cast<std::int64_t>(number)},
                                     {"probability", share}}));
    }
    print_line(line);
    json_.write(Json::object({{"file", picture}, {"likely", std::move(likely)}}));
  }

  void finish() { json_.finish(); }

 private:
  std::vector<std::string> names_;
  std::size_t top_;
  JsonLines json_;
};

// Reads pictures, as many at a time as the grid computes. The leading rank reads them and sends
// them to all.
class PictureBatches {
 public:
  PictureBatches(Communicator& comm, const PredictArguments& given, PictureSize size)
      : comm_(comm), files_(split_list(given.input), size, given.skips_bad) {}

  // Returns the pixels of up to `most` pictures, on every rank; none after the last one.
  std::string next(std::int64_t most) {
    return comm_.read_once([&] {
      names_.clear();
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
  // Of the pictures that next() has returned; on the leading rank.
  const std::vector<std::string>& names() const { return names_; }

 private:
  Communicator& comm_;
  PictureFiles files_;
  std::vector<std::string> names_;
  std::size_t said_ = 0;
};

}  // namespace

void predict_pictures(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                      const PredictArguments& given) {
  if (given.text || !given.tokenizer.empty()) {
    throw ConfigError(
        fmt::format("--{} is for models of texts, and {} is one of pictures: leave it out",
                    given.text ? "text" : "tokenizer", model.trained_on().origin));
  }
  const int classes = classes_of(model);
  const PictureSize size = size_of_pictures(model, given.size);
  PictureClassifier classifier(ctx, model.stage(), size, size_of_model(model),
                               normalisation_of(model, given.normalisation), classes, given.micro);
  std::optional<PictureSpeaker> speaker;
  runtime.world().read_once([&] {
    speaker.emplace(class_names(model), given.top, given.json);
    return std::string();
  });
  PictureBatches batches(runtime.world(), given, size);
  const Stopwatch watch;
  std::int64_t count = 0;
  for (std::string pixels = batches.next(classifier.most()); !pixels.empty();
       pixels = batches.next(classifier.most())) {
    const std::vector<float> all = classifier.probabilities(
        {reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()});
    runtime.world().read_once([&] {
      for (std::size_t i = 0; i < batches.names().size(); ++i) {
        const auto each = static_cast<std::size_t>(classes);
        speaker->say(batches.names()[i], std::span(all).subspan(i * each, each));
      }
      speaker->finish();
      return std::string();
    });
    count += std::ssize(all) / classes;
  }
  if (count == 0)
    throw DataError("no pictures: --input names JPEG or PNG files, or folders of them");
  if (runtime.rank() == 0) {
    report_line(fmt::format("{} pictures in {:.1f} s, {:.1f} pictures/s", count, watch.seconds(),
                            static_cast<double>(count) / watch.seconds()));
  }
}

}  // namespace trireme::cli
