#include "trireme/parallel/work_split.h"

#include <algorithm>
#include <bit>
#include <set>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

bool is_power_of_two(int number) {
  return std::has_single_bit(static_cast<unsigned>(number));
}

// The first micro-batch of a replica whose micro-batches are neighbours.
int begin_of(const WorkSplit& work, int replica) {
  return static_cast<int>(std::int64_t{work.micro_batches()} * replica / work.replicas());
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

int WorkSplit::count(int replica) const {
  return begin_of(*this, replica + 1) - begin_of(*this, replica);
}

int WorkSplit::most() const {
  return count(replicas_ - 1);
}

Micro WorkSplit::micro(int replica, int i) const {
  TRIREME_CHECK(i >= 0 && i < count(replica), "a replica has its share of the micro-batches");
  const std::int64_t own = count(replica);
  Micro micro{.number = begin_of(*this, replica) + i,
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
