#include "trireme/parallel/batch_runs.h"

#include <bit>
#include <cstdint>
#include <numeric>
#include <set>

namespace trireme::parallel {
namespace {

bool is_power_of_two(int number) {
  return std::has_single_bit(static_cast<unsigned>(number));
}

}  // namespace

MicroBatchShare share_of(int micro_batches, int replicas, int replica) {
  const auto begin = [&](int r) {
    return static_cast<int>(std::int64_t{micro_batches} * r / replicas);
  };
  return {begin(replica), begin(replica + 1) - begin(replica)};
}

int largest_share(int micro_batches, int replicas) {
  return share_of(micro_batches, replicas, replicas - 1).count;
}

bool BatchRuns::in_rounds(int replicas) const {
  if (of_replica(replicas) == 1) return false;
  // Of micro-batches that are dealt out a replica has no neighbours to add up.
  return reduces_each || dealt ? is_power_of_two(replicas) : !is_power_of_two(of_replica(replicas));
}

std::vector<int> BatchRuns::micro_batches_of(int micro_batches, int replicas, int replica) const {
  const MicroBatchShare share = share_of(micro_batches, replicas, replica);
  std::vector<int> mine(static_cast<std::size_t>(share.count));
  std::iota(mine.begin(), mine.end(), share.first);
  if (dealt) {
    for (int i = 0; i < share.count; ++i)
      mine[static_cast<std::size_t>(i)] = i * replicas + replica;
  }
  if (dealt || !in_rounds(replicas)) return mine;
  const int length = micro_batches / runs;
  for (int i = 0; i < share.count; ++i) {
    const int run = i / length * replicas + replica;
    mine[static_cast<std::size_t>(i)] = run * length + i % length;
  }
  return mine;
}

std::vector<int> possible_batch_runs(int micro_batches, int replicas) {
  std::set<int> possible{replicas};
  const int whole = micro_batches % replicas == 0 ? micro_batches / replicas : 1;
  const auto consider = [&](int each) {
    if (is_power_of_two(each) || is_power_of_two(replicas)) possible.insert(each * replicas);
  };
  for (int each = 1; each <= whole / each; ++each) {
    if (whole % each != 0) continue;
    consider(each);
    consider(whole / each);
  }
  return {possible.begin(), possible.end()};
}

}  // namespace trireme::parallel
