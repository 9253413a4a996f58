// The calls that follow from residences: compared with those that a stage makes, and what they do
// to every rank's sums, on grids of up to 32 ranks.
#include "trireme/parallel/state_calls.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/dry_rank.h"
#include "trireme/comm/sum_tree.h"
#include "trireme/parallel/gradient_reducer.h"

#include "models/resnet/resnet.h"
#include "parallel/state_updates.h"
#include "support/small_bert.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

using parallel::Call;
using parallel::Moment;

struct Case {
  std::string model;
  GridShape grid;
  parallel::StageOptions stage{};
  parallel::WorkSplit work{};
  bool nccl = false;  // adds in an order of its own

  std::string text() const {
    return fmt::format("{} on {} of {} shards, stage of zero {}{}{}, {} runs {}", model,
                       grid.to_string(), grid[Axis::kShard],
                       stage.whole_gradients ? 1
                       : stage.whole_weights ? 2
                                             : 3,
                       fmt::format("{}{}", stage.sequence_parallel ? ", sequence" : "",
                                   stage.trained.all() ? "" : ", frozen"),
                       nccl ? ", NCCL" : "", work.runs_of_step(),
                       work.reduces_each() ? "each" : "together");
  }
};

nn::ModelPlan plan_of(const std::string& model) {
  if (model == "gpt") return models::gpt_plan(small_gpt());
  if (model == "llama") return models::gpt_plan(small_llama());
  if (model == "bert") return models::bert_plan(small_bert());
  models::ResNetConfig config;
  config.image = 32;
  config.classes = 7;
  config.width = 8;
  return models::resnet_plan(config);
}

// Places of the ranks of a communicator, operation, bytes.
using Operations = std::vector<std::tuple<std::vector<int>, std::string, std::size_t>>;

// What the rank at a place says of its state, and what it does.
struct Rank {
  std::vector<parallel::ResidentGroup> groups;
  std::vector<Call> calls;
  std::vector<std::tuple<std::string, std::vector<std::int64_t>, FlatRange>> writes;
  std::map<std::string, std::vector<std::pair<std::string, std::size_t>>> by_communicator;
  Operations made, expected;
  int reductions = 1;  // of each group in what is made
};

std::vector<std::string> names_of(const parallel::ResidentGroup& group) {
  std::vector<std::string> names;
  for (const nn::Residence& one : group.members) names.push_back(one.name);
  if (!group.members.front().storage.weights) names.push_back("apart");
  return names;
}

Rank run_rank(const Case& test, const nn::ModelPlan& plan, int place) {
  DryRank runtime({.rank = place, .size = test.grid.ranks(), .keeps_order = !test.nccl});
  ops::Context ctx = ops::make_dry_context(1);
  const ProcessGrid grid(runtime, test.grid);
  parallel::Stage stage(ctx, grid, plan, test.stage);
  parallel::GradientReducer reducer(ctx, stage, {.to_shard = stage.sharded()}, test.work);
  Rank rank;
  parallel::StateUpdates states(ctx, stage, test.work);
  rank.groups = stage.residences();
  if (!stage.states().empty()) rank.groups.push_back(stage.residence_of_states());
  rank.calls = calls_of(rank.groups, test.grid, test.work,
                        {.to_shard = stage.sharded(),
                         .whole_weights = test.stage.whole_weights,
                         .fixed_order = !test.nccl});
  const auto written = nn::written_parts(stage.groups(), test.grid, place);
  for (const std::vector<nn::FlatGroup::Part>& of_group : written) {
    for (const nn::FlatGroup::Part& part : of_group) {
      rank.writes.emplace_back(part.parameter->name(), part.parameter->placement().offset,
                               part.elements);
    }
  }
  runtime.recorder().start_trace();
  stage.weights().connect(ctx);
  reducer.connect();
  states.connect();
  const Trace trace = runtime.recorder().take_trace();
  for (const Operation& one : trace.operations) {
    const GroupLabel& label = trace.lanes.at(one.lane);
    const std::vector<int> members = test.grid.group(place, label.span);
    rank.made.emplace_back(members, one.name, one.bytes);
    rank.by_communicator[fmt::format("{} {}", label.name, fmt::join(members, " "))].emplace_back(
        one.name, one.bytes);
  }
  const bool stay = test.stage.whole_gradients || !stage.sharded();
  rank.reductions =
      test.work.reduces_each() ? std::min(test.work.runs(), stay ? 1 : 2) : test.work.runs();
  for (const Call& call : rank.calls) {
    const nn::Residence& first = rank.groups[call.group].members.front();
    const DType dtype = call.why == Purpose::kWeights ? *first.storage.weights : DType::kF32;
    // Proposals of all runs are reduced in one call.
    const bool of_states = call.why == Purpose::kState, each = call.when == Moment::kRun;
    const int times = each && !of_states ? rank.reductions : 1;
    const int runs = each && of_states ? test.work.runs() : 1;
    for (int i = 0; i < times; ++i) {
      rank.expected.emplace_back(test.grid.group(place, call.over), name_of(call.what),
                                 static_cast<std::size_t>(runs * call.of.size()) * size_of(dtype));
    }
  }
  std::ranges::sort(rank.made);
  std::ranges::sort(rank.expected);
  return rank;
}

