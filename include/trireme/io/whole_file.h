// Files that others may read at any time and that a crash never leaves half written.
#pragma once

#include <string>

namespace trireme {

// Replaces a file atomically: a reader sees either the whole old text or the whole new one, also
// after a crash of the machine. Writes the text to `path`.partial (or to `partial`, in the same
// folder), syncs it and renames it. Throws RunFolderError with the system's reason.
void write_whole_file(const std::string& path, const std::string& text);
void write_whole_file(const std::string& path, const std::string& text, const std::string& partial);

}  // namespace trireme
