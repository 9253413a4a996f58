// What `trireme plan` shows of the layouts that it found.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/config/config.h"
#include "trireme/plan/layout_search.h"

namespace trireme::cli {

// What tables count beside seconds.
struct PlanScale {
  int nodes = 1;
  double units_of_step = 1.0;  // tokens, or samples of other data
  std::string units = "tokens";
  double model_flops = 0.0;  // of a step
  double peak = 0.0;         // FLOP/s of all ranks
};

struct PlannedNodes {
  PlanScale scale;
  plan::LayoutsFound found;
};

void print_plan_head(const PlanScale& scale);
// A line for each layout, the fastest first.
void print_plan(const PlannedNodes& planned);

// Where each ms and each MiB of a layout goes.
void print_explanation(const plan::PlannedLayout& planned, const PlanScale& scale);

Json json_of_plan(const PlannedNodes& planned);
Json json_of_layout(const plan::PlannedLayout& planned, const PlanScale& scale);

}  // namespace trireme::cli
