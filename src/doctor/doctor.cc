#include "trireme/doctor/doctor.h"

#include <algorithm>

#include <fmt/format.h>

#include "doctor/doctor_checks.h"

namespace trireme {

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kProblem:
      return "problem";
    case Verdict::kNotHere:
      break;
  }
  return "not here";
}

std::vector<Finding> diagnose(const NodeFacts& facts) {
  std::vector<Finding> findings;
  doctor::check_node(facts, findings);
  doctor::check_ports(facts, findings);
  doctor::check_gpus(facts, findings);
  return findings;
}

std::string doctor_text(const std::string& node, const std::vector<Finding>& findings) {
  std::string text = fmt::format("node {}\n\n", node);
  for (const Finding& finding : findings) {
    text += fmt::format("{:<10}{:<16}{}{}{}\n", name_of(finding.verdict), finding.subject,
                        finding.what, finding.remedy.empty() ? "" : "; ", finding.remedy);
  }
  const auto count = [&](Verdict verdict) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.verdict == verdict; });
  };
  const auto warnings = count(Verdict::kWarning), problems = count(Verdict::kProblem);
  return text + fmt::format("\n{} ok, {} warning{}, {} problem{}, {} not here\n",
                            count(Verdict::kOk), warnings, warnings == 1 ? "" : "s", problems,
                            problems == 1 ? "" : "s", count(Verdict::kNotHere));
}

}  // namespace trireme