// What a range of a gradient is made of: the tree of the contributions, and how many they are.
struct Sum {
  std::size_t tree = 0;
  int contributions = 0;
  bool operator==(const Sum&) const = default;
};
Sum leaf(const std::string& what) {
  return {std::hash<std::string>()(what), 1};
}
Sum added(const Sum& a, const Sum& b) {
  return {std::hash<std::string>()(fmt::format("{} {}", a.tree, b.tree)),
          a.contributions + b.contributions};
}
// Along T(n).
Sum sum_of(const std::vector<Sum>& terms) {
  const SumTree tree(static_cast<int>(terms.size()));
  std::vector<Sum> sums;
  for (int term = 0; term < tree.terms(); ++term) {
    const auto first = static_cast<std::size_t>(tree.first_rank_of(term));
    sums.push_back(term < tree.pairs() ? added(terms[first], terms[first + 1]) : terms[first]);
  }
  while (sums.size() > 1) {
    std::vector<Sum> next;
    for (std::size_t i = 0; i < sums.size(); i += 2) next.push_back(added(sums[i], sums[i + 1]));
    sums = std::move(next);
  }
  return sums.front();
}

// All ranks' gradients of one group, by range between neighbouring cuts. What calls do to them.
class Gradients {
 public:
  using Memory = std::vector<Sum>;  // by range

