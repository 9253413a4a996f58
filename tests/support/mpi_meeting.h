// A non-blocking barrier of ranks.
#pragma once

#include <vector>

#include <mpi.h>

namespace trireme::testing {

// Drops the request of a message that is no longer awaited. MPI cannot cancel a send.
inline void give_up(MPI_Request& request, bool receives) {
  if (request == MPI_REQUEST_NULL) return;
  if (receives) MPI_Cancel(&request);
  MPI_Request_free(&request);
}

// Two ranks must create their meetings with the same tag in the same order.
class Meeting {
 public:
  // Reports that this rank has arrived. `places` are the other ranks in `channel`.
  Meeting(MPI_Comm channel, int tag, const std::vector<int>& places) {
    for (const int place : places) {
      MPI_Isend(nullptr, 0, MPI_BYTE, place, tag, channel, &requests_.emplace_back());
      MPI_Irecv(nullptr, 0, MPI_BYTE, place, tag, channel, &requests_.emplace_back());
    }
  }
  ~Meeting() {
    for (std::size_t i = 0; i < requests_.size(); ++i) give_up(requests_[i], i % 2 == 1);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  bool all_are_here() {
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
};

}  // namespace trireme::testing
