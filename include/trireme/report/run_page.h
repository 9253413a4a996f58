// What is drawn of a run: report.html, and a picture of its losses.
#pragma once

#include <optional>
#include <string>

#include "trireme/report/run_history.h"

namespace trireme {

// `ended`: how the run ended, where the folder cannot say so yet; until then the page goes on.
std::string page_of_run(const RunHistory& history, const std::optional<std::string>& ended = {});

// The curves of training and evaluation loss as an SVG file of its own. Throws RunFolderError where
// no step is done yet.
std::string picture_of_losses(const RunHistory& history);

}  // namespace trireme
