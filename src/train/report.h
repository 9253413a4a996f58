// report.html: one page that needs nothing beside itself: no script, no font, no image from
// elsewhere. It is XML as well as HTML, follows the reader's light or dark mode, and prints.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/run_events.h"
#include "trireme/train/run_history.h"
#include "trireme/train/scaling.h"

namespace trireme {

using Facts = std::vector<std::pair<std::string, std::string>>;

// `ended`: how the run ended, where the folder cannot say so yet; the page of a run that goes on
// loads itself anew every half minute.
std::string page_of_run(const RunHistory& history, const std::vector<RunEvent>& events,
                        const std::optional<std::string>& ended = {});

struct StudyPage {
  Facts facts;  // what was measured, and on what
  int done = 0, planned = 0;
  std::vector<scaling::Series> series;
};
std::string page_of_study(const StudyPage& study);

// The frame of a page around its body.
std::string html_page(const std::string& title, bool goes_on, const std::string& body);
std::string html_facts(const Facts& facts);
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme
