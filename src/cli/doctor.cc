#include "trireme/train/doctor.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "trireme/base/log.h"
#include "trireme/comm/launcher.h"

#include "cli/commands.h"

namespace trireme::cli {
namespace {

// If there are several processes, the first one of each node reports for its node.
bool speaks_for_its_node() {
  for (const char* name : {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* index = std::getenv(name);
    if (index != nullptr && launched_tasks().count > 1) return std::string_view(index) == "0";
  }
  return launched_tasks().index == 0;
}

ExitStatus examine() {
  if (!speaks_for_its_node()) return ExitStatus::kDone;
  const NodeFacts facts = gather_node_facts(*cuda::make_runtime());
  const std::vector<Finding> findings = diagnose(facts);
  std::string text = doctor_text(facts.node, findings);
  text.pop_back();
  print_line(text);
  const bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kProblem;
  });
  return problem ? ExitStatus::kDevice : ExitStatus::kDone;
}

}  // namespace

Work parse_doctor(const Arguments& arguments) {
  Options options("trireme doctor");
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  return {.alone = examine, .on_ranks = {}};
}

}  // namespace trireme::cli
