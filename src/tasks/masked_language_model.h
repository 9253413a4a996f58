// Predicts hidden tokens of a text from those on both sides.
#pragma once

#include "trireme/tasks/task.h"

namespace trireme::tasks {

const Task& masked_language_model();

}  // namespace trireme::tasks
