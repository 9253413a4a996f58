// A folder for files that may not come about.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Removes what it has made of a folder, with the folders above it, where they are still empty when
// this object ends.
class MadeFolder {
 public:
  // Makes the folder if need be. Throws RunFolderError.
  explicit MadeFolder(const std::string& folder);
  // Another process has made the folder, and so many levels of it: whichever of the two leaves it
  // last removes it.
  MadeFolder(const std::string& folder, std::size_t levels);
  MadeFolder(MadeFolder&&) = default;
  MadeFolder& operator=(MadeFolder&&) = delete;
  ~MadeFolder();

  void keep() { made_.clear(); }  // something is in it that stays

  std::size_t levels() const { return made_.size(); }

 private:
  void remove() const;

  std::vector<std::string> made_;  // the folder first, then those above it
};

}  // namespace trireme
