// The family `bert` as the registry sees it.
#pragma once

#include "trireme/models/family.h"

namespace trireme::models {

const Family& bert_family();

}  // namespace trireme::models
