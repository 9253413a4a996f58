// What doctor says of several nodes at once.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/node_names.h"
#include "trireme/base/text.h"
#include "trireme/doctor/doctor.h"

namespace trireme {
namespace {

// A finding, and the nodes that have it.
struct Group {
  Finding finding;
  std::vector<std::string> nodes;
  std::vector<std::string> varying;  // of these nodes
};

std::string without_varying(const Finding& finding) {
  return finding.what.substr(finding.varying.size());
}

bool alike(const Finding& a, const Finding& b) {
  return a.verdict == b.verdict && a.varying.empty() == b.varying.empty() &&
         without_varying(a) == without_varying(b) && a.remedy == b.remedy;
}

// The findings on each subject. The subjects have the order in which a node tells them.
using Subjects = std::vector<std::pair<std::string, std::vector<Group>>>;

Subjects subjects_of(const std::vector<NodeFindings>& nodes) {
  Subjects subjects;
  for (const NodeFindings& node : nodes) {
    auto place = subjects.begin();  // behind the subject that this node told before
    for (const Finding& finding : node.findings) {
      auto subject = std::find_if(subjects.begin(), subjects.end(),
                                  [&](const auto& each) { return each.first == finding.subject; });
      if (subject == subjects.end()) {
        subject = subjects.insert(place, {finding.subject, {}});
      }
      place = subject + 1;
      std::vector<Group>& groups = subject->second;
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& each) { return alike(each.finding, finding); });
      if (group == groups.end()) group = groups.insert(group, {finding, {}, {}});
      group->nodes.push_back(node.node);
      group->varying.push_back(finding.varying);
    }
  }
  return subjects;
}

// "60.1 to 61.2 of 64.0 GiB available"
std::string text_of(const Group& group) {
  const auto less = [](const std::string& a, const std::string& b) {
    return std::atof(a.c_str()) < std::atof(b.c_str());
  };
  const auto [least, most] = std::minmax_element(group.varying.begin(), group.varying.end(), less);
  const Finding& finding = group.finding;
  return fmt::format("{}{}{}{}{}", *least, *least == *most ? "" : " to " + *most,
                     without_varying(finding), finding.remedy.empty() ? "" : "; ", finding.remedy);
}

std::string line_of(const Group& group, const std::string& where) {
  return fmt::format("{:<10}{:<16}{}{}\n", name_of(group.finding.verdict), group.finding.subject,
                     where, text_of(group));
}

// "on 3 nodes, n[1-3]: "
std::string where_of(const Group& group) {
  const std::string names = node_list(group.nodes);
  return group.nodes.size() == 1
             ? fmt::format("on {}: ", names)
             : fmt::format("on {}, {}: ", counted(std::ssize(group.nodes), "node"), names);
}

// A line for each finding that all nodes have alike; and for each other one, with its nodes.
std::pair<std::string, std::string> lines_of(const std::vector<NodeFindings>& nodes) {
  std::string same, different;
  for (const auto& [subject, groups] : subjects_of(nodes)) {
    if (groups.size() == 1 && groups[0].nodes.size() == nodes.size()) {
      same += line_of(groups[0], "");
      continue;
    }
    for (const Group& group : groups) different += line_of(group, where_of(group));
  }
  return {same, different};
}

// "problems on n4", or "no problems"
std::string nodes_with(const std::vector<NodeFindings>& nodes, Verdict verdict,
                       const std::string& what) {
  std::vector<std::string> names;
  for (const NodeFindings& node : nodes) {
    const bool has = std::any_of(node.findings.begin(), node.findings.end(),
                                 [&](const Finding& f) { return f.verdict == verdict; });
    if (has) names.push_back(node.node);
  }
  if (names.empty()) return "no " + what;
  if (names.size() == nodes.size()) return what + " on all nodes";
  return fmt::format("{} on {}", what, node_list(names));
}

}  // namespace

std::string doctor_findings(const std::vector<NodeFindings>& nodes) {
  std::vector<std::string> names;
  for (const NodeFindings& node : nodes) names.push_back(node.node);
  const auto [same, different] = lines_of(nodes);
  std::string text = fmt::format("{}: {}\n", counted(std::ssize(nodes), "node"), node_list(names));
  if (!same.empty()) text += fmt::format("\nthe same on all {} nodes\n{}", nodes.size(), same);
  return text + (different.empty() ? "\nnothing differs between the nodes\n"
                                   : "\nnot the same on all nodes\n" + different);
}

std::string doctor_network(const std::vector<NodeFindings>& nodes,
                           const std::vector<Finding>& between) {
  const auto [same, different] = lines_of(nodes);
  std::string text = "\nthe network between the nodes\n" + same + different;
  for (const Finding& finding : between) text += line_of({finding, {}, {finding.varying}}, "");
  return text;
}

std::string doctor_verdict(const std::vector<NodeFindings>& nodes) {
  return fmt::format("\n{}; {}\n", nodes_with(nodes, Verdict::kProblem, "problems"),
                     nodes_with(nodes, Verdict::kWarning, "warnings"));
}

std::string to_json(const NodeFindings& node) {
  Json findings = Json::array();
  for (const Finding& f : node.findings) {
    findings.push_back(Json::array(
        {static_cast<std::int64_t>(f.verdict), f.subject, f.what, f.remedy, f.varying}));
  }
  Json ports = Json::array();
  for (const LocalPort& port : node.ports) {
    ports.push_back(Json::array({port.adapter, port.number, port.state, port.physical_state,
                                 port.rate, port.bytes_per_second, std::uint64_t{port.guid}}));
  }
  return Json::object({{"node", node.node}, {"findings", findings}, {"ports", ports}}).dump();
}

NodeFindings node_findings_from(const std::string& json) {
  try {
    const Json object = Json::parse(json);
    NodeFindings node{object.at("node").text(), {}, {}};
    for (const Json& item : object.at("findings").items()) {
      node.findings.push_back({static_cast<Verdict>(item.at(std::size_t{0}).integer()),
                               item.at(1).text(), item.at(2).text(), item.at(3).text(),
                               item.at(4).text()});
    }
    for (const Json& item : object.at("ports").items()) {
      node.ports.push_back({.adapter = item.at(std::size_t{0}).text(),
                            .number = item.at(1).small_integer(),
                            .guid = item.at(6).unsigned_integer(),
                            .state = item.at(2).text(),
                            .physical_state = item.at(3).text(),
                            .link_layer = {},
                            .rate = item.at(4).text(),
                            .bytes_per_second = item.at(5).number(),
                            .subnet = {},
                            .cpus = {}});
    }
    return node;
  } catch (const JsonError& error) {
    throw InternalError(fmt::format("findings of a node: {}", error.what()));
  }
}

}  // namespace trireme
