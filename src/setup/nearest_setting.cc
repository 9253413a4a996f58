#include "trireme/setup/nearest_setting.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// A dry run of a large model takes some 0.05 s. A limit in seconds would make the answer depend on
// the machine.
constexpr int kMostDryRuns = 128;
constexpr int kLastStage = 3;  // of shard.stage
// Values of recompute.mode, from what holds most to what holds least.
constexpr std::array kModes = {"none", "selective", "full"};

std::string blocks_text(const Config::Recompute& recompute) {
  return recompute.blocks ? fmt::format("{}", *recompute.blocks) : "auto";
}

class Search {
 public:
  Search(const RunOfRanks& run, const FitsMemory& fits) : run_(run), fits_(fits) {}

  std::string find() const {
    for (const auto& [tensor, pipeline] : grids()) {
      Config config = run_.config;
      config.grid[Axis::kTensor] = tensor;
      config.grid[Axis::kPipeline] = pipeline;
      const int replicas = run_.grid.ranks() / (tensor * pipeline);
      if (config.grid[kDataAxes]) config.grid[kDataAxes] = replicas;
      // Shares by speed go with stage 1 at most.
      const int highest = config.batch.balance.is_even() ? kLastStage : 1;
      const int last_stage = replicas > 1 ? highest : config.shard.stage;
      for (; config.shard.stage <= last_stage; ++config.shard.stage) {
        for (const std::optional<int>& group : shard_groups(config, replicas)) {
          config.shard.group = group;
          if (const auto found = nearest_of_batches(config)) return flags(*found) + ", which fits";
          if (dry_runs_ >= kMostDryRuns) return std::string(kUsualRemedies);
        }
      }
    }
    return "more ranks or a smaller model, since no recompute.mode, batch.micro, shard.stage, "
           "grid.tensor and grid.pipeline fit";
  }

 private:
  // Tensor ranks and stages, the nearest first.
  std::vector<std::pair<int, int>> grids() const {
    const int ranks = run_.grid.ranks();
    const int tensor = run_.grid[Axis::kTensor], pipeline = run_.grid[Axis::kPipeline];
    std::vector<std::pair<int, int>> found;
    for (int t = tensor; t <= std::max(tensor, std::min(run_.ranks_of_node, ranks)); ++t) {
      if (ranks % t != 0) continue;
      for (int p = pipeline;
           p <= std::min(ranks / t, static_cast<int>(run_.model.plan.blocks.size())); ++p) {
        if (ranks / t % p == 0) found.emplace_back(t, p);
      }
    }
    std::ranges::sort(found, {}, [](const auto& grid) {
      return std::tuple(grid.first * grid.second, grid.second);
    });
    return found;
  }

  // The given shard.group that divides the replicas, and larger ones up to all. Where none is given
  // all replicas share one copy.
  std::vector<std::optional<int>> shard_groups(const Config& config, int replicas) const {
    const std::optional<int> given = run_.config.shard.group;
    if (!given || !config.shard.divides_state() || replicas == 1) return {given};
    std::vector<std::optional<int>> groups;
    for (int group = *given; group <= replicas; ++group) {
      if (replicas % group == 0) groups.emplace_back(group);
    }
    if (groups.empty()) groups.emplace_back();
    return groups;
  }

  // The given recomputation and stronger ones, the strongest last: of all blocks.
  std::vector<Config::Recompute> recomputations() const {
    const Config::Recompute& given = run_.config.recompute;
    std::vector<Config::Recompute> found;
    for (auto mode = std::ranges::find(kModes, given.mode); mode != kModes.end(); ++mode) {
      found.push_back({*mode, given.every, given.blocks});
    }
    if (given.blocks) found.push_back({kModes.back(), given.every, {}});
    return found;
  }

