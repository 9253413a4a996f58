// How long a group's communication takes, without regard to others but for the share of the links
// that is left to it.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "trireme/comm/rank_blocks.h"
#include "trireme/plan/network_costs.h"

#include "plan/group_placement.h"

namespace trireme::plan {

// Ranks of a communicator, or the two ends of a message, in a place.
class GroupCosts {
 public:
  virtual ~GroupCosts() = default;
  // Returns what a collective or message costs, without what it costs to start it.
  virtual CommunicationCost cost(std::string_view operation, std::size_t bytes) = 0;
};

// The rates that are left where links are shared: the network's with its constants, and every link
// divided among so many. Zero still means that nothing limits a block.
NetworkRates shared_rates(const NetworkDescription& network, const Sharing& sharing);

// MPI carries it by our algorithms: those that the planner chooses for ranks that have the links to
// themselves (make_table), at the rates that are left.
std::unique_ptr<GroupCosts> make_mpi_costs(const NetworkDescription& network,
                                           const RankBlocks& blocks, const Sharing& sharing);
// NCCL carries it, by its fastest algorithm and protocol.
std::unique_ptr<GroupCosts> make_nccl_costs(const NetworkDescription& network,
                                            const RankBlocks& blocks, const Sharing& sharing);
// A message.
std::unique_ptr<GroupCosts> make_message_costs(const NetworkDescription& network,
                                               const RankBlocks& blocks, const Sharing& sharing,
                                               bool by_nccl);

}  // namespace trireme::plan
