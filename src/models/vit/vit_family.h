// The family `vit` as the registry sees it.
#pragma once

#include "trireme/models/family.h"

namespace trireme::models {

const Family& vit_family();

}  // namespace trireme::models
