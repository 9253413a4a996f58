#include "trireme/io/prepare.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/text.h"

#include "cli/commands.h"
#include "cli/prepare_progress.h"
#include "cli/text.h"

namespace trireme::cli {
namespace {

struct PrepareArguments {
  std::string input, output;
  std::vector<std::string> more_inputs;
  std::string tokenizer = "bpe:4096", validation = "none", document_separator;
  std::optional<std::int64_t> limit;
  std::int64_t seed = 1;
  std::optional<int> threads;
};

void declare(Options& options, PrepareArguments& given) {
  options.add_positional("PATH...", given.more_inputs,
                         "text files, folders of them (with all below), or - for standard input");
  options.add("input", given.input, "", "the same, separated by commas");
  options.add("output", given.output, "", "folder for train.h5 and validation.h5", not_empty());
  options.add("tokenizer", given.tokenizer, "",
              "byte, bpe:N or unigram:N (learn N tokens), or a SentencePiece model's path",
              not_empty());
  options.add("validation", given.validation, "",
              "what is held out: none, hash:F (a fraction of the documents), tail:BYTES (the last "
              "bytes)",
              not_empty());
  options.add("document-separator", given.document_separator, "",
              "cuts files into documents; \\n \\t \\0 \\\\ and \\xNN are understood; default: a "
              "file is a document");
  options.add("limit", given.limit, "bytes", "only so much of the input; auto: all of it",
              at_least(1));
  options.add("seed", given.seed, "", "of the vocabulary's sample and of hash:F", at_least(0));
  options.add("threads", given.threads, "", "auto: as many as there are cores",
              between(1, limits::kThreads));
}

std::vector<std::string> inputs_of(const PrepareArguments& given) {
  std::vector<std::string> inputs;
  for (std::string& input : split_list(given.input)) {
    if (!input.empty()) inputs.push_back(std::move(input));
  }
  inputs.insert(inputs.end(), given.more_inputs.begin(), given.more_inputs.end());
  if (inputs.empty()) {
    throw ConfigError("prepare needs text: --input PATH (file, folder, or - for standard input)");
  }
  if (std::count(inputs.begin(), inputs.end(), "-") > 1) {
    throw ConfigError("standard input (-) is given twice; it can be read once");
  }
  return inputs;
}

PrepareOptions options_from(const PrepareArguments& given) {
  PrepareOptions options;
  options.inputs = inputs_of(given);
  if (given.output.empty()) throw ConfigError("prepare needs a folder to write to: --output DIR");
  options.output = given.output;
  options.tokenizer = parse_tokenizer_choice(given.tokenizer);
  options.validation = parse_validation_split(given.validation);
  options.document_separator = unescaped(given.document_separator, "--document-separator");
  options.input_limit = static_cast<std::uint64_t>(given.limit.value_or(0));
  options.seed = static_cast<std::uint64_t>(given.seed);
  options.threads =
      given.threads.value_or(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  return options;
}

// "12 in train, 3 in validation"
template <class Count>
std::string by_split(const PrepareResult& result, Count count) {
  std::string text = fmt::format("{} in train", count(result.train));
  if (result.validation) text += fmt::format(", {} in validation", count(*result.validation));
  return text;
}

std::string summary(const PrepareResult& result) {
  std::int64_t bytes = result.train.original_bytes, tokens = result.train.tokens;
  if (result.validation) {
    bytes += result.validation->original_bytes;
    tokens += result.validation->tokens;
  }
  std::string text;
  const auto add = [&](std::string_view what, const std::string& value) {
    text += fmt::format("{:<18}{}\n", what, value);
  };
  using Info = const TokenShardInfo&;
  add("documents", by_split(result, [](Info info) { return info.documents; }));
  add("tokens", by_split(result, [](Info info) { return info.tokens; }));
  add("bytes of text", by_split(result, [](Info info) { return info.original_bytes; }));
  add("bytes per token",
      fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(tokens)));
  add("tokenizer", fmt::format("{}, ready after {:.1f} s", result.tokenizer->description(),
                               result.tokenizer_seconds));
  add("time", fmt::format("{:.1f} s, {:.1f} MB/s", result.seconds,
                          1e-6 * static_cast<double>(bytes) / result.seconds));
  add("files", result.train.path + (result.validation ? ", " + result.validation->path : ""));
  text.pop_back();
  return text;
}

}  // namespace

Work parse_prepare(const Arguments& arguments) {
  PrepareArguments given;
  Options options("trireme prepare PATH... --output DIR [--KEY VALUE]...");
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("prepare");
  return {.alone =
              [prepare_options = options_from(given)]() mutable {
                PrepareProgressLine line;
                prepare_options.progress = [&](const PrepareProgress& progress) {
                  line.show(progress);
                };
                const PrepareResult result = prepare(prepare_options);
                line.clear();
                print_line(summary(result));
                return ExitStatus::kDone;
              },
          .on_ranks = {}};
}

}  // namespace trireme::cli
