#include "trireme/io/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/hugging_face_files.h"
#include "trireme/io/lfs_pointer.h"
#include "trireme/io/whole_file.h"

#include "io/files/posix_file.h"
#include "io/tokenizers/huggingface_tokenizer.h"
#include "io/tokenizers/tokenizer_folder.h"
#include "io/tokenizers/tokens_around.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::array kBrought = {"tokenizer.json",
                                 "tokenizer.model",
                                 "tekken.json",
                                 "spiece.model",
                                 "sentencepiece.bpe.model",
                                 kTokenizerConfigName,
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "vocab.json",
                                 "merges.txt",
                                 "vocab.txt",
                                 "chat_template.jinja",
                                 "chat_template.json",
                                 "generation_config.json"};

using Files = std::map<std::string, std::string>;

// Nothing where the file is absent. Throws ConfigError and DataError for what cannot be taken.
std::optional<std::string> taken(const std::string& path) {
  constexpr auto kStatus = ExitStatus::kUsage;
  const FileFacts facts = look_at(path, kStatus);
  if (!facts.is_there()) return {};
  if (!facts.is_file()) {
    throw DataError(fmt::format("{}: {}, not a file", path,
                                facts.is_folder()               ? "a folder"
                                : facts.kind == FileKind::kPipe ? "a pipe"
                                                                : "a device or a socket"));
  }
  std::string text = read_file(path, kStatus, Tokenizer::kMaxModelBytes);
  if (is_pointer_of_lfs(text)) throw DataError(fmt::format("{}: {}", path, kWordsOnLfs));
  return text;
}

std::string path_in(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
}

// The reason where `path` cannot be taken; empty: it can, or is absent.
std::string why_not(const FoundTokenizer& found, const std::string& path) {
  for (const std::string& one : found.left_out) {
    if (one.starts_with(path + ": ")) return one;
  }
  return "";
}

void load(const std::string& folder, FoundTokenizer& found) {
  const auto file = tokenizer_in_folder(folder);
  found.why_none = why_not(found, path_in(folder, kTokenizerConfigName));
  if (!file) {
    found.why_none = "there is no tokenizer.json, tekken.json or tokenizer.model";
  } else if (std::string why = why_not(found, *file); !why.empty()) {
    found.why_none = std::move(why);
  }
  if (!found.why_none.empty()) return;
  const std::string name = fs::path(*file).filename().string();
  if (!found.files.brought.contains(name)) {  // below `original`
    if (auto text = taken(*file)) found.files.brought.emplace(name, std::move(*text));
  }
  found.files.tokenizer = load_tokenizer(folder);
}

// How texts begin and end, for people.
std::string words_on_ends(const Tokenizer& tokenizer) {
  const auto name = [&](std::int32_t token) {
    const std::string_view known = tokenizer.name_of(token);
    return known.empty() ? fmt::format("token {}", token) : std::string(known);
  };
  const auto begin = tokenizer.begin_of_text();
  return fmt::format("begin with {} and end with {}", begin ? name(*begin) : "no token",
                     name(tokenizer.end_of_text()));
}

// Null where the files make none.
TokenizerPtr as_they_came(const Files& brought) {
  try {
    return tokenizer_of_files(brought);
  } catch (const DataError&) {
    return nullptr;
  }
}

