#include "trireme/parallel/state_calls.h"

#include <algorithm>

namespace trireme::parallel {
namespace {

// Neighbouring members to which `spans_of` gives the same span become one range, within `within`.
template <class SpansOf>
void add_ranges(std::vector<Call>& calls, const Call& like, const ResidentGroup& group,
                const FlatRange& within, const GridShape& grid, const SpansOf& spans_of) {
  const std::size_t first = calls.size();
  std::int64_t begin = 0;
  for (const nn::Residence& one : group.members) {
    const std::int64_t end = begin + one.slice.local.elements();
    const FlatRange here = intersection(within, {begin, end});
    begin = end;
    if (here.empty()) continue;
    for (const Span& span : spans_of(one)) {
      if (grid.extent(span) == 1) continue;
      const auto before = std::ranges::find_if(
          calls.begin() + static_cast<std::ptrdiff_t>(first), calls.end(),
          [&](const Call& call) { return call.over == span && call.of.end == here.begin; });
      if (before != calls.end()) {
        before->of.end = here.end;
      } else {
        calls.push_back(like);
        calls.back().over = span;
        calls.back().of = here;
      }
    }
  }
}

}  // namespace

std::int64_t ResidentGroup::elements() const {
  std::int64_t sum = 0;
  for (const nn::Residence& one : members) sum += one.slice.local.elements();
  return sum;
}

nn::Sharding ResidentGroup::sharding(const GridShape& grid) const {
  return {elements(), grid.extent(members.front().divided), index};
}

std::vector<Call> calls_of(std::span<const ResidentGroup> groups, const GridShape& grid,
                           const WorkSplit& work, const StateRules& rules) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const ResidentGroup& group = groups[i];
    const nn::Residence& first = group.members.front();
    const nn::Sharding sharding = group.sharding(grid);
    const bool divided = sharding.count() > 1;
    const bool to_shard = rules.to_shard && divided;
    const FlatRange all = {0, sharding.extent()};
    const auto add = [&](Collective what, const Span& over, const FlatRange& of, Moment when,
                         Purpose why) {
      if (grid.extent(over) > 1) calls.push_back({what, over, i, of, when, why});
    };
    if (first.storage.gradient) {
      const Moment run = work.reduces_each() ? Moment::kRun : Moment::kRunsDone;
      const Span& replicas = first.summed.front();
      if (to_shard) {
        add(Collective::kReduceScatter, first.divided, all, run, group.purpose);
        add(Collective::kAllReduce, replicas.axes.without(first.divided.axes), sharding.memory(),
            run, group.purpose);
      } else {
        add(Collective::kAllReduce, replicas, all, run, group.purpose);
      }
      const FlatRange within = to_shard ? sharding.range() : FlatRange{0, sharding.elements()};
      add_ranges(calls, {Collective::kAllReduce, {}, i, {}, Moment::kStepEnd, group.purpose}, group,
                 within, grid, [](const nn::Residence& one) {
                   return std::span(one.summed).subspan(1);  // the first one is done
                 });
      if (!rules.fixed_order && grid.extent(replicas) > 1) {
        const Call hand_on = {Collective::kBroadcast, {}, i, {}, Moment::kStepEnd, group.purpose};
        // Each replica adds up partial sums in a communicator of its own. (Two have one order.)
        add_ranges(calls, hand_on, group, within, grid, [&](const nn::Residence& one) {
          const bool differ =
              std::ranges::any_of(std::span(one.summed).subspan(1),
                                  [&](const Span& parts) { return grid.extent(parts) > 2; });
          return std::span(one.copied).first(differ ? 1 : 0);
        });
        // Each holder of a replica adds up over the replicas in a communicator of its own.
        add_ranges(calls, hand_on, group, within, grid,
                   [](const nn::Residence& one) { return std::span(one.copied).subspan(1); });
      }
    }
    if (divided && first.storage.weights) {
      const Moment stay = first.storage.gradient ? Moment::kBeforeStep : Moment::kOnce;
      add(Collective::kAllGather, first.divided, all,
          rules.whole_weights ? stay : Moment::kBeforeUse, Purpose::kWeights);
    }
  }
  return calls;
}

}  // namespace trireme::parallel
