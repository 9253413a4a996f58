#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/settled_micro.h"
#include "trireme/setup/step_traffic.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/rank_order.h"

#include "cli/outputs.h"
#include "cli/topo.h"

namespace trireme::cli {

std::vector<std::string> nodes_in_order(const TopoArguments& given, const Fabric& fabric) {
  if (!given.nodes.empty()) {
    std::vector<std::string> names = expand_node_list(given.nodes, kMostNames), missing;
    Fabric known = fabric;
    add_nodes(known, names, &missing);
    if (missing.empty()) return names;
    throw ConfigError(fmt::format("--nodes {}: '{}' is not in the fabric", shown(given.nodes),
                                  shown(missing.front())));
  }
  std::vector<std::string> names;
  for (const int host : hosts_by_name(fabric)) {
    names.push_back(fabric.vertices()[static_cast<std::size_t>(host)].name);
  }
  return names;
}

std::vector<std::string> launcher_hosts(const TopoArguments& given, const Fabric& fabric,
                                        int ranks) {
  const std::vector<std::string> nodes = nodes_in_order(given, fabric);
  const int needed = (ranks - 1) / given.ranks_per_node + 1;
  if (needed > static_cast<int>(nodes.size())) {
    throw ConfigError(fmt::format("--grid: {} ranks, {} on each node, need {} nodes; there are {}",
                                  ranks, given.ranks_per_node, needed, nodes.size()));
  }
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.push_back(nodes[static_cast<std::size_t>(rank / given.ranks_per_node)]);
  }
  return hosts;
}

std::vector<int> vertices_of(const Fabric& fabric, const std::vector<std::string>& hosts) {
  Fabric known = fabric;
  return add_nodes(known, hosts);
}

Config config_of(const TopoArguments& given) {
  if (given.config.empty()) return {};
  return config_from_ini(read_run_config(given.config), given.config);
}

GridTraffic traffic_of_step(const Config& given, const GridShape& shape) {
  if (given.grid.islands > 1) {
    throw ConfigError(fmt::format(
        "grid.islands is {} in --config, but islands stand in the launcher's order: only the order "
        "of one grid can be chosen",
        given.grid.islands));
  }
  Config config = given;
  const models::Model model = models::resolve(config.model, facts_to_check(config));
  write_out_micro(config);
  if (!config.batch.micro.is_known()) {
    const bool can_start = !possible_micro(config, shape).empty();
    config.batch.micro.settle(can_start ? settled_micro_ahead(config, model, shape, {}).samples
                                        : 1);
  }
  plan::DryRunInput input = dry_run_input(config, model, shape);
  parallel::WorkSplit& work = input.step.work;
  if (work.micro_batches() < work.replicas()) {
    work = parallel::WorkSplit::even(work.replicas(), work.replicas(), work.rule());
  }
  return traffic_of(plan::dry_run_largest(input));
}

namespace {

std::string bytes_text(double bytes) {
  return size_text(static_cast<std::uint64_t>(bytes));
}

void print_cost(const char* name, const OrderCost& cost) {
  print_line(fmt::format("{:<10}{:>14}{:>14}  {}", name, time_text(cost.busiest),
                         time_text(cost.total), shown(cost.link, 80)));
}

void print_order(const RankOrder& order, const GridTraffic& traffic,
                 const std::vector<std::string>& hosts) {
  print_line(
      fmt::format("a step: data ranks sum {}, tensor ranks {}, first and last stage {}; stages "
                  "exchange {}",
                  bytes_text(traffic.data), bytes_text(traffic.tensor), bytes_text(traffic.ends),
                  bytes_text(traffic.pipeline)));
  print_line(
      fmt::format("{:<10}{:>14}{:>14}  {}", "order", "busiest link", "all links", "the busiest"));
  print_cost("launcher", order.launcher);
  print_cost("chosen", order.chosen);
  print_line(order.exact ? "no order is cheaper than the chosen one"
                         : "there may be a cheaper order than the chosen one");
  print_line("places of the grid on each node: " + describe_places(order.ranks, hosts));
}

}  // namespace

ExitStatus topo_order(const TopoArguments& given) {
  if (given.grid.empty()) throw ConfigError("topo order needs --grid, as in --grid 4x1x2");
  const GridShape shape = grid_of(given.grid);
  NamedOutput output(given.output);
  FabricSources sources = sources_of(given);
  if (sources.empty()) sources = find_fabric_sources();
  const Fabric fabric = read_cluster(sources, true);
  const std::vector<std::string> hosts = launcher_hosts(given, fabric, shape.ranks());
  const std::vector<int> host_of = vertices_of(fabric, hosts);
  const GridTraffic traffic = traffic_of_step(config_of(given), shape);
  const RankOrder order = order_ranks(shape, traffic, TreeNetwork(fabric, host_of, {}), hosts);
  print_order(order, traffic, hosts);
  for (const int rank : order.ranks) output.write(fmt::format("{}\n", rank));
  output.finish();
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
