// Files that others may read at any time, and that a crash never leaves half written.
#pragma once

#include <string>

namespace trireme {

// Replaces a file in one step: who reads it sees the old text or the new one, whole, also after the
// machine went down. The text is written to `path`.partial (or `partial`, in the same folder),
// synced and renamed. Throws RunFolderError with the system's reason.
void write_whole_file(const std::string& path, const std::string& text);
void write_whole_file(const std::string& path, const std::string& text, const std::string& partial);

}  // namespace trireme
