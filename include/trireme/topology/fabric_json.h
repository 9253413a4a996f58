// A fabric as JSON, as `trireme topo show --json` writes it; src/topology/README.md describes it.
#pragma once

#include "trireme/base/json.h"
#include "trireme/topology/fabric.h"

namespace trireme {

Json json_of(const Fabric& fabric);
// Reads it back: vertices and cables, without remarks. Throws JsonError if it is not of that form.
Fabric fabric_from_json(const Json& json);

}  // namespace trireme
