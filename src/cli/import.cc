#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/config/config.h"
#include "trireme/job/job_script.h"
#include "trireme/weights/foreign_weights.h"

#include "cli/commands.h"
#include "cli/text.h"

namespace trireme::cli {
namespace {

constexpr int kImportNameWidth = 12;

std::string import_summary(const ImportRequest& request, const ImportResult& result) {
  NamedLines lines(kImportNameWidth);
  lines.add("weights", fmt::format("{}: a {}", request.from, result.format));
  lines.add("model", fmt::format("{} parameters, {}", result.parameters, result.model));
  if (result.context > 0) {
    lines.add("context", fmt::format("{} tokens; train --model.context N takes shorter texts",
                                     result.context));
  }
  if (!result.tokenizer.empty()) {
    lines.add("tokenizer", result.tokenizer);
  } else if (!result.no_tokenizer.empty()) {
    lines.add("tokenizer", fmt::format("none is known: {}", shown(result.no_tokenizer)));
  }
  lines.add("checkpoint", result.checkpoint);
  lines.add("next",
            fmt::format("trireme train --config {} --data.train ...", shell_word(result.config)));
  return lines.text();
}

ExitStatus import_on_ranks(Runtime& runtime, const ImportRequest& request) {
  runtime.set_timeout(request.timeout);
  const ImportResult result = import_weights(runtime, request);
  if (runtime.rank() != 0) return ExitStatus::kDone;
  if (!result.not_read.empty()) {
    report_line(fmt::format("config.json: not read, since we do not know them: {}",
                            shown(fmt::format("{}", fmt::join(result.not_read, ", ")))));
  }
  if (!result.untied.empty()) {
    report_line(
        fmt::format("weights: {} differs from the embedding, though config.json ties them: "
                    "the model gets a head of its own (model.tied false)",
                    shown(result.untied)));
  }
  if (!result.left_out.empty()) {
    report_line(fmt::format("weights: left out, since our models do not have these parts: {}",
                            shown(fmt::format("{}", fmt::join(result.left_out, ", ")))));
  }
  if (!result.files_left_out.empty()) {
    report_line(
        fmt::format("files of the tokenizer that are left out: {}",
                    shown(fmt::format("{}", fmt::join(result.files_left_out, "; ")), 1000)));
  }
  print_line(import_summary(request, result));
  return ExitStatus::kDone;
}

}  // namespace

Work parse_import(const Arguments& arguments) {
  ImportRequest given;
  Options options("trireme import --from PATH --output RUN_FOLDER [--KEY VALUE]...");
  options.add("from", given.from, "",
              "a file of safetensors, or a folder with model.safetensors or with "
              "model.safetensors.index.json; a config.json beside it describes the model");
  options.add("output", given.run_folder, "", "the new run's folder, which gets a checkpoint");
  options.paths({"from", "output"});
  add_model_keys(options, given.model);
  options.add("allow-nonfinite", given.allow_nonfinite, "",
              "take weights that are NaN or infinite, too; without it they are refused");
  options.add("comm.timeout", given.timeout, "seconds",
              "an operation under way for longer is a hang; while the weights are read and written "
              "their bytes add to that",
              between(1e-3, limits::kSeconds));
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  if (given.from.empty()) {
    throw ConfigError("--from is missing: name a file of safetensors, or a folder of them");
  }
  if (given.run_folder.empty()) {
    throw ConfigError("--output is missing: name the folder of a new run, as in --output run");
  }
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return import_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
