// Point-to-point messages in flight together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <mpi.h>

#include "collectives.h"
#include "mpi_util.h"

namespace trireme {

// The messages of one phase.
class Messages {
 public:
  Messages() = default;
  // If a fault ends the task early, nothing may arrive in buffers that are about to be freed.
  ~Messages() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (receives_[i]) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(const Wire& wire, const std::byte* data, std::size_t bytes, int peer) {
    const auto post = wire.synchronous ? MPI_Issend : MPI_Isend;
    for (std::size_t begin = 0; begin < bytes; begin += wire.piece_bytes) {
      const int count = static_cast<int>(std::min(wire.piece_bytes, bytes - begin));
      check_message(
          post(data + begin, count, MPI_BYTE, peer, wire.tag, wire.comm, &add(wire, false, peer)),
          "send", wire.comm, peer);
    }
  }
  void receive(const Wire& wire, std::byte* data, std::size_t bytes, int peer) {
    for (std::size_t begin = 0; begin < bytes; begin += wire.piece_bytes) {
      const int count = static_cast<int>(std::min(wire.piece_bytes, bytes - begin));
      check_message(MPI_Irecv(data + begin, count, MPI_BYTE, peer, wire.tag, wire.comm,
                              &add(wire, true, peer)),
                    "receive", wire.comm, peer);
    }
  }
  // An empty message each way; only its arrival matters.
  void signal(const Wire& wire, int to, int from) {
    check_message(
        MPI_Irecv(nullptr, 0, MPI_BYTE, from, wire.tag, wire.comm, &add(wire, true, from)),
        "receive", wire.comm, from);
    check_message(MPI_Isend(nullptr, 0, MPI_BYTE, to, wire.tag, wire.comm, &add(wire, false, to)),
                  "send", wire.comm, to);
  }
  bool done() {
    if (requests_.empty()) return true;
    int all = 0;
    statuses_.resize(requests_.size());
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) [[unlikely]] {
      for (std::size_t i = 0; i < statuses_.size(); ++i) {
        if (statuses_[i].MPI_ERROR == MPI_ERR_PENDING) continue;
        check_message(statuses_[i].MPI_ERROR, receives_[i] ? "receive" : "send", comm_, peers_[i]);
      }
    }
    check_mpi(code, "finish a message");
    if (all != 0) {
      requests_.clear();
      receives_.clear();
      peers_.clear();
    }
    return all != 0;
  }

 private:
  MPI_Request& add(const Wire& wire, bool receive, int peer) {
    comm_ = wire.comm;
    receives_.push_back(receive);
    peers_.push_back(peer);
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }

  std::vector<MPI_Request> requests_;
  // One element for each request.
  std::vector<bool> receives_;
  std::vector<int> peers_;
  std::vector<MPI_Status> statuses_;
  MPI_Comm comm_ = MPI_COMM_NULL;  // the same for all messages of a phase
};

}  // namespace trireme
