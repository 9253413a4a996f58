#include "trireme/setup/settled_micro.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// The rest is for what dry runs do not count, and for what else runs on the machine.
constexpr double kShareOfMemory = 0.8;
// On each replica, for each stage.
constexpr int kMicroBatchesOfStage = 4;

// Positions (samples x their length) of a micro-batch beyond which steps get no faster, or even
// slower: perf/RESULTS.md#micro-batches. What has no row here was not measured, and memory alone
// limits it.
struct MostRows {
  std::string_view family;
  bool on_gpus;
  std::int64_t rows;
};
constexpr std::array kMostRows = {
    MostRows{"bert", false, 512},
    MostRows{"gpt", false, 512},
    MostRows{"vit", false, 512},
};

std::optional<std::int64_t> most_rows(const OpenMicro& run) {
  const auto found = std::ranges::find_if(kMostRows, [&](const MostRows& row) {
    return row.family == run.config.model.family && row.on_gpus == run.on_gpus;
  });
  return found == kMostRows.end() ? std::nullopt : std::optional(found->rows);
}

std::int64_t rows_of_sample(const nn::ModelPlan& plan) {
  return plan.rows == 0 ? plan.length : plan.rows;
}

bool same_dimensions(const GridShape& a, const GridShape& b) {
  return std::ranges::all_of(kGridDimensions, [&](const GridDimension& dimension) {
    return a.extent(dimension.axes) == b.extent(dimension.axes);
  });
}

class MicroSearch {
 public:
  MicroSearch(const OpenMicro& run, const FitsMemory& fits)
      : run_(run), fits_(fits), sizes_(sizes()) {}

  SettledMicro find() const {
    const std::optional<MicroBefore>& before = run_.before;
    if (before && same_dimensions(before->grid, run_.grid) &&
        std::ranges::find(sizes_, before->samples) != sizes_.end()) {
      return {before->samples, told(before->samples, "")};
    }
    std::string limit = "all that a replica computes in a step";
    std::vector<int> sizes = sizes_;
    const auto take_out = [&](const auto& is_too_large, const std::string& why) {
      if (std::erase_if(sizes, is_too_large) > 0) limit = why;
    };
    if (before) {
      take_out([&](int size) { return size > before->samples; }, "not above the one before");
    } else if (const auto rows = most_rows(run_)) {
      const std::int64_t each = rows_of_sample(run_.model.plan);
      take_out([&](int size) { return size * each > *rows; },
               fmt::format("more than {} positions at a time are not faster with {} on CPUs", *rows,
                           run_.config.model.family));
    }
    const int stages = run_.grid[Axis::kPipeline];
    take_out([&](int size) { return batches_of_replica(size) < fewest_batches(); },
             stages > 1   ? fmt::format("{} micro-batches of a replica keep {} stages busy",
                                        fewest_batches(), stages)
             : balances() ? "data replicas would have no shares by speed (batch.balance)"
                          : "data replicas do not divide batch.global, and more would load them "
                            "less evenly");
    if (sizes.empty()) return {sizes_.back(), told(sizes_.back(), "the smallest that is possible")};
    const int found = largest_that_fits(sizes);
    if (found != sizes.front()) {
      limit = fmt::format("more would take over {:.0f} % of the memory", 100 * kShareOfMemory);
    }
    return {found, told(found, limit)};
  }

 private:
  // Those with which the run can start, the largest first. If the model refuses them all, the check
  // of the grid tells why.
  std::vector<int> sizes() const {
    std::vector<int> possible = possible_micro(run_.config, run_.grid);
    TRIREME_CHECK(!possible.empty(), "resolve_run_grid refuses a grid without a micro-batch");
    Config config = run_.config;
    std::vector<int> taken;
    for (const int size : possible) {
      config.batch.micro = size;
      try {
        check_model_fits_grid(config, run_.model, run_.grid);
        taken.push_back(size);
      } catch (const ConfigError&) {
      }
    }
    return taken.empty() ? std::vector{possible.back()} : taken;
  }

