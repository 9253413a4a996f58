// The algorithms of each collective. Messages between two ranks are matched in the order in which
// they are posted. So every task receives from a peer in the order in which that peer sends to it.
//
// All reductions but those around a ring add along the tree T(size) (sum_tree.h), with the same
// bits.
#pragma once

#include <memory>

#include "trireme/comm/collective_tasks.h"

namespace trireme {

// One phase: each rank receives the whole buffer of every rank and reduces them.
std::unique_ptr<Task> make_direct_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
// Two phases: reduce-scatter, then all-gather.
std::unique_ptr<Task> make_pairwise_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
// The same with one partner at a time, in size - 1 phases; so are all others of that name.
std::unique_ptr<Task> make_stepwise_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
// log2(size) rounds bring the whole buffers of all ranks to every rank, which reduces them.
std::unique_ptr<Task> make_bruck_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
// log2(size) rounds, in each of which two ranks exchange partial results of the whole buffer
// (DoublingPlan).
std::unique_ptr<Task> make_doubling_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
// Recursive halving, then doubling (halving.cc).
std::unique_ptr<Task> make_halving_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
std::unique_ptr<Task> make_pairwise_reduce_scatter(TransportPtr transport, Tensor input,
                                                   Tensor output, ReduceOp op);
std::unique_ptr<Task> make_stepwise_reduce_scatter(TransportPtr transport, Tensor input,
                                                   Tensor output, ReduceOp op);
std::unique_ptr<Task> make_halving_reduce_scatter(TransportPtr transport, Tensor input,
                                                  Tensor output, ReduceOp op);
std::unique_ptr<Task> make_pairwise_all_gather(TransportPtr transport, Tensor input, Tensor output);
std::unique_ptr<Task> make_stepwise_all_gather(TransportPtr transport, Tensor input, Tensor output);
// log2(size) rounds.
std::unique_ptr<Task> make_bruck_all_gather(TransportPtr transport, Tensor input, Tensor output);
std::unique_ptr<Task> make_halving_all_gather(TransportPtr transport, Tensor input, Tensor output);
std::unique_ptr<Task> make_pairwise_all_to_all(TransportPtr transport, Tensor input, Tensor output);
std::unique_ptr<Task> make_stepwise_all_to_all(TransportPtr transport, Tensor input, Tensor output);
// log2(size) rounds, in each of which a rank sends half of the buffer.
std::unique_ptr<Task> make_bruck_all_to_all(TransportPtr transport, Tensor input, Tensor output);
// These go along binomial trees and chains (tree.cc).
std::unique_ptr<Task> make_binomial_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
std::unique_ptr<Task> make_binomial_broadcast(TransportPtr transport, Tensor data, int root);
std::unique_ptr<Task> make_chain_broadcast(TransportPtr transport, Tensor data, int root);
// These go along the tiers of the network (tiered_task.h).
std::unique_ptr<Task> make_tiered_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
std::unique_ptr<Task> make_tiered_reduce_scatter(TransportPtr transport, Tensor input,
                                                 Tensor output, ReduceOp op);
std::unique_ptr<Task> make_tiered_all_gather(TransportPtr transport, Tensor input, Tensor output);
std::unique_ptr<Task> make_tiered_broadcast(TransportPtr transport, Tensor data, int root);
// log2(size) rounds of empty messages.
std::unique_ptr<Task> make_dissemination_barrier(TransportPtr transport);
// The message of make_transfer.
std::unique_ptr<Task> make_message(TransportPtr transport, Transfer transfer);
// This goes through one rank of each node for each other node (tiered_all_to_all.cc).
std::unique_ptr<Task> make_tiered_all_to_all(TransportPtr transport, Tensor input, Tensor output);
// These go around a ring (ring.cc). The reductions add in its order.
std::unique_ptr<Task> make_ring_all_reduce(TransportPtr transport, Tensor data, ReduceOp op);
std::unique_ptr<Task> make_ring_reduce_scatter(TransportPtr transport, Tensor input, Tensor output,
                                               ReduceOp op);
std::unique_ptr<Task> make_ring_all_gather(TransportPtr transport, Tensor input, Tensor output);

}  // namespace trireme
