// Predicts each token of a text from those before it.
#pragma once

#include "trireme/tasks/task.h"

namespace trireme::tasks {

const Task& causal_language_model();

}  // namespace trireme::tasks
