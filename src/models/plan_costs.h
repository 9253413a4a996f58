// What a model costs, as its blocks tell: no family counts by hand.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/nn/block.h"

namespace trireme::models {

// A field (nn/fields.h) of a micro-batch of one sample.
struct SampleField {
  std::string_view name;
  Shape shape;
  DType dtype;
};

// Sets the costs, the parameters and the states of the plan and of its blocks, whose other members
// are set. Builds the first block of each kind on a dry rank of its own and runs its forward on one
// sample with these fields. So neither the number of layers nor their size matters, and a plan
// takes less than a millisecond.
void count_costs(nn::ModelPlan& plan, const std::vector<SampleField>& sample);

}  // namespace trireme::models
