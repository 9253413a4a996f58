// A folder that gets files which belong together.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/locked_file.h"

#include "io/files/made_folder.h"

namespace trireme {

// The lock of such a folder.
std::string lock_of_set(const std::string& folder);

// One process at a time writes such files into a folder, each under the name unfinished(). They get
// their names together, the last of them last, and it has the name only while the others are those
// that were made with it: the set is whole where the last file is. A process that is killed leaves
// a note of its files, from which the next knows what to replace. Members throw RunFolderError.
class SetFolder {
 public:
  // Makes the folder if need be, and removes unfinished files that a killed process has left.
  // `names`: of the files that may be made, the last one last. A folder that it made goes with this
  // object if it is empty then.
  SetFolder(const std::string& folder, const std::vector<std::string>& names);

  const std::string& folder() const { return folder_; }
  const MadeFolder& made() const { return made_; }
  const std::string& lock() const { return lock_->path(); }  // the file that says who writes here
  std::string path(std::string_view name) const;
  std::string unfinished(std::string_view name) const;

  // Whether a killed process was to make this file, of a set that is not whole.
  bool left(std::string_view name) const;

  // The files `made`, in this order, are whole and on the disk under their unfinished names. Gives
  // them their names, and removes files of an earlier set that are `gone`, its last one first. Cut
  // at any point, the folder holds the earlier set, or this one, or no last file; if it throws, the
  // earlier one unless this one is whole.
  void give_names(const std::vector<std::string>& made, const std::vector<std::string>& gone);

 private:
  std::string replaced(std::string_view name) const;
  void restore(std::span<const std::string> named, std::span<const std::string> before) const;
  void remove_unfinished(const std::vector<std::string>& names) const;

  std::string folder_;
  MadeFolder made_;
  std::unique_ptr<LockedFile> lock_;
  std::vector<std::string> left_;
};

}  // namespace trireme
