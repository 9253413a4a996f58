#include "trireme/doctor/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/log.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/comm/launcher.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/cluster_fabric.h"

#include "cli/commands.h"
#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr double kSecondsForANode = 120.0;  // to look at itself

struct DoctorArguments {
  bool each = false;
  FabricSources named;  // only dump, slurm and topology

  bool names_sources() const { return !named.empty(); }
};

// Where the flags say that the fabric is described, or else what is found. What sysfs has are facts
// of each node.
FabricSources sources_of(const DoctorArguments& given) {
  if (given.names_sources()) return given.named;
  FabricSources found = find_fabric_sources();
  found.sysfs.clear();
  return found;
}

// If there are several processes, the first one of each node reports for its node.
bool speaks_for_its_node() {
  for (const char* name : {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* index = std::getenv(name);
    if (index != nullptr && launched_tasks().count > 1) return std::string_view(index) == "0";
  }
  return launched_tasks().index == 0;
}

NodeFindings examine_this_node() {
  const NodeFacts facts = gather_node_facts(*cuda::make_runtime());
  return {facts.node, diagnose(facts), facts.ports};
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kProblem; });
}

ExitStatus status_of(bool problem) {
  return problem ? ExitStatus::kDevice : ExitStatus::kDone;
}

void print_text(std::string text) {
  text.pop_back();  // its last newline
  print_line(text);
}

void print_remarks(const std::vector<std::string>& remarks) {
  if (!remarks.empty()) print_line("");
  for (const std::string& remark : remarks) print_line("remark: " + remark);
}

// A shell that salloc has given, outside of any step, is on one node of its job.
void say_what_the_job_has() {
  const std::string job = environment("SLURM_JOB_ID"), nodes = environment("SLURM_JOB_NUM_NODES");
  if (job.empty() || nodes.empty() || nodes == "1" || launched_tasks().count > 1) return;
  print_line(fmt::format(
      "\nremark: this is one of the {} nodes of job {}; srun --mpi=pmi2 --ntasks-per-node=1 "
      "trireme doctor examines them all",
      nodes, job));
}

// Examines each node without MPI: each prints its own text.
ExitStatus examine_each(const DoctorArguments& given) {
  if (!speaks_for_its_node()) return ExitStatus::kDone;
  const Fabric fabric = read_cluster(sources_of(given), /*strict=*/given.names_sources());
  std::vector<NodeFindings> found{examine_this_node()};
  compare_with_cables(found, fabric);
  print_text(doctor_text(found[0].node, found[0].findings));
  print_remarks(fabric.remarks());
  say_what_the_job_has();
  return status_of(has_problem(found[0].findings));
}

// Collective. Measures the network, and prints what that finds before it adds it to the nodes'
// findings, on rank 0. `cables` is what is known of the cables between switches.
void examine_network(Runtime& runtime, const PlacesOfRanks& places, std::vector<Finding> cables,
                     std::vector<NodeFindings>& nodes) {
  const Probe probe = probe_network(runtime.world(), places.blocks, runtime.hosts());
  if (runtime.rank() != 0) return;
  std::vector<std::string> hosts;
  for (const std::string& host : runtime.hosts()) {
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  std::vector<NodeFindings> measured = nodes;
  for (NodeFindings& node : measured) node.findings.clear();
  judge_network(measured, probe, hosts);
  std::ranges::move(findings_between_nodes(probe), std::back_inserter(cables));
  if (places.fabric) {
    std::ranges::move(compare_uplinks(probe, places.blocks, runtime.hosts(), *places.fabric),
                      std::back_inserter(cables));
  }
  print_text(doctor_network(measured, cables));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::ranges::move(measured[i].findings, std::back_inserter(nodes[i].findings));
  }
}

// Collective. How fast each node computes, with all its ranks at once; zeros for one node.
std::vector<double> speeds_of_nodes(Runtime& runtime) {
  std::vector<double> speeds(static_cast<std::size_t>(runtime.nodes()), 0.0);
  if (runtime.nodes() == 1) return speeds;
  runtime.world().barrier().wait_host();
  speeds[static_cast<std::size_t>(runtime.node())] = measure_products();
  runtime.world().all_reduce_host(std::span<double>(speeds), ReduceOp::kSum);
  return speeds;
}

// One text for all nodes.
ExitStatus examine_together(Runtime& runtime, const DoctorArguments& given) {
  runtime.set_timeout(kSecondsForANode);
  FabricSources sources = sources_of(given);
  if (!given.names_sources()) sources.addresses = slurm_addresses(runtime);
  const PlacesOfRanks places = places_of_ranks(runtime, sources, given.names_sources());
  std::vector<std::string> mine;  // empty if another rank speaks for the node
  bool problem = false;
  if (runtime.local_rank() == 0) {
    const NodeFindings found = examine_this_node();
    problem = has_problem(found.findings);
    mine.push_back(to_json(found));
  }
  std::vector<NodeFindings> nodes;
  for (const std::vector<std::string>& lines : gather_lines(runtime.world(), mine)) {
    if (runtime.rank() == 0 && !lines.empty()) nodes.push_back(node_findings_from(lines.front()));
  }
  const std::vector<double> speeds = speeds_of_nodes(runtime);
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].products_per_second = speeds[i];
  compare_speeds(nodes);
  compare_ports(nodes);
  std::vector<Finding> cables;
  if (places.fabric) cables = compare_with_cables(nodes, *places.fabric);
  // The findings are printed before the network is measured, which may hang where it does not work.
  if (nodes.size() == 1) {
    print_text(doctor_text(nodes[0].node, nodes[0].findings));
    say_what_the_job_has();
  }
  if (nodes.size() > 1) print_text(doctor_findings(nodes));
  // A cluster that nothing describes is usual.
  if (places.fabric && !places.fabric->vertices().empty()) print_remarks(places.remarks);
  if (runtime.nodes() > 1) examine_network(runtime, places, std::move(cables), nodes);
  if (nodes.size() > 1) print_text(doctor_verdict(nodes));
  for (const NodeFindings& node : nodes) problem = problem || has_problem(node.findings);
  return status_of(runtime.world().all_reduce_host(std::int64_t{problem}, ReduceOp::kMax) != 0);
}

}  // namespace

Work parse_doctor(const Arguments& arguments) {
  Options options("trireme doctor [--KEY VALUE]...");
  DoctorArguments given;
  options.add("each", given.each, "",
              "if a launcher has started several processes: each node prints a text of its own, "
              "without MPI");
  options.add("dump", given.named.dump, "file",
              "output of ibnetdiscover, whose cables the ports are compared with; empty: the one "
              "that TRIREME_FABRIC names, if --slurm is empty too");
  options.add("slurm", given.named.slurm, "file",
              "Slurm's topology.conf or topology.yaml, or the output of scontrol show topology; "
              "empty: what is found, if --dump is empty too");
  options.paths({"dump", "slurm"});
  options.add("topology", given.named.topology, "name",
              "which topology of topology.yaml; empty: the cluster's default");
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  if (!given.each && processes_can_meet()) {
    return {.alone = {},
            .on_ranks = [given](Runtime& runtime) { return examine_together(runtime, given); }};
  }
  return {.alone = [given] { return examine_each(given); }, .on_ranks = {}};
}

}  // namespace trireme::cli
