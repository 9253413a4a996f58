// The parts of diagnose().
#pragma once

#include <vector>

#include "trireme/train/doctor.h"

namespace trireme::doctor {

void check_node(const NodeFacts& facts, std::vector<Finding>& findings);
void check_ports(const NodeFacts& facts, std::vector<Finding>& findings);
void check_gpus(const NodeFacts& facts, std::vector<Finding>& findings);

}  // namespace trireme::doctor
