#include "cli/topo.h"

#include <utility>

#include "cli/actions.h"
#include "cli/commands.h"
#include "cli/outputs.h"

namespace trireme::cli {
namespace {

struct TopoAction {
  std::string_view name;
  std::vector<std::string_view> flags;
  ExitStatus (*alone)(const TopoArguments&);               // or nullptr
  ExitStatus (*on_ranks)(Runtime&, const TopoArguments&);  // or nullptr
  bool takes_words = false;                                // after its name
};

const std::vector<TopoAction>& actions() {
  static const std::vector<TopoAction> table = {
      {"show",
       {"dump", "slurm", "topology", "sysfs", "host", "hwloc", "network", "json", "svg",
        "ranks-per-node", "grid", "nodes", "config"},
       topo_show,
       nullptr},
      {"choose",
       {"dump", "slurm", "topology", "network", "json", "ranks", "ranks-per-node", "nodes",
        "any-order"},
       topo_choose,
       nullptr},
      {"explain",
       {"dump", "slurm", "topology", "network", "json", "ranks", "ranks-per-node", "nodes",
        "any-order"},
       topo_explain,
       nullptr,
       /*takes_words=*/true},
      {"probe",
       {"dump", "slurm", "topology", "network", "json", "collectives"},
       nullptr,
       topo_probe},
      {"order",
       {"dump", "slurm", "topology", "network", "ranks-per-node", "grid", "nodes", "config",
        "output"},
       topo_order,
       nullptr},
  };
  return table;
}

void declare(Options& options, TopoArguments& given) {
  options.add("dump", given.dump, "file", "output of ibnetdiscover; empty: none");
  options.add("slurm", given.slurm, "file",
              "Slurm's topology.conf or topology.yaml, or the output of scontrol show topology; "
              "empty: none; without a file probe takes what Slurm tells its tasks");
  options.add("topology", given.topology, "name",
              "which topology of topology.yaml; empty: the cluster's default");
  options.add("sysfs", given.sysfs, "folder",
              "show: the root of sysfs, /sys, whose InfiniBand ports are shown; empty: none");
  options.add("host", given.host, "name", "show: the host that --sysfs is of; empty: this one");
  options.add("hwloc", given.hwloc, "file",
              "show: the inside of a host as lstopo --of xml writes it; empty: none");
  options.add("network", given.network, "file",
              "rates that were measured; empty: none; probe: where to store them; empty: where "
              "comm.network auto looks for them");
  options.add(
      "json", given.json, "file",
      "write what is printed as JSON; probe: all figures, with those of each pair of nodes; "
      "empty: do not");
  options.add("svg", given.svg, "file", "show: write a picture of the fabric; empty: do not");
  options.add("ranks-per-node", given.ranks_per_node, "", "ranks on each node",
              between(1, 1 << 20));
  options.add("grid", given.grid, "data x pipeline x tensor",
              "order: the grid, as in 4x1x2; show: draw its ranks on their hosts; empty: no ranks");
  options.add(
      "nodes", given.nodes, "list",
      "show, order, choose, explain: the job's nodes as the launcher numbers their ranks, as in "
      "n[1-4], and what connects these alone; empty: all; order, show: by name; choose, explain: "
      "leaf after leaf");
  options.add("config", given.config, "file",
              "order, show: the run's configuration, whose traffic counts; empty: order takes the "
              "built-in model's, show draws no load of links");
  options.add("output", given.output, "file",
              "order: write the order there, for grid.order; empty: do not");
  options.paths({"dump", "slurm", "sysfs", "hwloc", "network", "json", "svg", "config", "output"});
  options.add("ranks", given.ranks, "",
              "choose, explain: ranks of the job, node after node; 0: as many as the nodes hold",
              between(0, 1 << 20));
  options.add(
      "collectives", given.collectives, "",
      "probe: also time collectives, each by several algorithms, which takes some seconds, and on "
      "slow links up to a minute or so");
  options.add("any-order", given.any_order, "",
              "choose, explain: as with comm.order any, also algorithms that add in another order");
}

}  // namespace

Work parse_topo(const Arguments& arguments) {
  TopoArguments given;
  Options options("trireme topo show|order|choose|explain|probe [--KEY VALUE]...");
  options.add_positional(
      "WHAT", given.words,
      "show: the fabric that the given files describe; order: which rank should take which place "
      "of a grid; choose: the algorithms that would carry a job's collectives on a described "
      "network; explain all_reduce 1M: the predicted time of each; probe: how fast messages are "
      "between the ranks that the launcher started",
      {"show", "order", "choose", "explain", "probe"});
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  if (given.words.empty()) {
    throw ConfigError("topo show|order|choose|explain|probe: nothing is given");
  }
  const TopoAction& named = find_action("topo", actions(), given.words.front());
  const TopoAction& action =
      named.takes_words ? named : find_only_action("topo", actions(), given.words);
  given.words.erase(given.words.begin());
  refuse_flags_of_others("topo", action, options, arguments);
  const bool stores = action.name == "probe";
  begin_outputs({given.json, given.svg, given.output, stores ? given.network : ""});
  if (action.on_ranks != nullptr) {
    return {.alone = {}, .on_ranks = [&action, given = std::move(given)](Runtime& runtime) {
              return action.on_ranks(runtime, given);
            }};
  }
  require_single_process("topo");
  return {.alone = [&action, given = std::move(given)] { return action.alone(given); },
          .on_ranks = {}};
}

}  // namespace trireme::cli
