// The parts of diagnose().
#pragma once

#include <string>
#include <vector>

#include "trireme/train/doctor.h"

namespace trireme::doctor {

// Below this share of what the others have, a port or a cable is slow. At half width it has a half.
inline constexpr double kSlowShare = 0.75;
// Messages that have links to themselves reach more than this share of their rate.
inline constexpr double kReached = 0.5;

bool works(const LocalPort& port);
std::string name_of_port(const LocalPort& port);  // "port mlx5_0/1"
std::string state_of(const LocalPort& port);      // "DOWN (Polling)"

void check_node(const NodeFacts& facts, std::vector<Finding>& findings);
void check_ports(const NodeFacts& facts, std::vector<Finding>& findings);
void check_gpus(const NodeFacts& facts, std::vector<Finding>& findings);

}  // namespace trireme::doctor
