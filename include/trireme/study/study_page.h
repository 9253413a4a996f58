// The contents of a scaling study's report.html.
#pragma once

#include <string>
#include <vector>

#include "trireme/report/html_page.h"
#include "trireme/study/scaling.h"

namespace trireme::scaling {

struct StudyPage {
  Facts facts;                // what was measured, and on which machine
  int done = 0, planned = 0;  // points
  std::vector<Series> series;
  std::vector<PointResult> runs = {};  // each run once
  tasks::Unit unit = {};               // of progress
  double least_efficiency = 0.8;       // for the verdict
};
std::string page_of_study(const StudyPage& study);

}  // namespace trireme::scaling
