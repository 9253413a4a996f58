#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/inference/inference.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/setup/hang_limit.h"
#include "trireme/weights/foreign_weights.h"

#include "cli/commands.h"
#include "cli/inference_arguments.h"
#include "cli/text.h"

namespace trireme::cli {
namespace {

constexpr int kExportNameWidth = 12;

struct ExportArguments {
  ExportRequest request;
  std::string format = "safetensors";
  std::string dtype = "fp32";
  std::optional<ByteSize> shard_size;
  double timeout = 600;
};

DType dtype_named(const std::string& name) {
  return name == "bf16" ? DType::kBF16 : name == "fp16" ? DType::kF16 : DType::kF32;
}

ExitStatus export_on_ranks(Runtime& runtime, const ExportArguments& given) {
  runtime.set_timeout(given.timeout);
  const std::int64_t bytes = largest_checkpoint_bytes(runtime.world(), given.request.checkpoint);
  runtime.set_timeout(HangLimit(given.timeout).seconds_with_checkpoint(bytes));
  const ExportResult result = export_weights(runtime, given.request);
  if (runtime.rank() != 0) return ExitStatus::kDone;
  if (!result.not_finite.empty()) {
    report_line(
        fmt::format("{}: {}; the files have them, too", result.checkpoint, result.not_finite));
  }
  if (!result.remark.empty()) report_line(shown(result.remark, 1000));
  NamedLines lines(kExportNameWidth);
  lines.add("checkpoint", result.checkpoint);
  lines.add("weights",
            fmt::format("a {}, {} tensors of {}, {}", result.format, result.tensors, given.dtype,
                        size_text(static_cast<std::uint64_t>(result.bytes))));
  constexpr std::size_t kMostNames = 6;
  const std::size_t count = result.files.size();
  const auto end = result.files.begin() + static_cast<std::ptrdiff_t>(std::min(count, kMostNames));
  lines.add(
      "folder",
      fmt::format("{}: {}{}", given.request.folder, fmt::join(result.files.begin(), end, ", "),
                  count > kMostNames ? fmt::format(", ... ({} files)", count) : ""));
  print_line(lines.text());
  return ExitStatus::kDone;
}

}  // namespace

Work parse_export(const Arguments& arguments) {
  ExportArguments given;
  Options options("trireme export --checkpoint RUN_OR_FILE --output FOLDER [--KEY VALUE]...");
  options.add("checkpoint", given.request.checkpoint, "",
              "a run's folder (its newest good checkpoint), or one checkpoint");
  options.add("format", given.format, "",
              "what to write; onnx: the model as a graph of operations, with its weights",
              one_of({"safetensors", "onnx"}));
  options.add("output", given.request.folder, "", "a new folder for the files");
  options.paths({"checkpoint", "output"});
  declare_weights(options, given.request.weights);
  options.add("dtype", given.dtype, "", "type of the weights in the files",
              one_of({"fp32", "bf16", "fp16"}));
  options.add("shard-size", given.shard_size, "",
              "more weights than this make several files of safetensors and an index; auto: 5GiB",
              between(1, 1e15));
  options.add("comm.timeout", given.timeout, "seconds",
              "an operation under way for longer is a hang; while the checkpoint is read its bytes "
              "add to that",
              between(1e-3, limits::kSeconds));
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  if (given.request.checkpoint.empty()) {
    throw ConfigError(
        "--checkpoint is missing: name a run's folder or a checkpoint, as in --checkpoint run");
  }
  if (given.request.folder.empty()) {
    throw ConfigError("--output is missing: name a new folder for the files");
  }
  given.request.dtype = dtype_named(given.dtype);
  if (given.format == "onnx") {
    given.request.format = ExportRequest::Format::kOnnx;
    if (given.shard_size) {
      throw ConfigError("--shard-size: the weights of a graph of ONNX are one file: leave it out");
    }
  }
  if (given.shard_size) given.request.most_bytes = given.shard_size->count;
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return export_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
