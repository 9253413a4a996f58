// The part of a communicator that says whose it is.
#pragma once

#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

// A communicator of some world ranks, of which this one is `members[rank]`.
class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(GroupLabel label, std::vector<int> members, int rank, int lane)
      : label_(std::move(label)), members_(std::move(members)), rank_(rank), lane_(lane) {}

  int rank() const final { return rank_; }
  int size() const final { return static_cast<int>(members_.size()); }
  const GroupLabel& label() const final { return label_; }
  int world_rank(int member) const final { return members_.at(static_cast<std::size_t>(member)); }
  int lane_id() const final { return lane_; }

 protected:
  const std::vector<int>& members() const { return members_; }

 private:
  GroupLabel label_;
  std::vector<int> members_;
  int rank_;
  int lane_;
};

}  // namespace trireme
