#include "trireme/plan/layout_search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "plan/in_parallel.h"
#include "plan/layout_estimate.h"

namespace trireme::plan {
namespace {

// Composed costs leave room for their own errors: what they call a little too large is dry-run.
double doubt_of(const Layout& layout) {
  return layout.schedule.starts_with("zb-") ? 1.5 : 1.2;
}
// The same where a dry run of the kind has told how far off they are. What they call smaller than
// the second is dry-run whole without a look at its first stage.
constexpr double kLessDoubt = 1.05, kNoDoubt = 0.9;
// Layouts are dry-run until as many fit as are kept, or so many did not.
constexpr std::size_t kMostMisses = 120;
constexpr std::size_t kAtOnce = 4;  // a constant, so that all machines find the same
// A cut of its own has to be so much faster than that which follows from the model alone.
constexpr double kWorthACut = 0.99;
constexpr std::size_t kCuts = 2;  // the layouts for which that is tried

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

template <class T>
std::vector<T> given_or(const std::optional<T>& given, std::vector<T> others) {
  if (given) return {*given};
  return others;
}

struct Schedule {
  std::string name;
  int chunks;
};

std::vector<Schedule> schedules_of(const LayoutSpace& space, int stages, int micro_batches) {
  if (stages == 1 && !space.schedule && space.chunks.value_or(1) == 1) return {{"1f1b", 1}};
  std::vector<Schedule> found;
  const auto add = [&](const std::string& name, int chunks) {
    if (space.schedule && *space.schedule != name) return;
    if (space.chunks && *space.chunks != chunks) return;
    if (stages * chunks > space.blocks) return;
    const auto layout = parallel::schedule_layout(
        name, stages, name == "interleaved" ? std::optional<int>(chunks) : std::nullopt);
    if (parallel::takes_micro_batches(name, layout, micro_batches)) found.push_back({name, chunks});
  };
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) add(name, 1);
  add("zb-v", 2);
  for (const int chunks : {2, 3, 4, 6, 8}) add("interleaved", chunks);
  return found;
}

// How copies are shared: the shard stage and the ranks that share a copy.
std::vector<std::pair<int, int>> shards_of(const LayoutSpace& space, int data, int of_node) {
  if (data == 1) {
    const int stage = space.shard_stage.value_or(0);
    return stage == 3 ? std::vector<std::pair<int, int>>() : std::vector{std::pair{stage, 1}};
  }
  std::vector<std::pair<int, int>> found;
  for (const int stage : given_or(space.shard_stage, space.shard_stages)) {
    if (stage == 0) {
      if (!space.shard_group) found.emplace_back(0, 1);
      continue;
    }
    std::vector<int> groups = {data};
    if (of_node > 1 && of_node < data && data % of_node == 0) groups.push_back(of_node);
    for (const int group : given_or(space.shard_group, groups)) {
      if (data % group == 0) found.emplace_back(stage, group);
    }
  }
  return found;
}

void add_layouts(const LayoutSpace& space, const GridShape& grid, std::vector<Layout>& layouts) {
  const int data = grid.extent(kDataAxes), stages = grid[Axis::kPipeline];
  const int tensor = grid[Axis::kTensor];
  if (space.samples % data != 0) return;
  const int share = space.samples / data;
  for (const int micro : given_or(space.micro, divisors(share))) {
    if (share % micro != 0) continue;
    for (const auto& [schedule, chunks] : schedules_of(space, stages, share / micro)) {
      for (const auto& [stage, group] : shards_of(space, data, space.most_tensor / tensor)) {
        for (const std::string& recompute :
             given_or<std::string>(space.recompute, {"none", "selective", "full"})) {
          for (const bool sequence :
               given_or<bool>(space.sequence_parallel, tensor > 1 ? std::vector<bool>{true, false}
                                                                  : std::vector<bool>{false})) {
            if (sequence && tensor == 1) continue;
            Layout& layout = layouts.emplace_back();
            layout.grid = grid;
            layout.grid[Axis::kReplicate] = data / group;
            layout.grid[Axis::kShard] = group;
            layout.shard_stage = stage;
            layout.micro = micro;
            layout.schedule = schedule;
            layout.chunks = chunks;
            layout.recompute = recompute;
            layout.recomputed_blocks = space.recomputed_blocks;
            layout.sequence_parallel = sequence;
          }
        }
      }
    }
  }
}

constexpr double kTold = 0.0005;  // less is 0.0 %
std::string share_text(double share) {
  return fmt::format("{:.1f} %", 100.0 * share);
}

}  // namespace

