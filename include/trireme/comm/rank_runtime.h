// One rank's place in the job and its way to the other ranks. Code that runs on every rank is
// written against this interface: Runtime is the one over MPI, and in a simulated world every rank
// has one in virtual time (topology/simulated_ranks.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/captured_communication.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/tensor/device.h"

namespace trireme {

class RankRuntime {
 public:
  RankRuntime() = default;
  virtual ~RankRuntime() = default;
  RankRuntime(const RankRuntime&) = delete;
  RankRuntime& operator=(const RankRuntime&) = delete;

  // All ranks, in the launcher's order. For tensors of the host alone, like host_group().
  virtual Communicator& world() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int node() const = 0;  // index of this node; nodes are ordered by their lowest rank
  virtual int nodes() const = 0;
  virtual int local_rank() const = 0;  // rank among the ranks of this node
  virtual int local_size() const = 0;
  virtual const std::string& host() const = 0;
  virtual FlightRecorder& recorder() = 0;

  // Collective over the listed ranks alone. Returns a communicator of the listed world ranks, which
  // are numbered in the listed order. `label` and `ranks` must be the same on all of them.
  virtual std::unique_ptr<Communicator> group(const GroupLabel& label,
                                              const std::vector<int>& ranks) = 0;
  // The same for tensors of the host alone: a tensor of a GPU is an InternalError. It takes no
  // memory and no connections of NCCL.
  virtual std::unique_ptr<Communicator> host_group(const GroupLabel& label,
                                                   const std::vector<int>& ranks) = 0;

  // Why GPU work that contains communication cannot be captured; empty if it can. The same on all
  // ranks.
  virtual std::string why_no_capture() const = 0;
  // Collective over all ranks, whose captures must hold the same operations. Captures communication
  // from now on, together with what the caller captures on `stream`, until join() of the result.
  // `number` is in device memory and grows with each replay.
  virtual std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                         const std::int64_t* number) = 0;
};

}  // namespace trireme
