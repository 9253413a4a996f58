// Small helpers around MPI's C interface.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <mpi.h>

namespace trireme {

// Throws MpiError with `what` and MPI's own words unless `code` is MPI_SUCCESS.
void check_mpi(int code, std::string_view what);

// The same for a message to or from rank `peer` of `comm`: throws LostRankError, because between
// two ranks only a lost connection can fail.
void check_message(int code, std::string_view what, MPI_Comm comm, int peer);

// Tests until the request is done, and yields or naps between tests (backoff.h). A blocking MPI
// call would spin, which is ruinous with more ranks than cores.
void wait_yielding(MPI_Request& request, std::string_view what);

// Takes over requests that nobody will wait for, and what owns the memory that MPI uses for them.
// The owner is released at once if they are done, or else by a later call after they are. If they
// are never done, or fail, it is kept to the end of the process: MPI may still write. Thread-safe.
void keep_until_done(std::vector<MPI_Request> requests, std::shared_ptr<void> owner);

// Owns an MPI communicator. It is not freed if MPI is already finalized, nor while an exception is
// in flight: freeing is collective, and the other ranks may not take part.
class OwnedComm {
 public:
  OwnedComm() = default;
  ~OwnedComm();
  OwnedComm(OwnedComm&& other) noexcept : comm_(other.comm_) { other.comm_ = MPI_COMM_NULL; }
  OwnedComm& operator=(OwnedComm&&) = delete;

  // Collective over `parent`. Errors on the new communicator are returned, not fatal.
  static OwnedComm duplicate(MPI_Comm parent);
  // Collective over the listed ranks of the world alone. `tag` distinguishes concurrent calls.
  static OwnedComm of_world_ranks(const int* ranks, int count, int tag);

  MPI_Comm get() const { return comm_; }
  const MPI_Comm* address() const { return &comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace trireme
