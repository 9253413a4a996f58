// One rank of a world that does not exist: its communicators record what they would carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/rank_runtime.h"
#include "trireme/tensor/step_program.h"

namespace trireme {

struct DryRankOptions {
  int rank = 0;
  int size = 1;
  int ranks_of_node = 1;  // nodes are named n0, n1, ...
  // What Communicator::fixes_order_of_sums says: whether NCCL, which does not, would carry tensors
  // of GPUs, and whether the tables of algorithms keep the order otherwise.
  bool nccl = false;
  bool keeps_order = true;
  std::shared_ptr<ProgramLog> log = nullptr;  // is told what is posted and who waits for it
};

// A communicator of a dry rank.
struct DryLane {
  GroupLabel group;
  std::vector<int> ranks;  // of the world, in the communicator's order
};

// What a rank did in one communicator, or exchanged with one peer of it.
struct DryTraffic {
  GroupLabel group;
  std::string operation;   // "all_reduce", "send": as in Operation::name
  std::vector<int> ranks;  // world ranks: all members, or of "send" and "receive" the peer alone
  std::int64_t calls = 0;
  std::size_t bytes = 0;  // as the flight recorder counts them
  int lane = -1;          // Communicator::lane_id
  bool on_gpu = false;    // some call is behind a GPU's stream

  bool operator==(const DryTraffic&) const = default;
};

// Code that runs on every rank runs here for one rank alone, without MPI. Nothing is sent, nobody
// is waited for, and the tensors of operations may be dry (tensor/allocator.h). Where they are
// real and on the host, the result is as if every other rank did nothing: a reduction or broadcast
// leaves what is there, each part of a gathered tensor is this rank's, and what is received is
// zero. On a GPU it is undefined. The recorder records the same operations as in a real run. As
// there, a communicator of one rank records nothing. native_mpi() throws InternalError.
// Communication can be captured, as in a real run, and is recorded then; a replay records nothing.
class DryRank : public RankRuntime {
 public:
  explicit DryRank(const DryRankOptions& options);
  ~DryRank() override;

  Communicator& world() override;
  int rank() const override;
  int size() const override;
  int node() const override;
  int nodes() const override;
  int local_rank() const override;
  int local_size() const override;
  const std::string& host() const override;
  FlightRecorder& recorder() override;
  std::unique_ptr<Communicator> group(const GroupLabel& label,
                                      const std::vector<int>& ranks) override;
  std::unique_ptr<Communicator> host_group(const GroupLabel& label,
                                           const std::vector<int>& ranks) override;
  std::string why_no_capture() const override;
  std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                 const std::int64_t* number) override;

  // Returns what was recorded since the last call, by communicator in the order of their creation.
  std::vector<DryTraffic> take_traffic();
  // The communicators so far, by Communicator::lane_id.
  const std::map<int, DryLane>& lanes() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