double PlannedLayout::bytes() const {
  double most = 0.0;
  for (const DryRunResult& result : memory) {
    most = std::max(most, static_cast<double>(result.memory.total_peak));
  }
  return most;
}

std::vector<Layout> layouts_of(const LayoutSpace& space, int ranks) {
  std::vector<Layout> layouts;
  for (const int tensor : given_or(space.tensor, divisors(space.most_tensor))) {
    if (ranks % tensor != 0) continue;
    for (const int stages : given_or(space.pipeline, divisors(ranks / tensor))) {
      if (ranks / tensor % stages != 0 || stages > space.blocks) continue;
      const int data = ranks / tensor / stages;
      if (space.data && *space.data != data) continue;
      add_layouts(space, GridShape(data, stages, tensor), layouts);
    }
  }
  return layouts;
}

class LayoutSearch::Impl {
 public:
  Impl(LayoutSpace space, LayoutSearchOptions options)
      : space_(std::move(space)), options_(std::move(options)), estimate_(options_) {}

  LayoutsFound find(int ranks) {
    LayoutsFound found;
    std::vector<PlannedLayout> candidates;
    for (const Layout& layout : layouts_of(space_, ranks)) {
      const LayoutCost cost = estimate_.cost(layout, space_.samples);
      if (!cost.known || recomputes_nothing(layout, cost)) continue;
      ++found.tried;
      const PlannedLayout planned{
          .layout = layout, .estimate = cost.seconds, .estimated_bytes = cost.bytes};
      if (!found.smallest || cost.bytes < found.smallest->estimated_bytes) found.smallest = planned;
      if (cost.bytes > doubt_of(layout) * options_.memory) {
        ++found.too_large;
      } else {
        candidates.push_back(planned);
      }
    }
    slower_.clear();  // of another number of ranks
    least_slower_ = 1.0;
    dry_run_best(candidates, found);
    const auto sort = [&] {
      std::ranges::stable_sort(found.best, {},
                               [](const PlannedLayout& one) { return one.step.seconds; });
    };
    sort();
    for (std::size_t i = 0; i < std::min(kCuts, found.best.size()); ++i) {
      try_other_cut(found.best[i]);
    }
    sort();
    return found;
  }

 private:
  // Whether "selective" has nothing to recompute in this model, so that "none" stands for it.
  bool recomputes_nothing(const Layout& layout, const LayoutCost& cost) {
    if (layout.recompute != "selective" || space_.recompute) return false;
    Layout none = layout;
    none.recompute = "none";
    const LayoutCost other = estimate_.cost(none, space_.samples);
    return other.seconds == cost.seconds && other.bytes == cost.bytes;
  }

  // What decides how far composed bytes are from those of a dry run.
  using Kind = std::tuple<std::string, int, int, std::string, bool>;
  static Kind kind_of(const Layout& layout) {
    return {layout.schedule, layout.grid[Axis::kPipeline], layout.shard_stage, layout.recompute,
            layout.sequence_parallel};
  }
  // The composed bytes, corrected by what the last dry run of the kind said.
  double expected_bytes(const PlannedLayout& planned) const {
    const auto known = corrections_.find(kind_of(planned.layout));
    return planned.estimated_bytes *
           (known == corrections_.end() ? 1 / doubt_of(planned.layout) : known->second);
  }

  // What decides how far composed times are from replayed ones: links that stages or tensor ranks
  // wait for.
  static std::pair<int, int> grid_of(const Layout& layout) {
    return {layout.grid[Axis::kPipeline], layout.grid[Axis::kTensor]};
  }
  // The composed time, corrected by the best that a replay on such a grid said; on grids without
  // one, by the best of all.
  double expected_seconds(const PlannedLayout& planned) const {
    const auto known = slower_.find(grid_of(planned.layout));
    return planned.estimate * (known == slower_.end() ? least_slower_ : known->second);
  }

