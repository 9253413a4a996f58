// What the keys of a configuration say about the learning rate's schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/config/config.h"
#include "trireme/optim/schedule.h"

namespace trireme {

// Returns nothing while run.steps or one of schedule.* is in epochs. The points of schedule.file
// are the caller's to read. Throws ConfigError for a schedule.name that does not exist.
std::optional<optim::LearningRateOptions> schedule_options(const Config& config);

// Throws ConfigError for keys that the curve does not have or lacks, and, where all is in steps,
// for what does not fit into the run.
void check_learning_rate(const Config& config);

// A curve that follows run.steps leaps where a run goes on after `step` steps and was made longer
// or shorter. Says so, and what keeps the old curve; empty if the rate goes on smoothly, or has
// another curve or peak.
std::string words_on_leap(const Config& before, const Config& now, std::int64_t step);

}  // namespace trireme