  // Returns one with the weakest recomputation and the largest micro-batch that fit, the latter
  // first.
  std::optional<Config> nearest_of_batches(Config config) const {
    const std::vector<int> sizes = micro_batches(config);
    if (sizes.empty()) return {};
    const std::vector<Config::Recompute> choices = recomputations();
    const auto with = [&](int micro, const Config::Recompute& recompute) {
      config.batch.micro = micro;
      config.recompute = recompute;
      return config;
    };
    const auto strongest_fits = [&](int micro) { return fits(with(micro, choices.back())); };
    // A larger micro-batch needs more, unless smaller ones take more shards of sums over runs.
    const bool larger_needs_more = !config.shard.divides_gradients();
    if (larger_needs_more && !strongest_fits(sizes.back())) return {};
    const auto found =
        larger_needs_more
            ? std::ranges::partition_point(sizes, [&](int size) { return !strongest_fits(size); })
            : std::ranges::find_if(sizes, strongest_fits);
    if (found == sizes.end()) return {};  // none fits, or no time was left
    const int micro = *found;
    for (const Config::Recompute& recompute : choices) {
      if (fits(with(micro, recompute))) return with(micro, recompute);
    }
    return {};
  }

  // The divisors of the global batch up to the given micro-batch with which the run could start,
  // the largest first. None of them changes the bits of run.same_bits.
  std::vector<int> micro_batches(Config config) const {
    std::vector<int> sizes;
    for (int size = run_.config.batch.micro; size >= 1; --size) {
      if (run_.config.batch.global % size != 0) continue;
      config.batch.micro = size;
      if (config.run.same_bits && runs_of_batch(config) != runs_of_batch(run_.config)) continue;
      try {
        check_model_fits_grid(config, run_.model, resolve_run_grid(config, run_.grid.ranks()));
        sizes.push_back(size);
      } catch (const ConfigError&) {
      }
    }
    return sizes;
  }

  bool fits(const Config& config) const {
    if (dry_runs_ >= kMostDryRuns) return false;
    ++dry_runs_;
    try {
      const GridShape grid = resolve_run_grid(config, run_.grid.ranks());
      check_model_fits_grid(config, run_.model, grid);
      plan::DryRunInput input = dry_run_input(config, run_.model, grid);
      input.device = run_.device;
      return fits_(largest_of(plan::dry_run_largest(input)));
    } catch (const ConfigError&) {  // the model cannot be split so
      return false;
    }
  }

  std::string flags(const Config& config) const {
    std::string text;
    const auto add = [&](const char* key, const auto& value, const auto& given) {
      if (value == given) return;
      text += fmt::format("{}--{} {}", text.empty() ? "" : " ", key, value);
    };
    const GridShape& grid = run_.grid;
    const Config::Recompute& recompute = run_.config.recompute;
    add("recompute.mode", config.recompute.mode, recompute.mode);
    add("recompute.blocks", blocks_text(config.recompute), blocks_text(recompute));
    add("batch.micro", int{config.batch.micro}, int{run_.config.batch.micro});
    add("shard.stage", config.shard.stage, run_.config.shard.stage);
    if (config.shard.divides_state() && config.shard.group != run_.config.shard.group) {
      const auto replicas =
          config.grid[kDataAxes].value_or(grid.ranks() / config.grid.shape().extent(kModelAxes));
      add("shard.group", config.shard.group.value_or(replicas), 0);
    }
    if (config.grid[kDataAxes]) add("grid.data", *config.grid[kDataAxes], grid.extent(kDataAxes));
    add("grid.tensor", *config.grid[Axis::kTensor], grid[Axis::kTensor]);
    add("grid.pipeline", *config.grid[Axis::kPipeline], grid[Axis::kPipeline]);
    return text;
  }

  const RunOfRanks& run_;
  const FitsMemory& fits_;
  mutable int dry_runs_ = 0;
};

}  // namespace

std::string nearest_setting(const RunOfRanks& run, const FitsMemory& fits) {
  return Search(run, fits).find();
}

}  // namespace trireme
