#include "trireme/train/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "trireme/base/log.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/comm/launcher.h"

#include "cli/commands.h"
#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr double kSecondsForANode = 120.0;  // to look at itself

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

// Without MPI: each node prints its own text.
ExitStatus examine_each() {
  if (!speaks_for_its_node()) return ExitStatus::kDone;
  const NodeFindings found = examine_this_node();
  print_text(doctor_text(found.node, found.findings));
  return status_of(has_problem(found.findings));
}

// Collective. Measures the network, and prints what that finds before it adds it to the nodes'
// findings, on rank 0.
void examine_network(Runtime& runtime, std::vector<NodeFindings>& nodes) {
  std::vector<std::string> remarks;  // a probe says them; here nothing depends on them
  const Probe probe =
      probe_network(runtime.world(), blocks_by_slurm(runtime, remarks), runtime.hosts());
  if (runtime.rank() != 0) return;
  std::vector<std::string> hosts;
  for (const std::string& host : runtime.hosts()) {
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  std::vector<NodeFindings> measured = nodes;
  for (NodeFindings& node : measured) node.findings.clear();
  judge_network(measured, probe, hosts);
  print_text(doctor_network(measured, findings_between_nodes(probe)));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::ranges::move(measured[i].findings, std::back_inserter(nodes[i].findings));
  }
}

// One text for all nodes.
ExitStatus examine_together(Runtime& runtime) {
  runtime.set_timeout(kSecondsForANode);
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
  compare_ports(nodes);
  // Before the network is measured, which may hang where it does not work.
  if (nodes.size() == 1) print_text(doctor_text(nodes[0].node, nodes[0].findings));
  if (nodes.size() > 1) print_text(doctor_findings(nodes));
  if (runtime.nodes() > 1) examine_network(runtime, nodes);
  if (nodes.size() > 1) print_text(doctor_verdict(nodes));
  for (const NodeFindings& node : nodes) problem = problem || has_problem(node.findings);
  return status_of(runtime.world().all_reduce_host(std::int64_t{problem}, ReduceOp::kMax) != 0);
}

}  // namespace

Work parse_doctor(const Arguments& arguments) {
  Options options("trireme doctor [--each]");
  bool each = false;
  options.add("each", each, "",
              "if a launcher has started several processes: each node prints a text of its own, "
              "without MPI");
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  if (!each && processes_can_meet()) return {.alone = {}, .on_ranks = examine_together};
  return {.alone = examine_each, .on_ranks = {}};
}

}  // namespace trireme::cli
