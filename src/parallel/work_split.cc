#include "trireme/parallel/work_split.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

bool is_power_of_two(int number) {
  return std::has_single_bit(static_cast<unsigned>(number));
}

}  // namespace

WorkSplit WorkSplit::even(int micro_batches, int replicas, const BatchRuns& runs) {
  WorkSplit work;
  work.micro_batches_ = micro_batches;
  work.replicas_ = replicas;
  work.rule_ = runs;
  const int each = runs.runs == 0 ? 1 : runs.runs / replicas;
  work.runs_of_replica_ = each;
  // Where micro-batches are dealt out, a replica has no neighbours to add up.
  work.in_rounds_ = each > 1 && (runs.reduces_each || runs.dealt ? is_power_of_two(replicas)
                                                                 : !is_power_of_two(each));
  return work;
}

WorkSplit WorkSplit::of_shares(const std::vector<int>& shares, const BatchRuns& runs) {
  const auto replicas = static_cast<int>(shares.size());
  TRIREME_CHECK(replicas > 0 && std::ranges::min(shares) > 0, "each replica has a micro-batch");
  TRIREME_CHECK((runs.runs == 0 || runs.runs == replicas) && !runs.dealt,
                "a share that is given is one run of neighbours");
  std::vector<int> begins{0};
  for (const int share : shares) begins.push_back(begins.back() + share);
  WorkSplit work = even(begins.back(), replicas, runs);
  work.begins_ = std::move(begins);
  return work;
}

int WorkSplit::begin_of(int replica) const {
  if (has_shares()) return begins_[static_cast<std::size_t>(replica)];
  return static_cast<int>(std::int64_t{micro_batches_} * replica / replicas_);
}

int WorkSplit::count(int replica) const {
  return begin_of(replica + 1) - begin_of(replica);
}

int WorkSplit::most() const {
  if (!has_shares()) return count(replicas_ - 1);
  int most = 0;
  for (int replica = 0; replica < replicas_; ++replica) most = std::max(most, count(replica));
  return most;
}

int WorkSplit::least() const {
  int least = count(0);
  for (int replica = 1; replica < replicas_; ++replica) least = std::min(least, count(replica));
  return least;
}

Micro WorkSplit::micro(int replica, int i) const {
  TRIREME_CHECK(i >= 0 && i < count(replica), "a replica has its share of the micro-batches");
  const std::int64_t own = count(replica);
  Micro micro{.number = begin_of(replica) + i,
              .run = static_cast<int>(std::int64_t{i} * runs_of_replica_ / own)};
  if (rule_.dealt) {
    micro.number = i * replicas_ + replica;
  } else if (in_rounds_) {
    const int length =
        std::max(1, micro_batches_ / rule_.runs);  // shortened: perhaps less than one
    micro.number = (i / length * replicas_ + replica) * length + i % length;
  }
  return micro;
}

std::vector<Micro> WorkSplit::of(int replica) const {
  std::vector<Micro> mine(static_cast<std::size_t>(count(replica)));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = micro(replica, static_cast<int>(i));
  return mine;
}

bool WorkSplit::reduces_each_micro_batch() const {
  return rule_.runs == micro_batches_ && (runs_of_replica_ == 1 || in_rounds_);
}

WorkSplit WorkSplit::shortened(int fewer) const {
  if (has_shares()) {
    std::vector<int> shares;
    for (int replica = 0; replica < replicas_; ++replica) {
      shares.push_back(std::max(1, count(replica) - fewer));
    }
    return of_shares(shares, rule_);
  }
  WorkSplit work = *this;
  work.micro_batches_ -= fewer * replicas_;
  return work;
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
