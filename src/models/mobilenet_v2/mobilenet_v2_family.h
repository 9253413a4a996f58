// The family `mobilenet_v2` as the registry sees it.
#pragma once

#include "trireme/models/family.h"

namespace trireme::models {

const Family& mobilenet_v2_family();

}  // namespace trireme::models