  int batches_of_replica(int size) const {
    return run_.config.batch.global / size / run_.grid.extent(kDataAxes);
  }
  int fewest_batches() const {
    const int stages = run_.grid[Axis::kPipeline];
    const bool divided = run_.config.batch.global % run_.grid.extent(kDataAxes) == 0;
    if (stages > 1) return kMicroBatchesOfStage * stages;
    return divided && !balances() ? 1 : kMicroBatchesOfStage;
  }
  bool balances() const {
    return !run_.config.batch.balance.is_even() && run_.grid.extent(kDataAxes) > 1;
  }

  // Tries the largest first, which mostly fits, and the smallest of all never. A larger micro-batch
  // needs more, unless smaller ones take more shards of sums over runs.
  int largest_that_fits(const std::vector<int>& sizes) const {
    const auto does = [&](int size) { return fits(size); };
    if (sizes.front() == sizes_.back() || does(sizes.front())) return sizes.front();
    const auto rest = sizes.begin() + 1;
    const auto found =
        run_.config.shard.divides_gradients()
            ? std::find_if(rest, sizes.end(), does)
            : std::partition_point(rest, sizes.end(), [&](int size) { return !does(size); });
    return found == sizes.end() ? sizes_.back() : *found;
  }

  bool fits(int size) const {
    Config config = run_.config;
    config.batch.micro = size;
    try {
      plan::DryRunInput input = dry_run_input(config, run_.model, run_.grid);
      input.device = run_.device;
      PeakMemory memory = largest_of(plan::dry_run_largest(input));
      memory.total /= kShareOfMemory;
      return fits_(memory);
    } catch (const ConfigError&) {  // it is too large to be counted, or cannot be split so
      return false;
    }
  }

  std::string told(int samples, const std::string& why) const {
    const std::optional<MicroBefore>& before = run_.before;
    if (!before) return fmt::format("batch.micro auto: {}: {}", samples, why);
    if (samples == before->samples) return fmt::format("batch.micro auto: {}, as before", samples);
    return fmt::format("batch.micro auto: {} in place of {}: {}", samples, before->samples, why);
  }

  const OpenMicro& run_;
  const FitsMemory& fits_;
  std::vector<int> sizes_;
};

}  // namespace

SettledMicro settled_micro(const OpenMicro& run, const FitsMemory& fits) {
  return MicroSearch(run, fits).find();
}

SettledMicro settled_micro_ahead(const Config& config, const models::Model& model,
                                 const GridShape& grid, const RanksAhead& ranks) {
  OpenMicro open{.config = config,
                 .model = model,
                 .grid = grid,
                 .device = dry_device(config, ranks.threads, ranks.on_gpus ? ranks.gpu_bytes : 0),
                 .on_gpus = ranks.on_gpus};
  FitsMemory fits = fits_anywhere;
  if (ranks.on_gpus && ranks.gpu_bytes > 0) {
    fits = fits_gpu(ranks.gpu_bytes >> 20);
  }
  if (!ranks.on_gpus && ranks.node_mib) fits = fits_node(ranks.ranks_of_node, *ranks.node_mib);
  return settled_micro(open, fits);
}

std::string settle_micro_here(Runtime& runtime, const ComputeDevice& device,
                              const models::Model& model, const GridShape& grid,
                              const std::optional<MicroBefore>& before, Config& config) {
  write_out_micro(config);
  if (config.batch.micro.is_known()) return "";
  const FitsMemory fits = fits_here(runtime, device);
  const std::string settled = runtime.world().read_once([&] {
    const OpenMicro run{.config = config,
                        .model = model,
                        .grid = grid,
                        .device = dry_device(device),
                        .on_gpus = device.context.device.kind != DeviceKind::kCpu,
                        .before = before};
    const auto [samples, why] = settled_micro(run, fits);
    return fmt::format("{} {}", samples, why);
  });
  config.batch.micro.settle(std::atoi(settled.c_str()));
  return settled.substr(settled.find(' ') + 1);
}

}  // namespace trireme
