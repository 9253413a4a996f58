#include "trireme/parallel/state_calls.h"

#include <algorithm>

namespace trireme::parallel {
namespace {

// Makes the calls of one group.
class GroupCalls {
 public:
  // `number` is the group's place; all others must outlive this object.
  GroupCalls(std::vector<Call>& calls, const ResidentGroup& group, std::size_t number,
             const GridShape& grid, const StateRules& rules)
      : calls_(calls),
        group_(group),
        first_(group.members.front()),
        number_(number),
        grid_(grid),
        rules_(rules),
        sharding_(group.sharding(grid)) {}

  // Adds the gradients up over the replicas at the moment `run`, and then over what holds parts.
  void reduce_gradients(Moment run) {
    const bool to_shard = rules_.to_shard && divided();
    const Span& replicas = first_.summed.front();
    if (rules_.few_bits) {
      add(Collective::kAllToAll, replicas, all(), run, group_.purpose);
      const Axes wanting = to_shard ? replicas.axes.without(first_.divided.axes) : replicas.axes;
      add(Collective::kAllGather, wanting, to_shard ? sharding_.memory() : all(), run,
          group_.purpose);
    } else if (to_shard) {
      add(Collective::kReduceScatter, first_.divided, all(), run, group_.purpose);
      add(Collective::kAllReduce, replicas.axes.without(first_.divided.axes), sharding_.memory(),
          run, group_.purpose);
    } else {
      add(Collective::kAllReduce, replicas, all(), run, group_.purpose);
    }
    const FlatRange within = to_shard ? sharding_.range() : FlatRange{0, sharding_.elements()};
    add_ranges(Collective::kAllReduce, within, [](const nn::Residence& one) {
      return std::span(one.summed).subspan(1);  // the first one is done
    });
    if (!rules_.fixed_order && grid_.extent(replicas) > 1) make_copies_equal(within);
  }

  void gather_weights() {
    if (!divided()) return;
    const Moment stay = first_.storage.gradient ? Moment::kBeforeStep : Moment::kOnce;
    add(Collective::kAllGather, first_.divided, all(),
        rules_.whole_weights ? stay : Moment::kBeforeUse, Purpose::kWeights);
  }

 private:
  bool divided() const { return sharding_.count() > 1; }
  FlatRange all() const { return {0, sharding_.extent()}; }

  void add(Collective what, const Span& over, const FlatRange& of, Moment when, Purpose why) {
    if (grid_.extent(over) > 1) calls_.push_back({what, over, number_, of, when, why});
  }

  void make_copies_equal(const FlatRange& within) {
    // Each replica adds up partial sums in a communicator of its own. (Two have one order.)
    add_ranges(Collective::kBroadcast, within, [&](const nn::Residence& one) {
      const bool differ =
          std::ranges::any_of(std::span(one.summed).subspan(1),
                              [&](const Span& parts) { return grid_.extent(parts) > 2; });
      return std::span(one.copied).first(differ ? 1 : 0);
    });
    // Each holder of a replica adds up over the replicas in a communicator of its own.
    add_ranges(Collective::kBroadcast, within,
               [](const nn::Residence& one) { return std::span(one.copied).subspan(1); });
  }

  // Adds calls at the end of the step. Neighbouring members to which `spans_of` gives the same span
  // become one range, within `within`.
  template <class SpansOf>
  void add_ranges(Collective what, const FlatRange& within, const SpansOf& spans_of) {
    const auto first = static_cast<std::ptrdiff_t>(calls_.size());
    std::int64_t begin = 0;
    for (const nn::Residence& one : group_.members) {
      const std::int64_t end = begin + one.slice.local.elements();
      const FlatRange here = intersection(within, {begin, end});
      begin = end;
      if (here.empty()) continue;
      for (const Span& span : spans_of(one)) {
        const auto before = std::find_if(
            calls_.begin() + first, calls_.end(),
            [&](const Call& call) { return call.over == span && call.of.end == here.begin; });
        if (before != calls_.end()) {
          before->of.end = here.end;
        } else {
          add(what, span, here, Moment::kStepEnd, group_.purpose);
        }
      }
    }
  }

  std::vector<Call>& calls_;
  const ResidentGroup& group_;
  const nn::Residence& first_;  // of its members
  std::size_t number_;
  const GridShape& grid_;
  const StateRules& rules_;
  nn::Sharding sharding_;
};

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
    const nn::Storage& storage = groups[i].members.front().storage;
    GroupCalls of_group(calls, groups[i], i, grid, rules);
    if (storage.gradient) {
      of_group.reduce_gradients(work.reduces_each() ? Moment::kRun : Moment::kRunsDone);
    }
    if (storage.weights) of_group.gather_weights();
  }
  return calls;
}

}  // namespace trireme::parallel
