// A fabric as JSON, as `trireme topo show --json` writes it; src/topology/README.md describes it.
#pragma once

#include "trireme/base/json.h"
#include "trireme/topology/fabric.h"

namespace trireme {

Json json_of(const Fabric& fabric);

}  // namespace trireme
