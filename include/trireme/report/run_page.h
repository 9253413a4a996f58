// Draws a run: report.html, and a picture of its losses.
#pragma once

#include <optional>
#include <string>

#include "trireme/report/run_history.h"

namespace trireme {

// Returns the page of a run. `ended` says how the run ended, if the folder cannot say so yet. The
// page reloads itself as long as the run goes on and `ended` is not given.
std::string page_of_run(const RunHistory& history, const std::optional<std::string>& ended = {});

// Returns the curves of training and evaluation loss as an SVG file of its own. Throws
// RunFolderError if no step is done yet.
std::string picture_of_losses(const RunHistory& history);

}  // namespace trireme