  Gradients(const Case& test, const std::vector<Rank>& ranks, const std::vector<std::string>& names)
      : test_(test), ranks_(ranks) {
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      const auto& groups = ranks[place].groups;
      const auto found = std::ranges::find(groups, names, names_of);
      if (found == groups.end()) continue;
      holders_[static_cast<int>(place)] = static_cast<std::size_t>(found - groups.begin());
      std::int64_t end = 0;
      for (const nn::Residence& one : found->members) {
        cuts_.insert(end);
        cuts_.insert(end += one.slice.local.elements());
      }
      cuts_.insert(found->sharding(test.grid).extent());
      for (const Call& call : calls_on(static_cast<int>(place))) {
        cuts_.insert({call.of.begin, call.of.end});
      }
      const nn::Sharding sharding = found->sharding(test.grid);
      for (int shard = 0; shard < sharding.count(); ++shard) {
        cuts_.insert({sharding.memory_of(shard).begin, sharding.memory_of(shard).end});
      }
    }
  }

  // The sums of a step, for each holder.
  std::map<int, Memory> of_step() {
    std::vector<std::map<int, Memory>> runs;
    for (int run = 0; run < test_.work.runs(); ++run) {
      auto& all = runs.emplace_back();
      for (const auto& [place, group] : holders_) all[place] = contributions(place, run);
      apply(all, Moment::kRun);
    }
    std::map<int, Memory> sums;
    for (const auto& [place, group] : holders_) {
      for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
        std::vector<Sum> terms;
        for (auto& run : runs) terms.push_back(run[place][i]);
        sums[place].push_back(sum_of(terms));
      }
    }
    apply(sums, Moment::kRunsDone);
    return sums;
  }

  void apply(std::map<int, Memory>& all, Moment moment) const {
    std::map<int, std::vector<Call>> calls;
    std::size_t most = 0;
    for (const auto& [place, group] : holders_) {
      for (const Call& call : calls_on(place)) {
        if (call.when == moment) calls[place].push_back(call);
      }
      most = std::max(most, calls[place].size());
    }
    for (std::size_t number = 0; number < most; ++number) {
      const std::map<int, Memory> before = all;
      for (const auto& [place, of_place] : calls) {
        if (number < of_place.size()) do_call(of_place[number], place, before, all[place]);
      }
    }
  }

  // Which elements of which tensor the i-th range of a holder has; "": padding.
  std::string elements(int place, std::size_t i) const {
    const parallel::ResidentGroup& group = group_of(place);
    std::int64_t begin = 0;
    for (const nn::Residence& one : group.members) {
      const std::int64_t end = begin + one.slice.local.elements();
      if (cut(i) < end) {
        return fmt::format("{} at {}: {}", one.name, fmt::join(one.slice.offset, ","),
                           cut(i) - begin);
      }
      begin = end;
    }
    return "";
  }
  const nn::Residence& residence(int place, std::size_t i) const {
    const parallel::ResidentGroup& group = group_of(place);
    std::int64_t end = 0;
    for (const nn::Residence& one : group.members) {
      end += one.slice.local.elements();
      if (cut(i) < end) return one;
    }
    return group.members.back();
  }
  const parallel::ResidentGroup& group_of(int place) const {
    return ranks_[static_cast<std::size_t>(place)].groups[holders_.at(place)];
  }
  std::size_t ranges() const { return cuts_.size() - 1; }
  std::int64_t cut(std::size_t i) const { return *std::next(cuts_.begin(), static_cast<int>(i)); }
  const std::map<int, std::size_t>& holders() const { return holders_; }

 private:
  std::vector<Call> calls_on(int place) const {
    std::vector<Call> mine;
    for (const Call& call : ranks_[static_cast<std::size_t>(place)].calls) {
      if (call.group == holders_.at(place) && call.why != Purpose::kWeights) mine.push_back(call);
    }
    return mine;
  }

  // What this rank's run contributes: it says which run of the step it is, and which part of it
  // this rank has.
  Memory contributions(int place, int run) const {
    const int data = test_.grid.index(place, kDataAxes), replicas = test_.grid.extent(kDataAxes);
    const int number =
        test_.work.reduces_each() ? run * replicas + data : data * test_.work.runs() + run;
    Memory memory;
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
      const nn::Residence& one = residence(place, i);
      std::string part;
      for (std::size_t s = 1; s < one.summed.size(); ++s) {
        part += fmt::format(" part {}", test_.grid.index(place, one.summed[s]));
      }
      memory.push_back(leaf(fmt::format("{} {}{}", elements(place, i), number, part)));
    }
    return memory;
  }

  void do_call(const Call& call, int place, const std::map<int, Memory>& before,
               Memory& mine) const {
    const std::vector<int> members = test_.grid.group(place, call.over);
    const auto own = std::ranges::find(members, place) - members.begin();
    const std::int64_t each = call.of.size() / std::ssize(members);
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
      if (cut(i) < call.of.begin || cut(i) >= call.of.end) continue;
      std::vector<Sum> terms;
      for (const int member : members) terms.push_back(before.at(member)[i]);
      if (call.what == Collective::kBroadcast) {
        mine[i] = terms.front();
      } else if (call.what == Collective::kReduceScatter &&
                 (cut(i) - call.of.begin) / each != own) {
        mine[i] = leaf("undefined");
      } else {
        mine[i] = sum_of(terms);
        // A library adds in an order that depends on its ranks; two of them have one order.
        const bool has_orders = call.when != Moment::kStepEnd || members.size() > 2;
        if (test_.nccl && has_orders) mine[i].tree += static_cast<std::size_t>(members.front());
      }
    }
  }

  const Case& test_;
  const std::vector<Rank>& ranks_;
  std::map<int, std::size_t> holders_;  // the group's number, by place
  std::set<std::int64_t> cuts_;
};

