// The actions of `trireme topo`, each in a file of its own.
#pragma once

#include <string>

#include "trireme/base/exit_status.h"

namespace trireme::cli {

// The flags of all actions.
struct TopoArguments {
  std::string dump, slurm;  // files; empty: none
};

// Prints the fabric that the sources describe.
ExitStatus topo_show(const TopoArguments& given);

}  // namespace trireme::cli
