// The family `resnet` as the registry sees it.
#pragma once

#include "trireme/models/family.h"

namespace trireme::models {

const Family& resnet_family();

}  // namespace trireme::models