// A file that somebody has put into a folder; nothing where it is absent or cannot be read.
std::optional<std::string> content_of(const fs::path& path) {
  try {
    return taken(path.string());
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

FoundTokenizer tokenizer_files_in(const std::string& folder) {
  FoundTokenizer found;
  for (const char* name : kBrought) {
    try {
      auto text = taken(path_in(folder, name));
      if (text) found.files.brought.emplace(name, std::move(*text));
    } catch (const ConfigError& error) {
      found.left_out.emplace_back(error.what());
    } catch (const DataError& error) {
      found.left_out.emplace_back(error.what());
    }
  }
  try {
    load(folder, found);
  } catch (const ConfigError& error) {
    found.why_none = error.what();
  } catch (const DataError& error) {
    found.why_none = error.what();
  }
  std::erase(found.left_out, found.why_none);
  return found;
}

FilesForOthers files_for_others(const TokenizerFiles& files, std::int64_t longest_text) {
  FilesForOthers made{.files = files.brought};
  if (!files.tokenizer) return made;
  const TokenizerPtr said = as_they_came(files.brought);
  if (!made.files.contains(kTokenizerConfigName)) {
    try {
      made.files.merge(hugging_face_files(*files.tokenizer, longest_text));
    } catch (const DataError& error) {
      if (files.brought.empty()) throw;
      made.remark = fmt::format("the tokenizer's files stay as they came: {}", error.what());
    }
  }
  if (!said) return made;
  const FilesChanged changed = say_tokens_around(made.files, *said, *files.tokenizer);
  if (changed.names.empty() && changed.others.empty()) return made;
  made.remark =
      fmt::format("the model's texts {}, but the files that came with it say that they {}",
                  words_on_ends(*files.tokenizer), words_on_ends(*said));
  if (!changed.names.empty()) {
    made.remark += fmt::format("; changed in that: {}", fmt::join(changed.names, ", "));
  }
  if (!changed.others.empty()) {
    made.remark += fmt::format("; still as they came: {}", fmt::join(changed.others, ", "));
  }
  return made;
}

void write_tokenizer_folder(const std::string& run_folder, const Files& files) {
  constexpr auto kStatus = ExitStatus::kRunFolder;
  const fs::path folder = fs::path(run_folder) / "tokenizer";
  const fs::path unfinished = fs::path(run_folder) / "tokenizer.partial";
  const auto names = names_in(folder.string(), kStatus).value_or(std::vector<std::string>());
  bool is_there = names.size() == files.size();
  for (const auto& [name, text] : files) {
    is_there = is_there &&
               read_if_there((folder / name).string(), kStatus, Tokenizer::kMaxModelBytes) == text;
  }
  if (is_there) return;
  std::error_code ignored;  // what cannot be removed cannot be written either
  fs::remove_all(unfinished, ignored);
  make_folders(unfinished.string(), kStatus);
  try {
    for (const auto& [name, text] : files) write_whole_file((unfinished / name).string(), text);
    fs::remove_all(folder, ignored);
    rename_file(unfinished.string(), folder.string(), kStatus);
  } catch (const Error&) {
    fs::remove_all(unfinished, ignored);
    throw;
  }
  sync_folder(run_folder);
}

std::vector<std::string> update_tokenizer_folder(const std::string& run_folder, const Files& files,
                                                 const std::function<SetsOfFiles()>& earlier) {
  constexpr auto kStatus = ExitStatus::kRunFolder;
  const fs::path folder = fs::path(run_folder) / "tokenizer";
  const auto names = names_in(folder.string(), kStatus);
  if (!names || names->empty()) {
    write_tokenizer_folder(run_folder, files);
    return {};
  }
  std::optional<SetsOfFiles> known;
  const auto is_earlier = [&](const std::string& name, const std::string& text) {
    if (!known) known = earlier();
    return std::ranges::any_of(*known, [&](const Files& set) {
      const auto one = set.find(name);
      return one != set.end() && one->second == text;
    });
  };
  std::vector<std::string> theirs;
  std::set<std::string> kept;
  for (const std::string& name : *names) {
    const auto text = content_of(folder / name);
    const auto wanted = files.find(name);
    const bool is_wanted = wanted != files.end() && text == wanted->second;
    if (!is_wanted && text && is_earlier(name, *text)) {
      if (wanted == files.end()) remove_if_there((folder / name).string(), kStatus);
      continue;
    }
    kept.insert(name);
    if (!is_wanted && wanted != files.end()) theirs.push_back(name);
  }
  for (const auto& [name, text] : files) {
    if (!kept.contains(name)) write_whole_file((folder / name).string(), text);
  }
  return theirs;
}

}  // namespace trireme
