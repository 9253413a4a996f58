// The InfiniBand ports of a node, compared with those of the others and with what messages reach.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "trireme/topology/odd_cables.h"

#include "doctor/doctor_checks.h"

namespace trireme {
namespace {

using doctor::kReached;
using doctor::name_of_port;
using doctor::state_of;
using doctor::works;

// What the ports of one name have in common on most nodes.
struct Usual {
  std::size_t nodes = 0, working = 0;
  std::vector<std::pair<double, std::string>> rates;  // of those that work

  // The upper one of the middle values, so that half of all may be slow.
  const std::pair<double, std::string>* rate() {
    if (rates.empty()) return nullptr;
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::ranges::nth_element(rates, middle);
    return &*middle;
  }
};

double fastest_port(const NodeFindings& node) {
  double most = 0.0;
  for (const LocalPort& port : node.ports) {
    if (works(port)) most = std::max(most, port.bytes_per_second);
  }
  return most;
}

std::string gigabytes(double rate) {
  return fmt::format("{:.3g} GB/s", rate * 1e-9);
}

}  // namespace

bool doctor::works(const LocalPort& port) {
  return port.state == "ACTIVE" && port.physical_state == "LinkUp";
}

std::string doctor::name_of_port(const LocalPort& port) {
  return fmt::format("port {}/{}", port.adapter, port.number);
}

std::string doctor::state_of(const LocalPort& port) {
  return fmt::format("{} ({})", port.state.empty() ? "unknown" : port.state,
                     port.physical_state.empty() ? "unknown" : port.physical_state);
}

void doctor::check_ports(const NodeFacts& facts, std::vector<Finding>& findings) {
  for (const LocalPort& port : facts.ports) {
    if (works(port)) {
      findings.push_back({Verdict::kOk, name_of_port(port), port.rate, ""});
    } else {
      findings.push_back({Verdict::kWarning, name_of_port(port), state_of(port),
                          "see to its cable and to the subnet manager, unless it is not used"});
    }
  }
}

void compare_ports(std::vector<NodeFindings>& nodes) {
  std::map<std::string, Usual> all;
  for (const NodeFindings& node : nodes) {
    for (const LocalPort& port : node.ports) {
      Usual& usual = all[name_of_port(port)];
      ++usual.nodes;
      if (!works(port)) continue;
      ++usual.working;
      if (port.bytes_per_second > 0.0) usual.rates.emplace_back(port.bytes_per_second, port.rate);
    }
  }
  for (NodeFindings& node : nodes) {
    for (const LocalPort& port : node.ports) {
      Usual& usual = all[name_of_port(port)];
      const auto finding = std::ranges::find(node.findings, name_of_port(port), &Finding::subject);
      if (finding == node.findings.end()) continue;
      if (!works(port) && 2 * usual.working >= usual.nodes) {
        *finding = {Verdict::kProblem, name_of_port(port),
                    fmt::format("{}, but it is ACTIVE on {} of {} nodes", state_of(port),
                                usual.working, usual.nodes),
                    "see to its cable, and to its port of the switch"};
      } else if (const auto* rate = usual.rate();
                 works(port) && rate != nullptr &&
                 port.bytes_per_second < kSlowShare * rate->first) {
        *finding = {Verdict::kProblem, name_of_port(port),
                    fmt::format("{}, but other nodes have {}", port.rate, rate->second),
                    "see to its cable and its connectors: some of its lanes may be lost"};
      }
    }
  }
}

void judge_network(std::vector<NodeFindings>& nodes, const Probe& probe,
                   const std::vector<std::string>& hosts) {
  for (NodeFindings& node : nodes) {
    const auto host = std::ranges::find(hosts, node.node);
    if (host == hosts.end()) continue;
    const int number = static_cast<int>(host - hosts.begin());
    double best = 0.0;  // of its messages
    for (const MeasuredStream& stream : probe.streams) {
      if (stream.from == number || stream.to == number) best = std::max(best, stream.rate);
    }
    // Where a port is slower than its cable, that is a finding of its own.
    const double port = fastest_port(node);
    const double limit = port > 0.0 ? port : node.cable_bytes_per_second;
    std::vector<std::string> slow;
    for (const SlowLink& link : probe.slow) {
      const bool is_pair = link.from >= 0 && link.to >= 0;  // findings_between_nodes names it
      if (!link.is_host || is_pair || (link.from != number && link.to != number)) continue;
      slow.push_back(fmt::format("{} at {}; usual is {}", link.where, gigabytes(link.rate),
                                 gigabytes(link.usual)));
    }
    for (const std::string& text : slow) {
      node.findings.push_back({Verdict::kWarning, "network", text,
                               "see to its cable, its port of the switch and what else it runs"});
    }
    if (limit > 0.0 && best < kReached * limit) {
      node.findings.push_back({Verdict::kWarning, "network",
                               fmt::format("{} of the {} of its {}", gigabytes(best),
                                           gigabytes(limit), port > 0.0 ? "port" : "cable"),
                               "see that MPI uses the adapter (UCX_NET_DEVICES, UCX_TLS)"});
    } else if (slow.empty()) {
      node.findings.push_back({Verdict::kOk, "network", gigabytes(best) + " by one message", "",
                               gigabytes(best).substr(0, gigabytes(best).find(' '))});
    }
  }
}

std::vector<Finding> findings_between_nodes(const Probe& probe) {
  std::vector<Finding> findings;
  for (const SlowLink& link : probe.slow) {
    if (link.is_host && (link.from < 0 || link.to < 0)) continue;
    findings.push_back({Verdict::kWarning, "network",
                        fmt::format("{} at {}; usual is {}", link.where, gigabytes(link.rate),
                                    gigabytes(link.usual)),
                        "see to the cables on the way"});
  }
  return findings;
}

}  // namespace trireme
