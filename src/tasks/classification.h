// Says which of some classes a picture shows.
#pragma once

#include "trireme/tasks/task.h"

namespace trireme::tasks {

const Task& classification();

}  // namespace trireme::tasks
