#include "cli/planning.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/step_setup.h"

#include "cli/planned_network.h"

namespace trireme::cli {
namespace {

constexpr int kUsualGpusOfNode = 8;
constexpr double kGib = 1073741824.0;
// How often the nodes are doubled to find out from how many on a model fits.
constexpr int kMostDoublings = 12;
constexpr double kMostSeconds = 60.0;  // of looking for it

plan::SiteDescription site_of(const PlanRequest& request) {
  if (request.gpu.empty() == request.description.empty()) {
    std::string names;
    for (const plan::DeviceDescription& known : plan::known_devices()) {
      names += (names.empty() ? "" : ", ") + known.name;
    }
    throw ConfigError(fmt::format(
        "a plan is for devices that are named: give either --gpu NAME (one of {}) or --description "
        "FILE, which trireme bench ops --describe FILE or plan --calibrate writes",
        names));
  }
  if (!request.gpu.empty()) return {.device = plan::known_device(request.gpu)};
  return plan::read_site(read_small_file("the description of a device", request.description),
                         request.description);
}

plan::DeviceDescription device_of(const plan::SiteDescription& site, const Config& config) {
  return config.run.precision == "tf32" ? plan::with_tf32(site.device) : site.device;
}

// What the user says of the device must not contradict its description.
void check_device(const Config& config, const GivenKeys& keys,
                  const plan::DeviceDescription& device) {
  const std::string& wanted = config.run.device;
  if (wanted != "auto" && (wanted == "cuda") != device.gpu) {
    throw ConfigError(fmt::format("run.device is {}, but {} is a {}: leave it out", wanted,
                                  printable(device.name), device.gpu ? "GPU" : "processor"));
  }
  const std::optional<int> threads = config.run.threads;
  if (!device.gpu && keys.contains("run.threads") && threads && *threads != device.threads) {
    throw ConfigError(fmt::format(
        "run.threads is {}, but {} was measured with {}: describe it with as many (trireme bench "
        "ops --describe FILE --threads {})",
        *threads, printable(device.name), device.threads, *threads));
  }
}

std::string_view words_of(plan::Evidence evidence) {
  switch (evidence) {
    case plan::Evidence::kMeasured:
      return "measured";
    case plan::Evidence::kPublished:
      return "by published runs";
    case plan::Evidence::kDataSheet:
      break;
  }
  return "by its data sheet, unverified";
}

// Empty: nobody names one.
std::string network_name(const PlanRequest& request, const Config& config) {
  const std::string& key = config.comm.network;
  if (!request.network.empty() || key == "auto" || key == "none") return request.network;
  return key;
}

void speed_up(plan::NetworkDescription& network, double times) {
  for (DistanceRates& rates : network.rates.distances) {
    rates.flow *= times;
    rates.host *= times;
    rates.block *= times;
  }
  network.node_links.bytes_per_second *= times;
}

}  // namespace

PlanRequest plan_request(const std::string& machine, const std::string& network,
                         int ranks_per_node) {
  PlanRequest request{.network = network, .ranks_per_node = ranks_per_node};
  const bool is_file = look_ahead(machine, ExitStatus::kUsage).is_file();
  (is_file ? request.description : request.gpu) = machine;
  return request;
}

void add_plan_options(Options& options, PlanRequest& request) {
  options.add("gpu", request.gpu, "name", "what each rank computes on: h100, a100-80, ...");
  options.add("description", request.description, "file",
              "the same as a file, which trireme bench ops --describe writes");
  options.add("ranks-per-node", request.ranks_per_node, "ranks",
              "auto: 8 where ranks have GPUs, else as many as the description is of",
              between(1, kMostGridRanks));
  options.add("network", request.network, "name",
              "between the nodes: ndr400-fat-tree, hdr200-2:1, ethernet-10g, ..., a kind of node "
              "(dgx-a100), both (hdr200-2:1+dgx-a100), or files as comm.network takes them; empty: "
              "comm.network, or what is usual for the device");
  options.add("memory", request.memory, "GiB",
              "of a rank's GPU, or of a node without; auto: what the device has",
              between(0.001, 1e6));
  options.paths({"description"});
}

Planner::Planner(const PlanRequest& request, Config config, GivenKeys keys)
    : Planner(site_of(request), request, std::move(config), std::move(keys)) {}

Planner::Planner(const plan::SiteDescription& site, const PlanRequest& request, Config config,
                 GivenKeys keys)
    : config_(std::move(config)),
      keys_(std::move(keys)),
      costs_(std::make_shared<plan::DeviceCosts>(device_of(site, config_))),
      model_(models::resolve(config_.model, facts_to_check(config_))) {
  if (!keys_.contains("grid.cut")) config_.grid.cut = {};
  check_device(config_, keys_, device());
  check_config_without_data(config_);
  const bool gpu = device().gpu;
  ranks_of_node_ = request.ranks_per_node.value_or(gpu ? kUsualGpusOfNode : device().ranks);
  network_ = planned_network(network_name(request, config_), device(), ranks_of_node_);
  if (site.constants && site.network == network_.name) network_.constants = *site.constants;
  network_.any_order = config_.comm.order == "any";
  network_.nccl = gpu && config_.comm.backend != "mpi";
  const double whole = request.memory ? *request.memory * kGib : device().memory;
  memory_ = gpu ? whole : whole / ranks_of_node_ - kProcessBytes;
  if (memory_ <= 0.0) {
    throw ConfigError(fmt::format(
        "memory: a rank has {:.2f} GiB of its node, and the program itself takes {:.2f}: give more "
        "--memory, or fewer --ranks-per-node",
        whole / ranks_of_node_ / kGib, kProcessBytes / kGib));
  }
  dry_ = dry_device(config_, 1, gpu ? static_cast<std::int64_t>(whole) : 0);
  dry_.threads = std::max(1, device().threads);
  dry_.nccl_setting.ranks_of_node = ranks_of_node_;
}

std::string Planner::model() const {
  const std::string summary = models::summary(model_.request);
  return fmt::format("{}{}{}: {} parameters, batch.global {}", model_.request.family,
                     summary.empty() ? "" : ", ", summary,
                     short_number(static_cast<double>(model_.plan.parameters)),
                     int{config_.batch.global});
}

std::string Planner::description() const {
  std::string text =
      fmt::format("{} ({}), {} a node, {:.1f} GiB for a rank; network {}", device().title,
                  words_of(device().evidence), ranks_of_node_, memory_ / kGib, network_.name);
  for (const WeightedPath& data : config_.data.train) {
    if (!model_.data.vocabulary || look_ahead(data.path, ExitStatus::kUsage).is_there()) continue;
    text += fmt::format("; {} is not here: a vocabulary of {} is assumed", shown(data.path),
                        *model_.data.vocabulary);
    break;
  }
  if (!device().gpu && device().ranks != ranks_of_node_) {
    text +=
        fmt::format("; it was measured with {} a node, whose memory they share", device().ranks);
  }
  return text;
}

PlanScale Planner::scale(int nodes) const {
  PlanScale scale{.nodes = nodes};
  const bool texts = model_.data.vocabulary.has_value();
  scale.units = texts ? "tokens" : "samples";
  const double samples = static_cast<double>(config_.batch.global) * config_.grid.islands;
  scale.units_of_step = samples * (texts ? static_cast<double>(model_.plan.length) : 1.0);
  scale.model_flops = model_.plan.flops_per_sample * samples;
  const auto peak = device().peak.find(compute_type(config_.run.precision));
  if (peak != device().peak.end()) scale.peak = peak->second * nodes * ranks_of_node_;
  return scale;
}

plan::LayoutSearchOptions Planner::options(int kept) const {
  return {.device = costs_.get(),
          .network =
              [this](const GridShape& grid) {
                return std::make_unique<plan::NetworkCosts>(network_, grid, config_.grid.islands);
              },
          .input =
              [this](const plan::Layout& layout) {
                return layout_input(config_, model_, layout, dry_);
              },
          .memory = memory_,
          .kept = kept};
}

plan::LayoutSearch Planner::search(int kept) const {
  return {layout_space(config_, keys_, model_, ranks_of_node_), options(kept)};
}

plan::DryRunInput Planner::input(const plan::Layout& layout) const {
  std::string why_not;
  std::optional<plan::DryRunInput> input = layout_input(config_, model_, layout, dry_, &why_not);
  if (!input) throw ConfigError(why_not);
  return *std::move(input);
}

plan::PlannedLayout Planner::forecast(const plan::Layout& layout,
                                      std::vector<Trace>* traces) const {
  const plan::DryRunInput whole = input(layout);
  plan::NetworkCosts network(network_, whole.grid, config_.grid.islands);
  plan::PlannedLayout planned{.layout = layout};
  planned.memory = plan::dry_run_all(whole);
  planned.step = plan::forecast_step(whole, *costs_, network, traces);
  return planned;
}

Planner Planner::twice(double links, double memory, int batch) const {
  Planner other = *this;
  speed_up(other.network_, links);
  other.memory_ *= memory;
  if (other.dry_.on_gpus()) {
    other.dry_.gpu_memory =
        static_cast<std::int64_t>(memory * static_cast<double>(dry_.gpu_memory));
  }
  other.config_.batch.global *= batch;
  return other;
}

std::vector<std::string> Planner::sensitivities(const plan::PlannedLayout& planned,
                                                int nodes) const {
  const double now = planned.step.seconds;
  const auto told = [&](const std::string& what, double seconds) {
    return fmt::format("{}: {} a step, {:+.1f} %", what, time_text(seconds),
                       100.0 * (seconds / now - 1.0));
  };
  std::vector<std::string> lines;
  lines.push_back(
      told("with links twice as fast", twice(2.0, 1.0, 1).forecast(planned.layout).step.seconds));
  const Planner roomy = twice(1.0, 2.0, 1);
  const plan::LayoutsFound found = roomy.search(1).find(ranks_of_island(nodes));
  if (!found.best.empty()) {
    const plan::PlannedLayout& best = found.best.front();
    const bool gains = best.step.seconds < now;
    lines.push_back(gains ? told("with memory twice as large (" + layout_flags(best.layout) + ")",
                                 best.step.seconds)
                          : "with memory twice as large: no faster layout");
  }
  try {
    const double seconds = twice(1.0, 1.0, 2).forecast(planned.layout).step.seconds;
    lines.push_back(
        fmt::format("with a batch twice as large: {} a step, {:+.1f} % as many {} a "
                    "second",
                    time_text(seconds), 100.0 * (2.0 * now / seconds - 1.0), scale(nodes).units));
  } catch (const ConfigError& error) {
    lines.push_back(fmt::format("with a batch twice as large: not possible ({})", error.what()));
  }
  return lines;
}

Config Planner::planned_config(const plan::PlannedLayout& planned) const {
  Config config = with_layout(config_, planned.layout);
  config.plan = {.step = planned.step.seconds,
                 .low = planned.step.low,
                 .high = planned.step.high,
                 .ranks = planned.layout.grid.ranks() * config.grid.islands,
                 .device = device().name,
                 .network = network_.name};
  return config;
}

double Planner::checkpoint_bytes() const {
  plan::Layout alone;
  const auto input = layout_input(config_, model_, alone, dry_);
  const int states = input ? input->step.optimizer.most_states() : 2;
  return 4.0 * (1 + states) * static_cast<double>(model_.plan.parameters);
}

int Planner::ranks_of_island(int nodes) const {
  const std::int64_t ranks = std::int64_t{nodes} * ranks_of_node_;
  if (ranks > kMostGridRanks) {
    throw ConfigError(fmt::format("{} of {} are more than {} ranks", counted(nodes, "node"),
                                  counted(ranks_of_node_, "rank"), kMostGridRanks));
  }
  const int islands = config_.grid.islands;
  if (ranks % islands != 0) {
    throw ConfigError(fmt::format("grid.islands is {}, which does not divide the {} of {}", islands,
                                  counted(ranks, "rank"), counted(nodes, "node")));
  }
  return static_cast<int>(ranks / islands);
}

PlannedNodes Planner::best_on(int nodes, int kept) const {
  PlannedNodes planned{scale(nodes), search(kept).find(ranks_of_island(nodes))};
  if (planned.found.best.empty()) refuse_all(nodes, planned.found);
  return planned;
}

void Planner::refuse_all(int nodes, const plan::LayoutsFound& found) const {
  const std::string on = counted(nodes, "node");
  if (!found.smallest) {
    throw ConfigError(fmt::format("no layout suits on {}: {}", on, why_none_suits(nodes)));
  }
  if (const std::optional<int> more = nodes_that_fit(nodes)) {
    throw ConfigError(fmt::format("memory: nothing fits on {}: it fits on {} nodes", on, *more));
  }
  throw ConfigError(fmt::format(
      "memory: nothing fits on {}: a rank needs {:.1f} GiB or more ({}), a rank has {:.1f}: give "
      "{} with more memory or a smaller model",
      on, found.smallest->estimated_bytes / kGib, layout_flags(found.smallest->layout),
      memory_ / kGib, device().gpu ? "GPUs" : "nodes"));
}

// More nodes, on which something fits: doubled, then fewer of them, by halves of what is between.
// Where that takes long, none, or more than would do.
std::optional<int> Planner::nodes_that_fit(int nodes) const {
  plan::LayoutSearch larger = search(1);
  const Stopwatch watch;
  const auto is_late = [&] { return watch.seconds() > kMostSeconds; };
  const auto fits = [&](std::int64_t count) {
    return count * ranks_of_node_ % config_.grid.islands == 0 &&
           !larger.find(ranks_of_island(static_cast<int>(count))).best.empty();
  };
  std::int64_t too_few = nodes, enough = 2 * std::int64_t{nodes};
  for (int i = 0;; ++i) {
    if (i == kMostDoublings || enough * ranks_of_node_ > kMostGridRanks || is_late()) return {};
    if (fits(enough)) break;
    too_few = std::exchange(enough, 2 * enough);
  }
  while (enough - too_few > 1 && !is_late()) {
    const std::int64_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  return static_cast<int>(enough);
}

// The reason of the first layout that the keys allow.
std::string Planner::why_none_suits(int nodes) const {
  const plan::LayoutSpace space = layout_space(config_, keys_, model_, ranks_of_node_);
  const int ranks = ranks_of_island(nodes);
  for (const plan::Layout& layout : plan::layouts_of(space, ranks)) {
    std::string why_not;
    if (!layout_input(config_, model_, layout, dry_, &why_not)) return why_not;
  }
  return fmt::format(
      "the keys of the layout that are given, batch.global {} and {} blocks leave no grid of {}",
      config_.batch.global, model_.plan.blocks.size(), counted(ranks, "rank"));
}

}  // namespace trireme::cli