// Each contribution is added once, along the tree of runs, and all holders get the same sum.
void expect_whole_sums(const Case& test, const std::vector<Rank>& ranks) {
  std::set<std::vector<std::string>> groups;
  for (const Rank& rank : ranks) {
    for (const parallel::ResidentGroup& group : rank.groups) {
      const nn::Storage& storage = group.members.front().storage;
      if (storage.weights && storage.gradient) groups.insert(names_of(group));
    }
  }
  std::map<std::string, Sum> known;         // by elements
  std::map<std::string, std::string> held;  // by elements: the replicas that count them
  for (const std::vector<std::string>& names : groups) {
    Gradients gradients(test, ranks, names);
    auto sums = gradients.of_step();
    std::vector<std::string> apart_names = names;
    apart_names.emplace_back("apart");
    Gradients apart(test, ranks, apart_names);
    if (!apart.holders().empty()) {
      auto others = apart.of_step();
      for (auto& [place, memory] : others) {
        for (std::size_t i = 0; i < memory.size(); ++i) {
          sums[place][i] = added(sums[place][i], memory[i]);
        }
      }
    }
    gradients.apply(sums, Moment::kStepEnd);
    for (const auto& [place, memory] : sums) {
      const nn::Sharding sharding = gradients.group_of(place).sharding(test.grid);
      for (std::size_t i = 0; i < gradients.ranges(); ++i) {
        const bool of_shard =
            intersection(sharding.range(), {gradients.cut(i), gradients.cut(i) + 1}).size() == 1;
        const std::string what = gradients.elements(place, i);
        if (what.empty() || !of_shard) continue;
        const nn::Residence& one = gradients.residence(place, i);
        int parts = 1;
        for (std::size_t s = 1; s < one.summed.size(); ++s) {
          parts *= test.grid.extent(one.summed[s]);
        }
        const int uses = apart.holders().contains(place) ? 2 : 1;
        EXPECT_EQ(memory[i].contributions, test.work.runs_of_step() * parts * uses) << what;
        const auto [same, first] = known.emplace(what, memory[i]);
        EXPECT_EQ(memory[i], same->second) << what << " on " << place;
        if (gradients.group_of(place).purpose == Purpose::kState) {
          held[what] = "no norm";
        } else if (one.copy(test.grid, place, kModelAxes | Axis::kShard) == 0) {
          held[what] += fmt::format(" {}", test.grid.index(place, Axis::kReplicate));
        }
      }
    }
    if (test.nccl) continue;
    // Along T(N): the same as of one rank that has all runs.
    for (const auto& [place, memory] : sums) {
      const nn::Residence& one = gradients.residence(place, 0);
      if (one.summed.size() > 1 || apart.holders().contains(place) ||
          gradients.group_of(place).index != 0) {
        continue;
      }
      std::vector<Sum> runs;
      for (int run = 0; run < test.work.runs_of_step(); ++run) {
        runs.push_back(leaf(fmt::format("{} {}", gradients.elements(place, 0), run)));
      }
      EXPECT_EQ(memory[0], sum_of(runs)) << gradients.elements(place, 0) << " on " << place;
    }
  }
  std::string once;
  for (int i = 0; i < test.grid[Axis::kReplicate]; ++i) once += fmt::format(" {}", i);
  for (const auto& [what, sum] : known) {
    if (held[what] == "no norm") continue;
    EXPECT_EQ(held[what], once) << what << " is counted once";
  }
}

void expect_each_element_written_once(const std::vector<Rank>& ranks) {
  std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> written;
  std::map<std::string, std::int64_t> elements;
  for (const Rank& rank : ranks) {
    for (const auto& [name, offset, range] : rank.writes) {
      written[fmt::format("{} at {}", name, fmt::join(offset, ","))].emplace_back(range.begin,
                                                                                  range.end);
    }
    for (const parallel::ResidentGroup& group : rank.groups) {
      if (group.purpose == Purpose::kState) continue;  // one rank writes all of them
      for (const nn::Residence& one : group.members) {
        elements[fmt::format("{} at {}", one.name, fmt::join(one.slice.offset, ","))] =
            one.slice.local.elements();
      }
    }
  }
  for (const auto& [what, count] : elements) {
    auto& ranges = written[what];
    std::ranges::sort(ranges);
    std::int64_t end = 0;
    for (const auto& [begin, last] : ranges) {
      EXPECT_EQ(begin, end) << what;
      end = last;
    }
    EXPECT_EQ(end, count) << what;
  }
}

void expect_one_order(const std::vector<Rank>& ranks) {
  std::map<std::string, std::vector<std::pair<std::string, std::size_t>>> first;
  for (const Rank& rank : ranks) {
    for (const auto& [communicator, operations] : rank.by_communicator) {
      const auto [known, is_first] = first.emplace(communicator, operations);
      EXPECT_EQ(known->second, operations) << communicator;
    }
  }
}

// All grids of up to 32 ranks with these extents.
std::vector<GridShape> grids() {
  std::vector<GridShape> all;
  for (const int replicas : {1, 2, 3, 4}) {
    for (const int shards : {1, 2, 4}) {
      for (const int stages : {1, 2, 4}) {
        for (const int tensor : {1, 2, 4}) {
          GridShape grid(replicas, stages, tensor);
          grid[Axis::kShard] = shards;
          if (grid.ranks() <= 32) all.push_back(grid);
        }
      }
    }
  }
  return all;
}

