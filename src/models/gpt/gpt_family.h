// The family `gpt` as the registry sees it.
#pragma once

#include "trireme/models/family.h"

namespace trireme::models {

const Family& gpt_family();

}  // namespace trireme::models
