#include "trireme/train/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "trireme/base/log.h"
#include "trireme/comm/launcher.h"

#include "cli/commands.h"

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
  return {facts.node, diagnose(facts)};
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

// Returns the texts of all ranks on rank 0, in their order, and nothing on the other ranks. Ranks
// with an empty text send nothing. Collective over world.
std::vector<std::string> gather_texts(Communicator& world, std::string mine) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  std::vector<std::int64_t> own = {static_cast<std::int64_t>(mine.size())};
  world.all_gather(Stream(), Tensor::wrap(std::span(own)), Tensor::wrap(std::span(sizes)))
      .wait_host();
  const auto bytes_of = [](std::string& text) {
    return Tensor::wrap(text.data(), {static_cast<std::int64_t>(text.size())}, DType::kU8);
  };
  std::vector<std::string> texts;
  std::vector<Transfer> transfers;
  if (world.rank() == 0) {
    for (const std::int64_t size : sizes) texts.emplace_back(static_cast<std::size_t>(size), ' ');
    texts[0] = mine;
    for (int rank = 1; rank < world.size(); ++rank) {
      std::string& text = texts[static_cast<std::size_t>(rank)];
      if (!text.empty()) {
        transfers.push_back({Transfer::Direction::kReceive, rank, bytes_of(text)});
      }
    }
  } else if (!mine.empty()) {
    transfers.push_back({Transfer::Direction::kSend, 0, bytes_of(mine)});
  }
  if (!transfers.empty()) world.exchange(Stream(), std::move(transfers)).wait_host();
  return texts;
}

// One text for all nodes.
ExitStatus examine_together(Runtime& runtime) {
  runtime.set_timeout(kSecondsForANode);
  std::string mine;
  bool problem = false;
  if (runtime.local_rank() == 0) {
    const NodeFindings found = examine_this_node();
    problem = has_problem(found.findings);
    mine = to_json(found);
  }
  std::vector<NodeFindings> nodes;
  for (const std::string& text : gather_texts(runtime.world(), mine)) {
    if (!text.empty()) nodes.push_back(node_findings_from(text));
  }
  if (nodes.size() == 1) print_text(doctor_text(nodes[0].node, nodes[0].findings));
  if (nodes.size() > 1) print_text(doctor_summary(nodes));
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
