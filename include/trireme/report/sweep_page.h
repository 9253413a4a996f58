// Draws a sweep: sweep.html, and a picture of the losses of its runs.
#pragma once

#include <string>

#include "trireme/report/sweep_history.h"

namespace trireme {

// Returns the page: the runs' loss curves in one plot each for training and validation, named by
// the values in which they differ, and the table of the runs. Curves and rows lead to the
// report.html of their run, as seen from `page_folder`, where the page will lie. The page reloads
// itself while a run goes on.
std::string page_of_sweep(const SweepHistory& sweep, const std::string& page_folder);

// Returns the training losses of all runs as an SVG file of its own. Throws RunFolderError if no
// run has done a step yet.
std::string picture_of_sweep(const SweepHistory& sweep);

}  // namespace trireme
