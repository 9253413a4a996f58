#include "trireme/nn/block.h"

#include <algorithm>

namespace trireme::nn {

std::shared_ptr<Communicator> BuildContext::comm(const GroupLabel& label) {
  const auto found = std::ranges::find(made, label, [](const auto& one) { return one->label(); });
  return found != made.end() ? *found : made.emplace_back(grid.make(label));
}

std::shared_ptr<Communicator> BuildContext::replicas() {
  return comm({"data_blocks", kDataAxes, Purpose::kBlocks});
}

Parameter& BuildContext::share(ParameterSet& parameters, ParameterSpec spec) {
  Shared& known = shared[spec.name];
  if (known.first == nullptr) {
    spec.shared = true;
    spec.holders = known.holders;
    known.first = &parameters.add(std::move(spec));
    return *known.first;
  }
  if (separates_uses) return parameters.add_use(std::move(spec), *known.first);
  // Otherwise the uses on one stage add up in the order of its schedule, which the bits depend on.
  known.first->add_use();
  return *known.first;
}

}  // namespace trireme::nn
