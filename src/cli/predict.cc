#include "cli/predict.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

#include "cli/commands.h"

namespace trireme::cli {

JsonLines::JsonLines(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::binary | std::ios::trunc);
  check_written();
}

void JsonLines::write(const Json& line) {
  if (path_.empty()) return;
  file_ << line.dump() << '\n';
  check_written();
}

void JsonLines::finish() {
  if (path_.empty()) return;
  file_.flush();
  check_written();
}

void JsonLines::check_written() const {
  if (!file_) throw ConfigError(fmt::format("--json {}: cannot be written", path_));
}

namespace {

ExitStatus predict_on_ranks(Runtime& runtime, const PredictArguments& given) {
  allow_time_to_load(runtime, given.inference);
  const GridShape shape = inference_grid(given.inference, runtime.size());
  ComputeDevice device = inference_device(given.inference, runtime);
  const ProcessGrid grid(runtime, shape);
  const InferenceModel model(device.context, grid,
                             open_checkpoint_or_run(runtime.world(), given.inference.checkpoint),
                             given.inference.precision, given.inference.shard);
  runtime.set_timeout(given.inference.timeout);
  const std::string& family = model.training().model.family;
  const std::string_view task = models::find_family(family).task();
  if (task == "classification") {
    predict_pictures(runtime, device.context, model, given);
  } else if (task == "masked_language_model") {
    predict_texts(runtime, device.context, model, given);
  } else {
    throw ConfigError(fmt::format(
        "{}: a model of {}, whose task is {}: trireme predict says what is on pictures and fills "
        "[MASK]s in texts, and trireme generate continues texts",
        model.trained_on().origin, family, task));
  }
  return ExitStatus::kDone;
}

void declare(Options& options, PredictArguments& given) {
  options.add("input", given.input, "",
              "pictures: JPEG and PNG files, folders of them, tar archives; -: each line of "
              "standard input names a file. Texts: files with a text on each line; -: standard "
              "input");
  options.add("text", given.text, "", "a text whose [MASK]s are filled, in the place of --input");
  options.add("top", given.top, "", "how many of the likeliest classes or tokens are told",
              at_least(1));
  options.add("json", given.json, "", "a file that gets a line of JSON for each picture or text");
  options.add("normalisation", given.normalisation, "",
              "pictures: 'mean R G B, deviation R G B' of the colours, 0 to 1; default: the "
              "checkpoint's");
  options.add("size", given.size, "pixels",
              "what pictures are brought to, as by trireme prepare, before the model sees the "
              "middle: a side, or height x width as in 192x256; default: that of the pictures that "
              "it was trained on");
  options.add("skip-bad", given.skips_bad, "", "leave out pictures that cannot be read");
  options.add("tokenizer", given.tokenizer, "",
              "texts: a shard of the data that the model was trained on; default: the one named in "
              "the checkpoint");
  declare_inference(options, given.inference);
  options.add("batch.micro", given.micro, "samples", "what one replica computes at a time",
              between(1, limits::kSequences));
}

}  // namespace

Work parse_predict(const Arguments& arguments) {
  PredictArguments given;
  Options options(
      "trireme predict --checkpoint RUN_OR_FILE (--input PATH,... | --text TEXT) "
      "[--KEY VALUE]...");
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  check_inference(given.inference);
  if (given.input.empty() && !given.text) {
    throw ConfigError(
        "--input is missing: it names pictures, folders of them, or files of texts; --text gives a "
        "text itself");
  }
  if (!given.input.empty() && given.text) {
    throw ConfigError("--input and --text are given: leave one of them out");
  }
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return predict_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
