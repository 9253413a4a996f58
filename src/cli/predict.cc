#include "cli/predict.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/io/prepare_images.h"
#include "trireme/tasks/pictures.h"

#include "cli/commands.h"

namespace trireme::cli {

namespace fs = std::filesystem;

JsonLines::JsonLines(Runtime& runtime, const std::string& path)
    : file_(runtime, path), elsewhere_(file_.is_there() && path != "-") {}

void JsonLines::add(const Json& line) {
  if (file_.is_there()) lines_ += line.dump() + "\n";
}

void JsonLines::flush() {
  file_.write(std::exchange(lines_, {}));
}

void JsonLines::finish() {
  flush();
  file_.finish();
}

bool JsonLines::in_vain() const {
  return standard_output_fault() != 0 && !elsewhere_;
}

namespace {

// Throws ConfigError if --json names a file that the command reads: it would replace that.
void check_json_is_no_input(const PredictArguments& given) {
  if (!look_ahead(given.json, ExitStatus::kRunFolder).is_file()) return;
  const auto check = [&](const char* key, const std::string& path, ExitStatus status) {
    const std::string file = path == "-" ? "/dev/stdin" : path;
    if (!same_file(given.json, file, status)) return;
    throw ConfigError(
        fmt::format("--json {}: --{} names the same file, which would be lost: give another one",
                    shown(given.json), key));
  };
  for (const std::string& path : split_list(given.input)) check("input", path, ExitStatus::kData);
  check("checkpoint", given.inference.checkpoint, ExitStatus::kCheckpoint);
  check("tokenizer", given.tokenizer, ExitStatus::kUsage);
}

std::string_view task_of_plan(const InferencePlan& plan) {
  return models::find_family(plan.training.model.family).task();
}

void check_can_predict(const InferencePlan& plan) {
  const std::string_view task = task_of_plan(plan);
  if (task == "classification" || task == "masked_language_model") return;
  throw ConfigError(fmt::format(
      "{}: a model of {}, whose task is {}: trireme predict says what is on pictures and fills "
      "[MASK]s in texts, and trireme generate continues texts",
      plan.trained_on.origin, plan.training.model.family, task));
}

ExitStatus predict_on_ranks(Runtime& runtime, const PredictArguments& given) {
  runtime.world().read_once([&] {
    check_json_is_no_input(given);
    return std::string();
  });
  JsonLines json(runtime, given.json);
  PreparedInference prepared(
      runtime, given.inference,
      {.micro = given.micro_batch(), .predicts = true, .check = check_can_predict});
  const bool pictures = task_of_plan(prepared.plan) == "classification";
  (pictures ? predict_pictures : predict_texts)(runtime, prepared.device.context, prepared.model,
                                                given, json);
  return ExitStatus::kDone;
}

void declare(Options& options, PredictArguments& given) {
  options.add("input", given.input, "",
              "pictures: JPEG and PNG files, folders of them, tar archives; -: each line of "
              "standard input names a file. Texts: files with a text on each line; -: standard "
              "input");
  options.add("text", given.text, "", "a text whose [MASK]s are filled, in the place of --input");
  options.add("top", given.top, "",
              "how many of the likeliest classes or tokens are told; all where there are fewer",
              between(1, limits::kTokens));
  options.add("json", given.json, "", "a file that gets a line of JSON for each picture or text");
  options.paths({"json"});
  options.paths({"input"}, PathForm::kList);
  options.add("normalisation", given.normalisation, "",
              "pictures: 'mean R G B, deviation R G B' of the colours, 0 to 1; default: the "
              "checkpoint's");
  options.add("size", given.size, "pixels",
              "what pictures are brought to, as by trireme prepare, before the model sees the "
              "middle: a side, or height x width as in 192x256; default: that of the pictures that "
              "it was trained on");
  options.add("skip-bad", given.skips_bad, "", "leave out pictures that cannot be read");
  options.add(
      "tokenizer", given.tokenizer, "",
      "texts: a tokenizer.json, a SentencePiece model, a folder with one, or a shard; default: "
      "the checkpoint's own");
  options.paths({"tokenizer"});
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
  if (given.size) given.picture_size = parse_picture_size(*given.size);
  if (!given.normalisation.empty()) {
    given.statistics = read_normalisation(given.normalisation);
    if (!given.statistics) {
      throw ConfigError(fmt::format("--normalisation {}: expected {}", shown(given.normalisation),
                                    kNormalisationForm));
    }
  }
  begin_outputs({given.json});
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return predict_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
