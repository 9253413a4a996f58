// MPI's own collectives, as tasks.
#pragma once

#include <functional>
#include <memory>

#include <mpi.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/task.h"

namespace trireme {

// `start` posts the collective. The tensors live until it is done.
std::unique_ptr<Task> make_library_task(std::function<int(MPI_Request*)> start, Tensors tensors);

}  // namespace trireme
