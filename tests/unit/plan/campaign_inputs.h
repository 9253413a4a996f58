// Campaigns that tests plan.
#pragma once

#include "trireme/plan/campaign.h"

namespace trireme::plan {

// Steps of 2 s in jobs of an hour; a start takes 60 s, a checkpoint 10 s.
inline CampaignInput small_input() {
  CampaignInput input;
  input.step_seconds = {2.0, 2.0, 2.0};
  input.units_of_step = 1e6;
  input.goal.steps = 1000;
  input.nodes = 4;
  input.job_limit = 3600.0;
  input.start = 50.0;
  input.queue = 600.0;
  input.checkpoint_bytes = 2e9;
  input.write_rate = 200e6;
  input.checkpoint_every = {100, {}};
  return input;
}

// 50,000 steps in jobs of six hours, with failures.
inline CampaignInput failing_input(double mtbf) {
  CampaignInput input = small_input();
  input.goal.steps = 50000;
  input.job_limit = 6 * 3600.0;
  input.mtbf = mtbf;
  return input;
}

}  // namespace trireme::plan
