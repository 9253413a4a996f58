#include "io/files/set_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr auto kOfSet = ExitStatus::kRunFolder;
constexpr std::string_view kUnfinished = ".partial";
constexpr const char* kLock = ".writing";

// The names in a note, below the line about the process.
std::vector<std::string> noted_names(const std::string& note) {
  std::vector<std::string> names;
  for (std::size_t at = note.find('\n'); at != std::string::npos;) {
    const std::size_t end = note.find('\n', at + 1);
    if (end == std::string::npos) break;
    names.push_back(note.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

}  // namespace

std::string lock_of_set(const std::string& folder) {
  return fmt::format("{}/{}", folder, kLock);
}

SetFolder::SetFolder(const std::string& folder, const std::vector<std::string>& names)
    : folder_(folder), made_(folder) {
  lock_ = std::make_unique<LockedFile>(
      lock_of_set(folder),
      folder + ": another trireme is writing files there; wait, or name another folder");
  left_ = noted_names(lock_->left());
  std::erase_if(left_, [](const std::string& name) { return !is_file_name(name); });
  remove_unfinished(left_);
  for (const std::string& name : names) remove_if_there(replaced(name), kOfSet);
  if (!left_.empty() && look_at(path(left_.back()), kOfSet).is_there()) left_.clear();
  lock_->note(fmt::format("{}\n", fmt::join(names, "\n")));
}

std::string SetFolder::path(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}

std::string SetFolder::unfinished(std::string_view name) const {
  return path(name) + std::string(kUnfinished);
}

// The path of an earlier set's file, while the new set gets its names.
std::string SetFolder::replaced(std::string_view name) const {
  return path(name) + ".replaced" + std::string(kUnfinished);
}

bool SetFolder::left(std::string_view name) const {
  return std::ranges::find(left_, name) != left_.end();
}

// A file may have others beside it while it is made: NAME.tokens.partial.
void SetFolder::remove_unfinished(const std::vector<std::string>& names) const {
  if (names.empty()) return;
  for (const std::string& found : names_in(folder_, kOfSet).value_or(std::vector<std::string>())) {
    if (!found.ends_with(kUnfinished)) continue;
    const bool ours = std::ranges::any_of(
        names, [&](const std::string& name) { return found.starts_with(name + "."); });
    if (ours) remove_if_there(path(found), kOfSet);
  }
}

void SetFolder::give_names(const std::vector<std::string>& made,
                           const std::vector<std::string>& gone) {
  TRIREME_CHECK(!made.empty(), folder_ + ": a set of no files");
  std::vector<std::string> before;  // of an earlier set; the last file first
  const auto keep = [&](const std::string& name) {
    const FileFacts facts = look_at(path(name), kOfSet);
    if (facts.is_folder()) throw_unreadable(kOfSet, path(name), "cannot be replaced", EISDIR);
    if (facts.is_there()) before.push_back(name);
  };
  keep(made.back());
  std::ranges::for_each(gone, keep);
  std::for_each(made.rbegin() + 1, made.rend(), keep);
  sync_folder(folder_);
  std::size_t aside = 0, named = 0;
  try {
    for (; aside < before.size(); ++aside) {
      rename_file(path(before[aside]), replaced(before[aside]), kOfSet);
      if (aside == 0) sync_folder(folder_);
    }
    for (; named < made.size(); ++named) {
      if (named + 1 == made.size() && made.size() + gone.size() > 1) sync_folder(folder_);
      rename_file(unfinished(made[named]), path(made[named]), kOfSet);
    }
    sync_folder(folder_);
  } catch (const Error&) {
    restore(std::span(made).first(named), std::span(before).first(aside));
    throw;
  }
  made_.keep();
  for (const std::string& name : before) remove_if_there(replaced(name), kOfSet);
}

// Brings the earlier set back, its last file last, as far as the system lets us.
void SetFolder::restore(std::span<const std::string> named,
                        std::span<const std::string> before) const {
  for (const std::string& name : named) ::unlink(path(name).c_str());
  for (const std::string& name : std::views::reverse(before)) {
    if (::rename(replaced(name).c_str(), path(name).c_str()) != 0) return;
  }
}

}  // namespace trireme
