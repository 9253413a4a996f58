// What `trireme plan`, and a job that is planned before it is submitted, ask the planner.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/base/options.h"
#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/plan/layout_search.h"
#include "trireme/plan/site_description.h"
#include "trireme/setup/run_layouts.h"

#include "cli/plan_tables.h"

namespace trireme::cli {

struct PlanRequest {
  std::string gpu = {}, description = {}, network = {};
  std::optional<int> ranks_per_node = {};
  std::optional<double> memory = {};  // GiB
};

// What other commands ask: `machine` names a GPU or a file that describes a device.
PlanRequest plan_request(const std::string& machine, const std::string& network,
                         int ranks_per_node);

// Declares --gpu, --description, --network, --ranks-per-node and --memory.
void add_plan_options(Options& options, PlanRequest& request);

// A configuration and the machine that it is planned for.
class Planner {
 public:
  // `keys`: those that the user gave (Options::given). Throws ConfigError for a machine that is not
  // known, and for a configuration that cannot run.
  Planner(const PlanRequest& request, Config config, GivenKeys keys);

  const plan::DeviceDescription& device() const { return costs_->device(); }
  const plan::NetworkDescription& network() const { return network_; }
  const Config& config() const { return config_; }
  double memory() const { return memory_; }  // bytes of a rank
  int ranks_of_node() const { return ranks_of_node_; }
  std::string model() const;        // a line: its family and sizes, the batch
  std::string description() const;  // a line: the devices, the network
  PlanScale scale(int nodes) const;

  plan::LayoutSearch search(int kept) const;
  // The dry run of a layout. Throws ConfigError where the run cannot have it.
  plan::DryRunInput input(const plan::Layout& layout) const;
  // Forecasts one layout. With `traces`, sets what its stages do.
  plan::PlannedLayout forecast(const plan::Layout& layout,
                               std::vector<Trace>* traces = nullptr) const;
  // What would be with links that are twice as fast, memory or a batch twice as large: a line each.
  // It simulates again.
  std::vector<std::string> sensitivities(const plan::PlannedLayout& planned, int nodes) const;

  // What a run with that layout is told of it: its keys, and what was said of the step (plan.*).
  Config planned_config(const plan::PlannedLayout& planned) const;
  // A checkpoint's bytes: parameters, and the optimizer's states.
  double checkpoint_bytes() const;

  // The ranks of an island's grid on so many nodes. Throws ConfigError where there is none.
  int ranks_of_island(int nodes) const;
  // Searches on so many nodes. Throws as refuse_all does where nothing fits.
  PlannedNodes best_on(int nodes, int kept) const;
  // Throws ConfigError: nothing that was found fits, and what would.
  [[noreturn]] void refuse_all(int nodes, const plan::LayoutsFound& found) const;

 private:
  Planner(const plan::SiteDescription& site, const PlanRequest& request, Config config,
          GivenKeys keys);
  Planner twice(double links, double memory, int batch) const;
  plan::LayoutSearchOptions options(int kept) const;
  std::optional<int> nodes_that_fit(int nodes) const;
  std::string why_none_suits(int nodes) const;

  Config config_;
  GivenKeys keys_;
  std::shared_ptr<const plan::DeviceCosts> costs_;
  models::Model model_;
  int ranks_of_node_ = 1;
  plan::NetworkDescription network_;
  double memory_ = 0.0;
  plan::DryDevice dry_;
};

}  // namespace trireme::cli
