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
      {"slurm", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n"},
  };
}

}  // namespace trireme::fabric_fuzz
