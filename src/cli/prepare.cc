#include "trireme/io/prepare.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/base/usual_threads.h"
#include "trireme/comm/launcher.h"
#include "trireme/io/prepare_images.h"
#include "trireme/train/signals.h"

#include "cli/commands.h"
#include "cli/prepare_progress.h"
#include "cli/text.h"

namespace trireme::cli {
namespace {

struct PrepareArguments {
  std::string input, output;
  std::vector<std::string> more_inputs;
  bool images = false, tokens = false, skip_bad = false, as_bytes = false;
  std::optional<std::string> tokenizer, size, begin_of_text, end_of_text, class_folder, field, join;
  std::string validation = "none", document_separator;
  std::optional<ByteSize> limit;
  std::optional<std::int64_t> vocabulary;
  std::optional<std::string> token_type;
  std::int64_t seed = 1;
  std::optional<std::int64_t> shards;
  std::optional<int> threads;
};

void declare(Options& options, PrepareArguments& given) {
  options.add_positional(
      "PATH...", given.more_inputs,
      "text, JSON Lines, arrays of JSON, CSV, TSV, Parquet, plain or packed (gzip, bzip2, "
      "xz, zstd), tar archives and folders of them, or - for standard input; "
      "with --images folders and tar archives of pictures");
  options.add("input", given.input, "", "the same, separated by commas");
  options.add("output", given.output, "", "folder for train.h5 and validation.h5", not_empty());
  options.paths({"output"});
  options.paths({"input"}, PathForm::kList);
  options.add("images", given.images, "",
              "prepare pictures (JPEG, PNG): the folder that a picture lies in is its class, "
              "folders train and test are the two files");
  options.add("size", given.size, "pixels",
              "of pictures: a side, or height x width as in 192x256; they are made smaller or "
              "larger and cut to it; auto: all have one size",
              not_empty());
  options.add(
      "class-folder", given.class_folder, "",
      "of pictures in folders in folders: outer, the first folder (in train or test) is the "
      "class; inner: the one that the picture lies in; auto: outer, but where the inner "
      "ones may be the classes, ask",
      one_of({"auto", "outer", "inner"}));
  options.add("skip-bad", given.skip_bad, "",
              "leave out pictures that are damaged or too large, and list them; of text, records "
              "that are broken or lack a field, and count them");
  options.add("field", given.field, "",
              "of JSON, CSV, TSV and Parquet: the field that is a document's text, as in text, "
              "meta.body or "
              "title,text; none: take such files as plain text; auto: text",
              not_empty());
  options.add("join", given.join, "",
              "what goes between several fields, with the escapes of --document-separator; auto: "
              "\\n\\n");
  options.add("as-bytes", given.as_bytes, "",
              "take each file byte for byte as it is, also if it is packed or binary");
  options.add(
      "tokenizer", given.tokenizer, "",
      "of text: byte, bpe:N or unigram:N (learn N tokens), or the path of a SentencePiece model, "
      "tokenizer.json, tekken.json or Llama 3's rank file, or of a folder with one; auto: bpe:4096",
      not_empty());
  options.paths({"tokenizer"});
  options.add(
      "end-of-text", given.end_of_text, "",
      "the token that ends documents; auto: the one that a tokenizer_config.json beside the "
      "tokenizer names, or is known to; with --vocabulary its number",
      not_empty());
  options.add("begin-of-text", given.begin_of_text, "",
              "the token that comes before each document, or none; auto: the one that the "
              "tokenizer's files have before texts; with --vocabulary its number",
              not_empty());
  options.add("tokens", given.tokens, "",
              "the inputs are tokens already: Megatron's .bin with .idx, nanoGPT's (uint16) or "
              "llm.c's .bin, .npy; --tokenizer PATH or --vocabulary says whose");
  options.add("token-type", given.token_type, "",
              "with --tokens: of files that do not say it, as nanoGPT's; auto: uint16",
              one_of({"auto", "uint16", "uint32"}));
  options.add("vocabulary", given.vocabulary, "",
              "with --tokens, of a tokenizer that is not at hand: how many tokens it has",
              at_least(2));
  options.add("validation", given.validation, "",
              "what is held out: none, hash:F (a fraction of the documents), tail:BYTES (the last "
              "bytes), class:F (a fraction of the pictures of each class)",
              not_empty());
  options.add("document-separator", given.document_separator, "",
              "cuts files into documents; \\n \\t \\0 \\\\ and \\xNN are understood; default: a "
              "file is a document");
  options.add("limit", given.limit, "bytes", "only so much of a text, as in 2G; auto: all of it",
              at_least(1));
  options.add("seed", given.seed, "", "of the vocabulary's sample, of hash:F and of class:F",
              at_least(0));
  options.add("shards", given.shards, "",
              "of text: how many files what is trained on becomes, train-00001-of-00003.h5, ...; "
              "auto: one, train.h5",
              between(1, kMostShards));
  options.add("threads", given.threads, "", "auto: as many as there are cores, of each rank",
              between(1, limits::kThreads));
}

std::vector<std::string> inputs_of(const PrepareArguments& given) {
  std::vector<std::string> inputs;
  for (std::string& input : split_list(given.input)) {
    if (!input.empty()) inputs.push_back(std::move(input));
  }
  inputs.insert(inputs.end(), given.more_inputs.begin(), given.more_inputs.end());
  if (inputs.empty()) {
    throw ConfigError(
        given.images
            ? "prepare needs pictures: --input PATH (folder, tar archive, or - for standard input)"
            : "prepare needs text: --input PATH (file, folder, or - for standard input)");
  }
  if (std::count(inputs.begin(), inputs.end(), "-") > 1) {
    throw ConfigError("standard input (-) is given twice; it can be read once");
  }
  return inputs;
}

// Both kinds of input share these options.
template <class PrepareKind>
PrepareKind common_options(const PrepareArguments& given) {
  PrepareKind options;
  options.inputs = inputs_of(given);
  if (given.output.empty()) throw ConfigError("prepare needs a folder to write to: --output DIR");
  options.output = given.output;
  options.validation = parse_validation_split(given.validation);
  options.seed = static_cast<std::uint64_t>(given.seed);
  options.threads = given.threads.value_or(usual_threads());
  return options;
}

DocumentTokens around(const PrepareArguments& given) {
  return {given.begin_of_text.value_or(""), given.end_of_text.value_or(""), true};
}

void set_tokens(const PrepareArguments& given, PrepareOptions& options) {
  if (given.field || given.join || given.skip_bad || given.as_bytes || given.limit ||
      !given.document_separator.empty()) {
    throw ConfigError(
        "--tokens takes whole files: leave --field, --join, --skip-bad, --as-bytes, --limit and "
        "--document-separator out");
  }
  if (given.vocabulary && given.tokenizer) {
    throw ConfigError("--vocabulary is for tokens without a --tokenizer: leave one of the two out");
  }
  if (given.vocabulary && !given.end_of_text) {
    throw ConfigError(
        "--vocabulary needs the number of the token that ends texts: --end-of-text NUMBER");
  }
  options.tokens = true;
  options.raw_token_bytes = given.token_type.value_or("") == "uint32" ? 4 : 2;
  if (given.vocabulary) options.tokenizer = parse_numbers_choice(*given.vocabulary, around(given));
  if (given.tokenizer) options.tokenizer = parse_tokenizer_choice(*given.tokenizer, around(given));
  check_validation(options);
}

PrepareOptions text_options(const PrepareArguments& given) {
  if (given.size || given.class_folder) {
    throw ConfigError(
        fmt::format("{} is for pictures: --images true", given.size ? "--size" : "--class-folder"));
  }
  if (given.as_bytes && (given.field || given.join || given.skip_bad)) {
    throw ConfigError("--as-bytes takes no records; leave --field, --join and --skip-bad out");
  }
  if (!given.tokens && (given.vocabulary || given.token_type)) {
    throw ConfigError(
        fmt::format("{} is for --tokens true", given.vocabulary ? "--vocabulary" : "--token-type"));
  }
  auto options = common_options<PrepareOptions>(given);
  options.shards = given.shards.value_or(1);
  if (given.tokens) {
    set_tokens(given, options);
    return options;
  }
  options.tokenizer = parse_tokenizer_choice(given.tokenizer.value_or("bpe:4096"), around(given));
  options.document_separator = unescaped(given.document_separator, "--document-separator");
  options.input_limit = static_cast<std::uint64_t>(given.limit.value_or(ByteSize()).count);
  if (given.field) options.fields = parse_record_fields(*given.field);
  if (given.join) {
    if (options.fields.names.size() < 2) {
      throw ConfigError("--join goes between several fields: --field title,text");
    }
    options.fields.join = unescaped(*given.join, "--join");
  }
  options.skip_bad = given.skip_bad;
  options.as_bytes = given.as_bytes;
  check_validation(options);
  return options;
}

PrepareImagesOptions image_options(const PrepareArguments& given) {
  for (const auto& [is_given, flag] :
       {std::pair(given.tokens, "--tokens"),
        std::pair(given.vocabulary.has_value(), "--vocabulary"),
        std::pair(given.token_type.has_value(), "--token-type"),
        std::pair(given.tokenizer.has_value(), "--tokenizer"),
        std::pair(given.begin_of_text.has_value(), "--begin-of-text"),
        std::pair(given.end_of_text.has_value(), "--end-of-text"),
        std::pair(given.limit.has_value(), "--limit"),
        std::pair(given.field.has_value(), "--field"), std::pair(given.join.has_value(), "--join"),
        std::pair(given.as_bytes, "--as-bytes"), std::pair(given.shards.has_value(), "--shards"),
        std::pair(!given.document_separator.empty(), "--document-separator")}) {
    if (!is_given) continue;
    throw ConfigError(fmt::format("{} is for text, not for pictures (--images true)", flag));
  }
  auto options = common_options<PrepareImagesOptions>(given);
  if (given.size) options.size = parse_picture_size(*given.size);
  options.skip_bad = given.skip_bad;
  if (given.class_folder == "outer") options.class_folder = ClassFolder::kOuter;
  if (given.class_folder == "inner") options.class_folder = ClassFolder::kInner;
  check_validation(options);
  return options;
}

// "12 in train, 3 in validation"
template <class Result, class Count>
std::string by_split(const Result& result, Count count) {
  std::string text = fmt::format("{} in train", count(result.train));
  if (result.validation) text += fmt::format(", {} in validation", count(*result.validation));
  return text;
}

constexpr std::size_t kNameWidth = 18;

// The first and the last of many.
std::string files_of(const PrepareResult& result) {
  const std::vector<std::string>& paths = result.train_paths;
  return paths.size() < 4 ? fmt::format("{}", fmt::join(paths, ", "))
                          : fmt::format("{}, ..., {}", paths.front(), paths.back());
}
std::string files_of(const PrepareImagesResult& result) {
  return result.train.path;
}

// The files, and how long it took.
template <class Result>
void add_end(NamedLines& lines, const Result& result, std::string_view speed) {
  lines.add("time", fmt::format("{:.1f} s, {}", result.seconds, speed));
  lines.add("files", files_of(result) + (result.validation ? ", " + result.validation->path : ""));
}

std::string summary(const PrepareResult& result) {
  std::int64_t bytes = result.train.original_bytes, tokens = result.train.tokens;
  if (result.validation) {
    bytes += result.validation->original_bytes;
    tokens += result.validation->tokens;
  }
  NamedLines lines(kNameWidth);
  using Info = const TokenShardInfo&;
  lines.add("documents", by_split(result, [](Info info) { return info.documents; }));
  lines.add("tokens", by_split(result, [](Info info) { return info.tokens; }));
  if (bytes > 0) {  // none are known of tokens without a tokenizer
    lines.add("bytes of text", by_split(result, [](Info info) { return info.original_bytes; }));
    lines.add("bytes per token",
              fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(tokens)));
  }
  lines.add("tokenizer", fmt::format("{}, ready after {:.1f} s", result.tokenizer->description(),
                                     result.tokenizer_seconds));
  if (const auto begin = result.tokenizer->begin_of_text()) {
    lines.add("begin of text",
              fmt::format("{} {}", *begin, shown(result.tokenizer->name_of(*begin))));
  }
  if (const std::string words = words_of(result.left_out); !words.empty()) {
    lines.add("left out", words);
  }
  if (const PlainRecords& plain = result.plain_records; plain.count > 0) {
    lines.add("as plain text", fmt::format("{} that looked otherwise; the first: {}",
                                           counted(plain.count, "file"), shown(plain.first, 400)));
  }
  if (result.bad_records.count > 0) {
    lines.add("bad records", fmt::format("{} left out; the first: {}", result.bad_records.count,
                                         result.bad_records.first));
  }
  const double millions = 1e-6 / result.seconds;
  add_end(lines, result,
          bytes > 0
              ? fmt::format("{:.1f} MB/s", static_cast<double>(bytes) * millions)
              : fmt::format("{:.1f} million tokens/s", static_cast<double>(tokens) * millions));
  return lines.text();
}

// "0.4914 0.4822 0.4465"
std::string colours(const std::array<double, 3>& values) {
  return fmt::format("{:.4f}", fmt::join(values, " "));
}

std::string classes_text(const std::vector<std::string>& classes) {
  constexpr std::size_t kMostNames = 12;
  const auto end =
      classes.begin() + static_cast<std::ptrdiff_t>(std::min(classes.size(), kMostNames));
  return fmt::format("{}: {}{}", classes.size(), fmt::join(classes.begin(), end, ", "),
                     classes.size() > kMostNames ? ", ..." : "");
}

std::string summary(const PrepareImagesResult& result) {
  NamedLines lines(kNameWidth);
  using Info = const ImageShardInfo&;
  const Info train = result.train;
  lines.add("pictures", by_split(result, [](Info info) { return info.images; }));
  lines.add("classes", classes_text(train.classes));
  lines.add("height x width", fmt::format("{} x {}", train.size.height, train.size.width));
  lines.add("mean", colours(train.statistics.mean));
  lines.add("deviation", colours(train.statistics.deviation));
  if (result.left_out > 0) {
    lines.add("left out", fmt::format("{}: hidden, or no name of a picture (.jpg, .jpeg, .png)",
                                      counted(result.left_out, "file")));
  }
  if (!result.bad.empty()) {
    lines.add("bad pictures", fmt::format("{} left out:", result.bad.size()));
    for (const std::string& bad : result.bad) lines.add("", bad);
  }
  const std::int64_t images = train.images + (result.validation ? result.validation->images : 0);
  add_end(lines, result,
          fmt::format("{:.0f} pictures/s", static_cast<double>(images) / result.seconds));
  return lines.text();
}

void say_what_is_odd(const PrepareResult& result) {
  if (result.without_begin > 0) {
    const std::int32_t begin = result.tokenizer->begin_of_text().value_or(0);
    report_line(fmt::format(
        "{} of {} do not begin with the begin of text {} {}: --begin-of-text none says that none "
        "comes before them",
        result.without_begin,
        counted(result.train.documents + (result.validation ? result.validation->documents : 0),
                "document"),
        begin, shown(result.tokenizer->name_of(begin))));
  }
  if (const ZeroBytes& zeros = result.zero_bytes; zeros.count > 0) {
    report_line(fmt::format("{}: byte {} is zero, which no text has; {} in all became tokens",
                            shown(zeros.first_in), zeros.first,
                            counted(static_cast<std::int64_t>(zeros.count), "such byte")));
  }
}
void say_what_is_odd(const PrepareImagesResult& /*result*/) {}

// Unfinished files go with those that write them.
[[noreturn]] void stop(int signal, const std::string& output) {
  throw Error(ExitStatus::kRequeue, fmt::format("stopped {}; {} is as it was before",
                                                words_on_sender(signal), shown(output)));
}

// Ends a process that waits for its input, or learns a vocabulary: nothing can be taken back.
StopSignals::End end_in_the_middle(const std::string& output) {
  return [output](int signal) {
    if (launched_tasks().index == 0) {
      report_line(fmt::format("stopped {}; what is unfinished in {} goes with the next prepare",
                              words_on_sender(signal), shown(output)));
    }
    _exit(static_cast<int>(ExitStatus::kRequeue));
  };
}

// Null where no thread can be had: then a signal ends the process as it does any other.
std::shared_ptr<const StopSignals> signals_if_possible(const std::string& output) {
  try {
    return std::make_shared<const StopSignals>(end_in_the_middle(output));
  } catch (const Error&) {
    return nullptr;
  }
}

// Prepares, and shows the progress and the summary. All ranks look for signals.
template <class PrepareKind, class Run>
ExitStatus show_preparation(const StopSignals* signals, PrepareKind options, Run prepare_kind,
                            bool speaks = true) {
  PrepareProgressLine line;
  options.progress = [&](const PrepareProgress& progress) {
    const int signal = signals != nullptr ? signals->arrived() : 0;
    if (signal != 0) stop(signal, options.output);
    if (speaks) line.show(progress);
  };
  const auto result = prepare_kind(options);
  line.clear();
  if (!speaks) return ExitStatus::kDone;
  say_what_is_odd(result);
  print_line(summary(result));
  return ExitStatus::kDone;
}

Work image_work(const PrepareImagesOptions& options) {
  require_single_process("prepare --images");
  return {.alone =
              [options] {
                const auto signals = signals_if_possible(options.output);
                return show_preparation(signals.get(), options, prepare_images);
              },
          .on_ranks = {}};
}

// A rank may have much to do alone: to learn the vocabulary, to write a file. Others wait for it.
constexpr double kRankSeconds = 86400;

ExitStatus prepare_on_ranks(Runtime& runtime, const StopSignals& signals, PrepareOptions options,
                            bool chooses_threads) {
  runtime.set_timeout(kRankSeconds);
  if (chooses_threads) options.threads = usual_threads(runtime.cores());
  return show_preparation(
      &signals, options, [&](const PrepareOptions& own) { return prepare(own, &runtime.world()); },
      runtime.rank() == 0);
}

Work text_work(const PrepareOptions& options, bool chooses_threads) {
  if (launched_tasks().count == 1) {
    return {.alone =
                [options] {
                  const auto signals = signals_if_possible(options.output);
                  return show_preparation(signals.get(), options,
                                          [](const PrepareOptions& own) { return prepare(own); });
                },
            .on_ranks = {}};
  }
  // Before MPI starts its threads.
  const auto signals = std::make_shared<const StopSignals>(end_in_the_middle(options.output));
  return {.alone = {}, .on_ranks = [options, chooses_threads, signals](Runtime& runtime) {
            return prepare_on_ranks(runtime, *signals, options, chooses_threads);
          }};
}

}  // namespace

Work parse_prepare(const Arguments& arguments) {
  PrepareArguments given;
  Options options("trireme prepare PATH... --output DIR [--KEY VALUE]...");
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  return given.images ? image_work(image_options(given))
                      : text_work(text_options(given), !given.threads);
}

}  // namespace trireme::cli