  // Dry-runs the candidates whole, the first ones first, several at once, until enough fit.
  void dry_run_best(std::vector<PlannedLayout>& candidates, LayoutsFound& found) {
    const auto kept = static_cast<std::size_t>(options_.kept);
    std::size_t misses = 0;
    while (found.best.size() < kept && misses <= kMostMisses) {
      // What was dry-run has told more of the others.
      std::ranges::stable_sort(candidates, {},
                               [&](const PlannedLayout& one) { return expected_seconds(one); });
      std::vector<Tried> tried;
      std::size_t taken = 0;
      for (;
           taken < candidates.size() && tried.size() < std::min(kAtOnce, kept - found.best.size());
           ++taken) {
        PlannedLayout& candidate = candidates[taken];
        const double bytes = expected_bytes(candidate);
        if (bytes > kLessDoubt * options_.memory) {
          ++found.too_large;
          continue;
        }
        const bool looks =
            bytes > kNoDoubt * options_.memory || !corrections_.contains(kind_of(candidate.layout));
        tried.push_back({.planned = std::move(candidate), .looks = looks});
      }
      candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(taken));
      if (tried.empty()) return;
      in_parallel(tried.size(), [&](std::size_t i) { dry_run_whole(tried[i]); });
      for (Tried& one : tried) {
        if (one.correction) corrections_[kind_of(one.planned.layout)] = *one.correction;
        if (one.fits) {
          const PlannedLayout& planned = one.planned;
          const double slower = planned.step.seconds / planned.estimate;
          const auto [known, added] = slower_.try_emplace(grid_of(planned.layout), slower);
          known->second = std::min(known->second, slower);
          least_slower_ = std::min(least_slower_, slower);
          found.best.push_back(std::move(one.planned));
        } else {
          ++misses;
          ++found.too_large;
        }
      }
    }
  }

  struct Tried {
    PlannedLayout planned;
    bool looks = true;  // at the first stage, which holds the most in most schedules
    bool fits = false;  // false, too, where the run cannot have the layout
    std::optional<double> correction = {};  // bytes by composed bytes
  };
  void dry_run_whole(Tried& tried) const {
    PlannedLayout& planned = tried.planned;
    const std::optional<DryRunInput> input = options_.input(planned.layout);
    if (!input) return;
    const auto first_fits = [&](const DryRunResult& first) {
      const auto bytes = static_cast<double>(first.memory.total_peak);
      tried.correction = bytes / planned.estimated_bytes;
      return bytes <= options_.memory;
    };
    if (tried.looks && !first_fits(dry_run(*input, 0))) return;
    planned.memory = dry_run_largest(*input);
    if (!first_fits(planned.memory.front()) || planned.bytes() > options_.memory) return;
    const std::unique_ptr<NetworkCosts> network = options_.network(input->grid);
    planned.step = forecast_step(*input, *options_.device, *network);
    tried.fits = true;
  }

  // Stages cut by the device's own costs, if that is faster.
  void try_other_cut(PlannedLayout& planned) {
    PlannedLayout other = planned;
    other.layout.cut = estimate_.cut(planned.layout);
    if (!space_.cuts || other.layout.cut.empty()) return;
    const std::optional<DryRunInput> input = options_.input(other.layout);
    if (!input) return;
    const std::unique_ptr<NetworkCosts> network = options_.network(input->grid);
    other.step = forecast_step(*input, *options_.device, *network);
    if (other.step.seconds >= kWorthACut * planned.step.seconds) return;
    other.memory = dry_run_largest(*input);
    if (other.bytes() <= options_.memory) planned = std::move(other);
  }

  LayoutSpace space_;
  LayoutSearchOptions options_;
  LayoutEstimate estimate_;
  std::map<Kind, double> corrections_;
  std::map<std::pair<int, int>, double> slower_;
  double least_slower_ = 1.0;
};

LayoutSearch::LayoutSearch(LayoutSpace space, LayoutSearchOptions options)
    : impl_(std::make_unique<Impl>(std::move(space), std::move(options))) {}
LayoutSearch::~LayoutSearch() = default;

LayoutsFound LayoutSearch::find(int ranks) {
  return impl_->find(ranks);
}

std::string why_faster(const PlannedLayout& first, const PlannedLayout& second) {
  const auto exposed = [](const PlannedLayout& one) {
    double sum = 0.0;
    for (const auto& [name, share] : one.step.exposed()) sum += share;
    return sum;
  };
  const double saved = second.step.seconds - first.step.seconds;
  const double bubble =
      second.step.bubble() * second.step.seconds - first.step.bubble() * first.step.seconds;
  const double waits = exposed(second) * second.step.seconds - exposed(first) * first.step.seconds;
  const double computes = saved - bubble - waits;
  const double share = saved / second.step.seconds;
  if (share < kTold) return "the second is as fast as the first";
  const std::string by = fmt::format("the first takes {} less than the second", share_text(share));
  if (bubble >= waits && bubble >= computes) {
    return fmt::format("{}: its stages wait less for each other ({} of their time beside {})", by,
                       share_text(first.step.bubble()), share_text(second.step.bubble()));
  }
  if (waits >= computes) {
    return fmt::format("{}: less communication is exposed ({} of its time beside {})", by,
                       share_text(exposed(first)), share_text(exposed(second)));
  }
  return fmt::format(
      "{}: its busiest rank computes {} less", by,
      share_text(1.0 - first.step.busiest().times.compute / second.step.busiest().times.compute));
}

}  // namespace trireme::plan
