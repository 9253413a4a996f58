#include "trireme/comm/collective_tasks.h"

#include <array>
#include <utility>

#include "trireme/base/error.h"

#include "collectives.h"

namespace trireme {
namespace {

// These tables and the functions below name the same algorithms.
constexpr std::array kAllReduces = {Algorithm::kPairwise, Algorithm::kDirect, Algorithm::kBruck,
                                    Algorithm::kDoubling, Algorithm::kHalving};
constexpr std::array kReduceScatters = {Algorithm::kPairwise, Algorithm::kHalving};
constexpr std::array kAllGathers = {Algorithm::kPairwise, Algorithm::kBruck, Algorithm::kHalving};
constexpr std::array kOthers = {Algorithm::kPairwise};

std::unique_ptr<Task> make_all_reduce(Algorithm algorithm, TransportPtr transport, Tensor data,
                                      ReduceOp op) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return make_direct_all_reduce(std::move(transport), std::move(data), op);
    case Algorithm::kBruck:
      return make_bruck_all_reduce(std::move(transport), std::move(data), op);
    case Algorithm::kDoubling:
      return make_doubling_all_reduce(std::move(transport), std::move(data), op);
    case Algorithm::kHalving:
      return make_halving_all_reduce(std::move(transport), std::move(data), op);
    default:
      return make_pairwise_all_reduce(std::move(transport), std::move(data), op);
  }
}

std::unique_ptr<Task> make_reduce_scatter(Algorithm algorithm, TransportPtr transport, Tensor input,
                                          Tensor output, ReduceOp op) {
  const auto make =
      algorithm == Algorithm::kHalving ? make_halving_reduce_scatter : make_pairwise_reduce_scatter;
  return make(std::move(transport), std::move(input), std::move(output), op);
}

std::unique_ptr<Task> make_all_gather(Algorithm algorithm, TransportPtr transport, Tensor input,
                                      Tensor output) {
  const auto make = algorithm == Algorithm::kBruck     ? make_bruck_all_gather
                    : algorithm == Algorithm::kHalving ? make_halving_all_gather
                                                       : make_pairwise_all_gather;
  return make(std::move(transport), std::move(input), std::move(output));
}

}  // namespace

std::span<const Algorithm> algorithms_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return kAllReduces;
    case Collective::kReduceScatter:
      return kReduceScatters;
    case Collective::kAllGather:
      return kAllGathers;
    default:
      return kOthers;
  }
}

std::unique_ptr<Task> make_collective(Collective collective, Algorithm algorithm,
                                      TransportPtr transport, Operands operands) {
  auto& [input, output, op, root] = operands;
  switch (collective) {
    case Collective::kAllReduce:
      return make_all_reduce(algorithm, std::move(transport), std::move(output), op);
    case Collective::kReduceScatter:
      return make_reduce_scatter(algorithm, std::move(transport), std::move(input),
                                 std::move(output), op);
    case Collective::kAllGather:
      return make_all_gather(algorithm, std::move(transport), std::move(input), std::move(output));
    case Collective::kBroadcast:
      return make_binomial_broadcast(std::move(transport), std::move(output), root);
    case Collective::kAllToAll:
      return make_pairwise_all_to_all(std::move(transport), std::move(input), std::move(output));
    case Collective::kExchange:
      break;
  }
  throw InternalError("an exchange is made of transfers");
}

}  // namespace trireme
