#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/io/image_shard.h"
#include "trireme/io/token_shard.h"

#include "cli/actions.h"
#include "cli/commands.h"
#include "cli/text.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Whether a file has this name, which may be a mixture. A long mixture is no name that a file
// system takes.
bool names_a_file(const std::string& word) {
  try {
    return look_ahead(word, ExitStatus::kData).is_there();
  } catch (const DataError&) {
    return false;  // each part of the mixture is looked for
  }
}

// A word is a file, a folder, or a value as for data.train: several of them with weights.
std::vector<std::string> paths_in(const std::string& word) {
  std::vector<WeightedPath> entries;
  const std::string problem = read_value(word, entries, Limit{});
  const bool one_path = entries.size() == 1 && entries.front().path == word;
  if (one_path || names_a_file(word)) return {word};
  if (!problem.empty()) throw ConfigError(fmt::format("data {}: {}", word, problem));
  std::vector<std::string> paths;
  for (const WeightedPath& entry : entries) paths.push_back(entry.path);
  return paths;
}

std::string bytes_text(const std::string& path) {
  return size_text(static_cast<std::uint64_t>(look_at(path, ExitStatus::kData).bytes));
}

// Calls `show` for each shard. A bad shard is reported, and the others are still shown.
template <class Show>
ExitStatus for_each_shard(const std::vector<std::string>& words, const Show& show) {
  ExitStatus status = ExitStatus::kDone;
  const auto report = [&status](const Error& error) {
    report_line(error.what());
    status = error.status() == ExitStatus::kInternal ? ExitStatus::kData : error.status();
  };
  for (const std::string& word : words) {
    for (const std::string& path : paths_in(word)) {
      try {
        for (const std::string& file : token_shard_files(path)) {
          try {
            show(file);
          } catch (const DataError& error) {
            report(error);
          } catch (const Hdf5Error& error) {
            report(error);
          }
        }
      } catch (const DataError& error) {
        report(error);
      }
    }
  }
  return status;
}

// What a shard holds, in the words of the table of `data list`.
struct Row {
  std::int64_t tokens = 0, pictures = 0;
  std::string contents, parts, split, kind;
};

Row row_of(const std::string& path) {
  if (is_image_shard(path)) {
    const ImageShardInfo info = read_image_shard_info(path);
    return {0,
            info.images,
            fmt::format("{} pictures", info.images),
            fmt::format("{} classes", info.classes.size()),
            shown(info.split),
            fmt::format("{} x {}", info.size.height, info.size.width)};
  }
  const TokenShardInfo info = read_token_shard_info(path);
  return {info.tokens,
          0,
          std::to_string(info.tokens),
          std::to_string(info.documents),
          shown(info.split),
          fmt::format("{} {}", shown(info.tokenizer_kind), info.vocabulary)};
}

ExitStatus list_shards(const std::vector<std::string>& words) {
  print_line(fmt::format("{:>14} {:>11} {:>10}  {:<11} {:<14} {}", "tokens", "documents", "size",
                         "split", "tokenizer", "file"));
  std::int64_t shards = 0, tokens = 0, pictures = 0;
  const ExitStatus status = for_each_shard(words, [&](const std::string& path) {
    const Row row = row_of(path);
    print_line(fmt::format("{:>14} {:>11} {:>10}  {:<11} {:<14} {}", row.contents, row.parts,
                           bytes_text(path), row.split, row.kind, path));
    ++shards;
    tokens += row.tokens;
    pictures += row.pictures;
  });
  if (shards > 1 && tokens > 0) print_line(fmt::format("{:>14} in {} shards", tokens, shards));
  if (shards > 1 && pictures > 0) {
    print_line(fmt::format("{:>14} in {} shards", fmt::format("{} pictures", pictures), shards));
  }
  return status;
}

// What is said of every shard, to begin with.
NamedLines lines_of_file(const std::string& path, std::int64_t version) {
  NamedLines lines(16);
  lines.add("file", path);
  lines.add("size", bytes_text(path));
  lines.add("format version", std::to_string(version));
  return lines;
}

std::string checked_text(bool has_record, std::string_view what) {
  return has_record
             ? fmt::format("headers by the closing record, {} as they are read", what)
             : fmt::format("{} as they are read; there is no closing record for the headers", what);
}

