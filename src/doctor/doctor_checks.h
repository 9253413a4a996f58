// The parts of diagnose().
#pragma once

#include <string>
#include <vector>

#include "trireme/doctor/doctor.h"

namespace trireme::doctor {

// Messages that have links to themselves reach more than this share of their rate.
inline constexpr double kReached = 0.5;

bool works(const LocalPort& port);
std::string name_of_port(const LocalPort& port);  // "port mlx5_0/1"
std::string state_of(const LocalPort& port);      // "DOWN (Polling)"

void check_node(const NodeFacts& facts, std::vector<Finding>& findings);
void check_ports(const NodeFacts& facts, std::vector<Finding>& findings);
void check_gpus(const NodeFacts& facts, std::vector<Finding>& findings);

}  // namespace trireme::doctor
