// MPI's own collectives, as tasks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include <mpi.h>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/task.h"

namespace trireme {

// `start` posts the collective by an algorithm of MPI, which is_library() names. The tensors live
// until it is done.
std::unique_ptr<Task> make_library_task(Collective collective, Algorithm algorithm,
                                        std::function<int(MPI_Request*)> start, Tensors tensors);

// Makes MPI start collectives of this kind by an algorithm as long as it lives, where MPI lets us
// choose (MPICH's control variables); elsewhere, and for kLibrary, MPI chooses. These variables
// belong to the process: no other thread may start a collective meanwhile, so all of them are
// started within such a scope.
class LibraryChoice {
 public:
  LibraryChoice(Collective collective, Algorithm algorithm);
  ~LibraryChoice();
  LibraryChoice(const LibraryChoice&) = delete;
  LibraryChoice& operator=(const LibraryChoice&) = delete;

  // Whether MPI knows this algorithm for that collective.
  bool takes_effect() const { return variable_ != nullptr; }

 private:
  std::unique_lock<std::mutex> lock_;
  const struct LibraryVariable* variable_ = nullptr;
  int before_ = 0;
};

}  // namespace trireme
