// Files that others may read at any time.
#pragma once

#include <string>

namespace trireme {

// A file that is complete whenever it is there. Throws RunFolderError.
void write_whole_file(const std::string& path, const std::string& text);

}  // namespace trireme
