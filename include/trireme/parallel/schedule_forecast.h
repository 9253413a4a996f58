// What the checker predicts of a pipeline schedule for a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/nn/trained.h"
#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

struct ScheduleForecast {
  std::string name;  // of grid.schedule
  PipelineLayout layout;
  // The share of the stages' time from the first computation of a step's micro-batches to the last
  // in which they are idle. Computations take as long as costs_of_parts says; messages take no
  // time.
  double idle = 0;
  // The most micro-batches whose activations a stage holds at once, in stages' worth: those of one
  // chunk of several count as a part of one.
  double live = 0;
};

// A step that a schedule runs.
struct ForecastStep {
  int micro_batches = 1;                      // of a replica
  int recomputed = 0;                         // as in costs_of_parts
  std::optional<int> recomputed_blocks = {};  // as in RunOptions
  bool in_order = false;                      // ScheduleCosts::in_order
  nn::TrainedParameters trained = {};
  std::vector<int> cut = {};  // as in StageOptions
};

// takes_micro_batches holds. The time this takes does not grow with the number of micro-batches
// beyond some for each stage. Throws ConfigError if the model has too few blocks.
ScheduleForecast forecast_schedule(const std::string& name, const PipelineLayout& layout,
                                   const nn::ModelPlan& model, const ForecastStep& step);

// The forecasts of all schedules that so many stages and micro-batches and the model allow, in the
// order of schedule_names(). `chunks`: of "interleaved" (schedule_layout).
std::vector<ScheduleForecast> forecast_schedules(int stages, std::optional<int> chunks,
                                                 const nn::ModelPlan& model,
                                                 const ForecastStep& step);

}  // namespace trireme::parallel
