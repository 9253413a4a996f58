// A small fabric as ibnetdiscover tells it, and how tests say what is in a fabric.
#pragma once

#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/topology/fabric.h"

namespace trireme::testing {

// "leaf1 - n1", sorted.
inline std::set<std::string> cables(const Fabric& fabric) {
  std::set<std::string> texts;
  const auto& vertices = fabric.vertices();
  for (const Cable& cable : fabric.cables()) {
    const FabricVertex* ends[] = {&vertices[static_cast<std::size_t>(cable.a)],
                                  &vertices[static_cast<std::size_t>(cable.b)]};
    if (ends[0]->level < ends[1]->level) std::swap(ends[0], ends[1]);
    texts.insert(fmt::format("{} - {}", ends[0]->name, ends[1]->name));
  }
  return texts;
}

// Two leaves, two hosts, of which one has two adapters; both leaves hang on a spine.
inline const std::string kDump = R"(#
# Topology file: generated
vendid=0x0
switchguid=0xaa01(aa01)
Switch	4 "S-000000000000aa01"		# "leaf1" base port 0 lid 2 lmc 0
[1]	"H-000000000000bb00"[1](bb01) 		# "host1 mlx5_0" lid 1 4xHDR
[2]	"S-000000000000aa03"[1]		# "spine1" lid 3 4xNDR
[3]	"S-000000000000aa03"[3]		# "spine1" lid 3 4xNDR

switchguid=0xaa02(aa02)
Switch	4 "S-000000000000aa02"		# "leaf1" base port 0 lid 4 lmc 0
[1]	"H-000000000000cc00"[1](cc01) 		# "host2 mlx5_0" lid 5 4xHDR
[2]	"S-000000000000aa03"[2]		# "spine1" lid 3 4xNDR
[4]	"H-000000000000dd00"[1](dd01) 		# "host2 mlx5_1" lid 6 1xEDR

switchguid=0xaa03(aa03)
Switch	4 "S-000000000000aa03"		# "spine1" base port 0 lid 3 lmc 0
[1]	"S-000000000000aa01"[2]		# "leaf1" lid 2 4xNDR
[2]	"S-000000000000aa02"[2]		# "leaf1" lid 4 4xNDR
[3]	"S-000000000000aa01"[3]		# "leaf1" lid 2 4xNDR

caguid=0xbb00
Ca	1 "H-000000000000bb00"		# "host1 mlx5_0"
[1](bb01) 	"S-000000000000aa01"[1]		# lid 1 lmc 0 "leaf1" lid 2 4xHDR

caguid=0xcc00
Ca	1 "H-000000000000cc00"		# "host2 mlx5_0"
[1](cc01) 	"S-000000000000aa02"[1]		# lid 5 lmc 0 "leaf1" lid 4 4xHDR

caguid=0xdd00
Ca	1 "H-000000000000dd00"		# "host2 mlx5_1"
[1](dd01) 	"S-000000000000aa02"[4]		# lid 6 lmc 0 "leaf1" lid 4 1xEDR
)";

}  // namespace trireme::testing
