#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/base/text.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/io/token_shard.h"

#include "cli/actions.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// A word is a file, a folder, or a value as for data.train: several of them with weights.
std::vector<std::string> paths_in(const std::string& word) {
  std::error_code ignored;
  if (fs::exists(word, ignored)) return {word};
  std::vector<WeightedPath> entries;
  const std::string problem = read_value(word, entries, Limit{});
  if (!problem.empty()) throw ConfigError(fmt::format("data {}: {}", word, problem));
  std::vector<std::string> paths;
  for (const WeightedPath& entry : entries) paths.push_back(entry.path);
  return paths;
}

std::string bytes_text(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? "?" : size_text(bytes);
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

ExitStatus list_shards(const std::vector<std::string>& words) {
  print_line(fmt::format("{:>14} {:>11} {:>10}  {:<11} {:<14} {}", "tokens", "documents", "size",
                         "split", "tokenizer", "file"));
  std::int64_t shards = 0, tokens = 0;
  const ExitStatus status = for_each_shard(words, [&](const std::string& path) {
    const TokenShardInfo info = read_token_shard_info(path);
    print_line(fmt::format("{:>14} {:>11} {:>10}  {:<11} {:<14} {}", info.tokens, info.documents,
                           bytes_text(path), info.split,
                           fmt::format("{} {}", info.tokenizer_kind, info.vocabulary), path));
    ++shards;
    tokens += info.tokens;
  });
  if (shards > 1) print_line(fmt::format("{:>14} in {} shards", tokens, shards));
  return status;
}

void inspect_one(const std::string& path) {
  const TokenShardInfo info = read_token_shard_info(path);
  std::string text;
  const auto add = [&text](std::string_view what, const std::string& value) {
    text += fmt::format("{:<16}{}\n", what, value);
  };
  add("file", path);
  add("size", bytes_text(path));
  add("format version", std::to_string(info.format_version));
  add("checked", info.format_version == 1
                     ? "not as it is read (format version 1), but by `trireme data verify`"
                 : info.has_record
                     ? "headers by the closing record, tokens as they are read"
                     : "tokens as they are read; there is no closing record for the headers");
  add("split", info.split);
  add("tokens", fmt::format("{} of {} bytes, {}", info.tokens, info.token_bytes,
                            info.data_offset < 0 ? "chunked or converted by HDF5" : "contiguous"));
  add("documents", std::to_string(info.documents));
  add("original bytes", std::to_string(info.original_bytes));
  add("bytes per token", fmt::format("{:.3f}", static_cast<double>(info.original_bytes) /
                                                   static_cast<double>(info.tokens)));
  add("vocabulary", std::to_string(info.vocabulary));
  add("end of text", std::to_string(info.end_of_text));
  add("tokenizer",
      info.tokenizer_model.empty()
          ? info.tokenizer_kind
          : fmt::format("{}, {}", info.tokenizer_kind, size_text(info.tokenizer_model.size())));
  add("source", info.source);
  add("checksum", info.checksum);
  print_line(text.substr(0, text.size() - 1));
}

ExitStatus inspect_shards(const std::vector<std::string>& words) {
  bool first = true;
  return for_each_shard(words, [&first](const std::string& path) {
    if (!std::exchange(first, false)) print_line("");
    inspect_one(path);
  });
}

ExitStatus verify_shards(const std::vector<std::string>& words) {
  return for_each_shard(words, [](const std::string& path) {
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
