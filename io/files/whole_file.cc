#include "trireme/io/whole_file.h"

#include "trireme/base/files.h"

#include "io/files/posix_file.h"

namespace trireme {

void write_whole_file(const std::string& path, const std::string& text) {
  write_whole_file(path, text, path + ".partial");
}

void write_whole_file(const std::string& path, const std::string& text,
                      const std::string& partial) {
  {
    PosixFile file = make_file_anew(partial);
    file.write(0, text.data(), text.size());
    file.sync();
  }
  rename_file(partial, path, ExitStatus::kRunFolder);
  sync_folder(folder_above(path));
}

}  // namespace trireme
