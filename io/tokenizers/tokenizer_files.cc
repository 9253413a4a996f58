#include "trireme/io/tokenizer_files.h"

#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/hugging_face_files.h"
#include "trireme/io/whole_file.h"

#include "io/files/posix_file.h"
#include "io/tokenizers/tokenizer_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr std::array kBrought = {"tokenizer.json",
                                 "tokenizer.model",
                                 "tekken.json",
                                 "spiece.model",
                                 "sentencepiece.bpe.model",
                                 kConfigName,
                                 "special_tokens_map.json",
                                 "added_tokens.json",
                                 "vocab.json",
                                 "merges.txt",
                                 "vocab.txt",
                                 "chat_template.jinja",
                                 "chat_template.json",
                                 "generation_config.json"};

}  // namespace

TokenizerFiles tokenizer_files_in(const std::string& folder, std::string& why_none) {
  TokenizerFiles files;
  for (const char* name : kBrought) {
    auto text = read_if_there((fs::path(folder) / name).string(), ExitStatus::kUsage,
                              Tokenizer::kMaxModelBytes);
    if (text) files.brought.emplace(name, std::move(*text));
  }
  if (!tokenizer_in_folder(folder)) {
    why_none = "there is no tokenizer.json, tekken.json or tokenizer.model";
    return files;
  }
  try {
    files.tokenizer = load_tokenizer(folder);
  } catch (const DataError& error) {
    why_none = error.what();
  }
  return files;
}

std::map<std::string, std::string> files_for_others(const TokenizerFiles& files,
                                                    std::int64_t longest_text) {
  std::map<std::string, std::string> all = files.brought;
  if (!files.tokenizer || all.contains(kConfigName)) return all;
  all.merge(hugging_face_files(*files.tokenizer, longest_text));
  return all;
}

void write_tokenizer_folder(const std::string& run_folder,
                            const std::map<std::string, std::string>& files) {
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
  for (const auto& [name, text] : files) write_whole_file((unfinished / name).string(), text);
  fs::remove_all(folder, ignored);
  rename_file(unfinished.string(), folder.string(), kStatus);
  sync_folder(run_folder);
}

}  // namespace trireme
