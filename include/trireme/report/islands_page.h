// Draws a run that several jobs carry: RUN/report.html, and a picture of the losses of its members.
#pragma once

#include <string>

#include "trireme/report/islands_history.h"

namespace trireme {

// Returns the page: members as lanes over time, their losses, what became of their work, and the
// latest outer steps. Rows lead to the report.html of their member, as seen from `page_folder`,
// where the page will lie. The page reloads itself while a member is at work.
std::string page_of_islands(const IslandsHistory& run, const std::string& page_folder);

// Returns the training losses of all members as an SVG file of its own. Throws RunFolderError if no
// step is done yet.
std::string picture_of_islands(const IslandsHistory& run);

}  // namespace trireme