void inspect_text(const std::string& path) {
  const TokenShardInfo info = read_token_shard_info(path);
  NamedLines lines = lines_of_file(path, info.format_version);
  lines.add("checked", info.format_version == 1
                           ? "not as it is read (format version 1), but by `trireme data verify`"
                           : checked_text(info.has_record, "tokens"));
  lines.add("split", shown(info.split));
  lines.add("tokens",
            fmt::format("{} of {} bytes, {}", info.tokens, info.token_bytes,
                        info.data_offset < 0 ? "chunked or converted by HDF5" : "contiguous"));
  lines.add("documents", std::to_string(info.documents));
  lines.add("original bytes", std::to_string(info.original_bytes));
  lines.add("bytes per token", fmt::format("{:.3f}", static_cast<double>(info.original_bytes) /
                                                         static_cast<double>(info.tokens)));
  lines.add("vocabulary", std::to_string(info.vocabulary));
  if (info.begin_of_text) lines.add("begin of text", std::to_string(*info.begin_of_text));
  lines.add("end of text", std::to_string(info.end_of_text));
  lines.add("tokenizer", info.tokenizer_model.empty()
                             ? shown(info.tokenizer_kind)
                             : fmt::format("{}, {}", shown(info.tokenizer_kind),
                                           size_text(info.tokenizer_model.size())));
  lines.add("source", printable(info.source));
  lines.add("checksum", shown(info.checksum));
  print_line(lines.text());
}

void inspect_images(const std::string& path) {
  const ImageShardInfo info = read_image_shard_info(path);
  NamedLines lines = lines_of_file(path, info.format_version);
  lines.add("checked", checked_text(info.has_record, "pictures"));
  lines.add("split", shown(info.split));
  lines.add("pictures",
            fmt::format("{}, {}", info.images,
                        info.images_offset < 0 ? "chunked or converted by HDF5" : "contiguous"));
  lines.add("height x width", fmt::format("{} x {}", info.size.height, info.size.width));
  lines.add("classes", std::to_string(info.classes.size()));
  lines.add("mean", fmt::format("{:.4f}", fmt::join(info.statistics.mean, " ")));
  lines.add("deviation", fmt::format("{:.4f}", fmt::join(info.statistics.deviation, " ")));
  lines.add("source", printable(info.source));
  lines.add("checksum", shown(info.checksum));
  for (std::size_t i = 0; i < info.classes.size(); ++i) {
    lines.add(fmt::format("class {}", i), shown(info.classes[i]));
  }
  print_line(lines.text());
}

ExitStatus inspect_shards(const std::vector<std::string>& words) {
  bool first = true;
  return for_each_shard(words, [&first](const std::string& path) {
    if (!std::exchange(first, false)) print_line("");
    is_image_shard(path) ? inspect_images(path) : inspect_text(path);
  });
}

ExitStatus verify_shards(const std::vector<std::string>& words) {
  return for_each_shard(words, [](const std::string& path) {
    if (is_image_shard(path)) {
      const ImageShardInfo info = verify_image_shard(path);
      print_line(fmt::format("{}: good, {} pictures, {} classes, {}", path, info.images,
                             info.classes.size(), bytes_text(path)));
      return;
    }
    const TokenShardInfo info = verify_token_shard(path);
    print_line(fmt::format("{}: good, {} tokens, {} documents, {}", path, info.tokens,
                           info.documents, bytes_text(path)));
  });
}

struct DataAction {
  std::string name;
  ExitStatus (*run)(const std::vector<std::string>& words);
};

}  // namespace

Work parse_data(const Arguments& arguments) {
  std::vector<std::string> words;
  Options options("trireme data list|inspect|verify PATH...");
  options.add_positional("PATH", words,
                         "shards, folders of them, or a mixture as data.train takes it; inspect "
                         "shows what a shard says of itself, verify checks every byte and ends "
                         "with 3 where one shard is bad",
                         {"list", "inspect", "verify"});
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("data");
  if (words.empty()) throw ConfigError("data list|inspect|verify PATH...: nothing is given");
  static const std::vector<DataAction> actions = {
      {"list", list_shards}, {"inspect", inspect_shards}, {"verify", verify_shards}};
  const DataAction& action = find_action("data", actions, words[0]);
  words.erase(words.begin());
  if (words.empty()) {
    throw ConfigError(
        fmt::format("data {} needs a PATH: a shard, a folder of shards or a mixture", action.name));
  }
  return {.alone = [&action, words] { return action.run(words); }, .on_ranks = {}};
}

}  // namespace trireme::cli