void check(const Case& test) {
  SCOPED_TRACE(test.text());
  const nn::ModelPlan plan = plan_of(test.model);
  std::vector<Rank> ranks;
  for (int place = 0; place < test.grid.ranks(); ++place) {
    ranks.push_back(run_rank(test, plan, place));
    EXPECT_EQ(ranks.back().made, ranks.back().expected) << "place " << place;
  }
  expect_whole_sums(test, ranks);
  expect_each_element_written_once(ranks);
  expect_one_order(ranks);
}

// The first blocks are frozen, or a part of each.
nn::TrainedParameters trained_of(const std::string& model, bool first) {
  const bool pictures = model == "pictures";
  const char* of_first = pictures ? "stem.*,*.[01].*" : "embedding.*,*.[01].*";
  const char* of_each = pictures ? "*.norm.*" : "*.norm?.*,*.attention.*.weight";
  return nn::trained_parameters(plan_of(model), NamePatterns::of_list(first ? of_first : of_each));
}

class StateCalls : public ::testing::TestWithParam<const char*> {};

TEST_P(StateCalls, AddEachContributionOnceOnAllGrids) {
  const std::string model = GetParam();
  std::size_t number = 0;
  for (const GridShape& grid : grids()) {
    const int replicas = grid.extent(kDataAxes);
    if (model == "pictures" && grid[Axis::kTensor] > 1) continue;
    // What follows takes turns, so that all pairs of choices meet over the grids.
    const std::size_t turn = number++;
    Case test;
    test.model = model;
    test.grid = grid;
    const int micro_batches = 4 * replicas;
    const std::vector<int> possible = parallel::possible_batch_runs(micro_batches, replicas);
    test.stage.whole_gradients = turn % 3 == 0;
    test.stage.whole_weights = turn % 3 != 2;
    test.stage.sequence_parallel = turn / 3 % 2 == 1 && model != "pictures";
    test.stage.separates_uses = turn / 2 % 2 == 1;
    test.stage.chunks = grid[Axis::kPipeline] == 2 && turn % 5 == 0 ? 2 : 1;
    test.nccl = turn / 5 % 2 == 1;
    if (turn / 7 % 2 == 1) test.stage.trained = trained_of(model, turn % 2 == 0);
    parallel::BatchRuns runs{possible[turn % possible.size()], turn / 4 % 2 == 1, false};
    test.work = parallel::WorkSplit::even(micro_batches, replicas, runs);
    // Gradients of a shard alone stay only where each run is reduced.
    if (grid[Axis::kShard] > 1 && !test.work.reduces_each() && test.work.runs() > 1) {
      test.stage.whole_gradients = true;
    }
    check(test);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StateCalls,
                         ::testing::Values("gpt", "llama", "bert", "pictures"),
                         [](const auto& family) { return std::string(family.param); });

// What no family has yet can be said, and calls follow from it.
TEST(StateCalls, FrozenWeightsAndSpansOfAnyAxesHaveTheirCalls) {
  GridShape grid(2, 1, 4);
  grid[Axis::kShard] = 2;
  nn::Residence one{.name = "w",
                    .slice = nn::Placement::whole({16, 64}),
                    .copied = {Axes(Axis::kReplicate)},
                    .divided = Axes(Axis::kShard),
                    .summed = {kDataAxes},
                    .storage = {.weights = DType::kBF16, .master = false, .gradient = false}};
  const parallel::WorkSplit work = parallel::WorkSplit::even(4, 4);
  const auto calls = [&] {
    const parallel::ResidentGroup group{"frozen", {one}, 0};
    return calls_of({&group, 1}, grid, work, {});
  };
  // A frozen weight is gathered and never reduced.
  ASSERT_EQ(calls().size(), 1u);
  EXPECT_EQ(calls().front().what, Collective::kAllGather);
  EXPECT_EQ(calls().front().when, Moment::kOnce);
  // Experts: an overlay of the ranks with an even number of those that have the same data.
  one.storage = {};
  one.copied.emplace_back(Axis::kTensor, 0, std::vector{0, 2});
  one.summed.emplace_back(Axis::kTensor, 0, std::vector{0, 2});
  const std::vector<Call> made = calls();
  ASSERT_EQ(made.size(), 4u);
  EXPECT_EQ(made[2].over, Span(Axis::kTensor, 0, {0, 2}));
  EXPECT_EQ(made[2].when, Moment::kStepEnd);
  EXPECT_EQ(grid.group(0, made[2].over), (std::vector{0, 2}));
}

}  // namespace
}  // namespace trireme::testing
