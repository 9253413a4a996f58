// What report.html says of a run.
#pragma once

#include <optional>
#include <string>

#include "trireme/report/run_history.h"

namespace trireme {

// `ended`: how the run ended, where the folder cannot say so yet; until then the page goes on.
std::string page_of_run(const RunHistory& history, const std::optional<std::string>& ended = {});

}  // namespace trireme
