// Texts that once made a reader of topology crash, hang, or answer in several lines.
#include "fabric_fuzz.h"

namespace trireme::fabric_fuzz {

std::vector<Failed> corpus() {
  return {
      {"yaml", std::string(100'000, '[')},
      {"slurm", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n"},
  };
}

}  // namespace trireme::fabric_fuzz
