// Texts that are hard on the readers of topology: what once failed, and depth and loops that would.
#include "fabric_fuzz.h"

namespace trireme::fabric_fuzz {

std::vector<Failed> corpus() {
  return {
      {"yaml", std::string(100'000, '[')},
      {"yaml", "- topology: &a [*a]\n  tree: {switches: [*a]}\n"},
      {"rates", std::string(100'000, '[')},
      {"names", "n[1-999999999][1-999999999]"},
      {"dump", "Switch\t1 \"S-1\"\t# \"a\"\n[1]\t\"S-1\"[1]\t# \"a\" lid 1 4xHDR\n"},
      {"slurm", "SwitchName=a Nodes=" + std::string(4000, 'B') + "[1-99999]\n"},
      {"slurm", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n"},
      {"sysfs", "cycle\nmlx5_0/ports/cycle\nmlx5_0/cycle\n"},
      {"sysfs", "mlx5_0/ports/1/rate/rate 1\nmlx5_0 a file\n"},
      // hwloc crashes over it.
      {"hwloc",
       "<?xml \n<topologyversion=\"2.0><object =\"\"=\"\"=\"\"cpuset=\"\"=\"\"nodeset=\"\"><object "
       "type=\"NUMAN\"=\"\"cpuset=\"\"nodeset=\"\"><object >"},
      {"order", "9223372036854775808\n"},
      {"nccl", "trireme-nccl-table 1\ncommunicator 18446744073709551616 1\n"},
  };
}

}  // namespace trireme::fabric_fuzz
