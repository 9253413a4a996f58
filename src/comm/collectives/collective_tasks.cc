#include "trireme/comm/collective_tasks.h"

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"

#include "comm/collectives/collectives.h"

namespace trireme {
namespace {

// The algorithms of a kind of collective and their factories. The first one is the default.
template <class Make>
struct Entry {
  Algorithm algorithm;
  Make* make;
};
using Reduction = std::unique_ptr<Task>(TransportPtr, Tensor, ReduceOp);
using PartReduction = std::unique_ptr<Task>(TransportPtr, Tensor, Tensor, ReduceOp);
using MakesParts = std::unique_ptr<Task>(TransportPtr, Tensor, Tensor);
using Rooted = std::unique_ptr<Task>(TransportPtr, Tensor, int);

constexpr auto kAllReduces = std::to_array<Entry<Reduction>>({
    {Algorithm::kPairwise, make_pairwise_all_reduce},
    {Algorithm::kStepwise, make_stepwise_all_reduce},
    {Algorithm::kDirect, make_direct_all_reduce},
    {Algorithm::kBruck, make_bruck_all_reduce},
    {Algorithm::kDoubling, make_doubling_all_reduce},
    {Algorithm::kHalving, make_halving_all_reduce},
    {Algorithm::kBinomial, make_binomial_all_reduce},
    {Algorithm::kTiered, make_tiered_all_reduce},
    {Algorithm::kRing, make_ring_all_reduce},
});
constexpr auto kReduceScatters = std::to_array<Entry<PartReduction>>({
    {Algorithm::kPairwise, make_pairwise_reduce_scatter},
    {Algorithm::kStepwise, make_stepwise_reduce_scatter},
    {Algorithm::kHalving, make_halving_reduce_scatter},
    {Algorithm::kTiered, make_tiered_reduce_scatter},
    {Algorithm::kRing, make_ring_reduce_scatter},
});
constexpr auto kAllGathers = std::to_array<Entry<MakesParts>>({
    {Algorithm::kPairwise, make_pairwise_all_gather},
    {Algorithm::kStepwise, make_stepwise_all_gather},
    {Algorithm::kBruck, make_bruck_all_gather},
    {Algorithm::kHalving, make_halving_all_gather},
    {Algorithm::kTiered, make_tiered_all_gather},
    {Algorithm::kRing, make_ring_all_gather},
});
constexpr auto kBroadcasts = std::to_array<Entry<Rooted>>({
    {Algorithm::kBinomial, make_binomial_broadcast},
    {Algorithm::kChain, make_chain_broadcast},
    {Algorithm::kTiered, make_tiered_broadcast},
});
constexpr auto kAllToAlls = std::to_array<Entry<MakesParts>>({
    {Algorithm::kPairwise, make_pairwise_all_to_all},
    {Algorithm::kStepwise, make_stepwise_all_to_all},
    {Algorithm::kBruck, make_bruck_all_to_all},
    {Algorithm::kTiered, make_tiered_all_to_all},
});

template <class Entries>
constexpr auto algorithms_in(const Entries& entries) {
  std::array<Algorithm, std::tuple_size_v<Entries>> result{};
  for (std::size_t i = 0; i < entries.size(); ++i) result[i] = entries[i].algorithm;
  return result;
}
constexpr auto kOfAllReduce = algorithms_in(kAllReduces);
constexpr auto kOfReduceScatter = algorithms_in(kReduceScatters);
constexpr auto kOfAllGather = algorithms_in(kAllGathers);
constexpr auto kOfBroadcast = algorithms_in(kBroadcasts);
constexpr auto kOfAllToAll = algorithms_in(kAllToAlls);

template <class Entries>
auto* maker(const Entries& entries, Algorithm algorithm) {
  for (const auto& entry : entries) {
    if (entry.algorithm == algorithm) return entry.make;
  }
  return entries.front().make;
}

std::unique_ptr<Task> make_algorithm(Collective collective, Algorithm algorithm,
                                     TransportPtr transport, Operands operands) {
  auto& [input, output, op, root] = operands;
  switch (collective) {
    case Collective::kAllReduce:
      return maker(kAllReduces, algorithm)(std::move(transport), std::move(output), op);
    case Collective::kReduceScatter:
      return maker(kReduceScatters, algorithm)(std::move(transport), std::move(input),
                                               std::move(output), op);
    case Collective::kAllGather:
      return maker(kAllGathers, algorithm)(std::move(transport), std::move(input),
                                           std::move(output));
    case Collective::kBroadcast:
      return maker(kBroadcasts, algorithm)(std::move(transport), std::move(output), root);
    case Collective::kAllToAll:
      return maker(kAllToAlls, algorithm)(std::move(transport), std::move(input),
                                          std::move(output));
    case Collective::kExchange:
      break;
  }
  throw InternalError("an exchange is made of transfers");
}

// A task of any kind and the transport of its messages. Members are destroyed before the parts of a
// base class, so a task's own destructor would free its buffers while messages use them.
class TaskOnTransport final : public Task {
 public:
  TaskOnTransport(TransportPtr transport, std::unique_ptr<Task> task)
      : transport_(std::move(transport)), task_(std::move(task)) {}
  ~TaskOnTransport() override {
    if (!done_) transport_->abandon(std::move(task_));
  }
  TaskOnTransport(const TaskOnTransport&) = delete;
  TaskOnTransport& operator=(const TaskOnTransport&) = delete;

  Step advance() override {
    const Step step = task_->advance();
    done_ = step == Step::kDone;
    return step;
  }

 private:
  TransportPtr transport_;
  std::unique_ptr<Task> task_;
  bool done_ = false;
};

}  // namespace

std::span<const Algorithm> algorithms_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return kOfAllReduce;
    case Collective::kReduceScatter:
      return kOfReduceScatter;
    case Collective::kAllGather:
      return kOfAllGather;
    case Collective::kBroadcast:
      return kOfBroadcast;
    case Collective::kAllToAll:
      return kOfAllToAll;
    case Collective::kExchange:
      break;
  }
  return {};
}

std::unique_ptr<Task> make_collective(Collective collective, Algorithm algorithm,
                                      TransportPtr transport, Operands operands) {
  auto task = make_algorithm(collective, algorithm, transport, std::move(operands));
  return std::make_unique<TaskOnTransport>(std::move(transport), std::move(task));
}

std::unique_ptr<Task> make_barrier(TransportPtr transport) {
  auto task = make_dissemination_barrier(transport);
  return std::make_unique<TaskOnTransport>(std::move(transport), std::move(task));
}

std::unique_ptr<Task> make_transfer(TransportPtr transport, Transfer transfer) {
  auto task = make_message(transport, std::move(transfer));
  return std::make_unique<TaskOnTransport>(std::move(transport), std::move(task));
}

}  // namespace trireme
