#include "trireme/nn/trained.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/nn/declared.h"

namespace trireme::nn {

int TrainedParameters::first_block() const {
  const auto first = std::ranges::find_if(elements, [](std::int64_t count) { return count > 0; });
  return first == elements.end() ? 0 : static_cast<int>(first - elements.begin());
}

std::int64_t TrainedParameters::total() const {
  return std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
}

TrainedParameters trained_parameters(const ModelPlan& plan, const NamePatterns& frozen) {
  TrainedParameters trained{.frozen = frozen, .elements = {}, .frozen_names = {}};
  if (frozen.empty()) return trained;
  std::vector<ParameterSpec> all;
  for (const std::vector<ParameterSpec>& of_block : declared_by_block(plan, frozen)) {
    std::int64_t& elements = trained.elements.emplace_back(0);
    for (const ParameterSpec& parameter : of_block) {
      if (parameter.trains) elements += parameter.placement.global.elements();
      if (!parameter.trains) trained.frozen_names.push_back(parameter.name);
    }
    all.insert(all.end(), of_block.begin(), of_block.end());
  }
  refuse_patterns_without_match("optim.freeze", frozen, all);
  if (trained.total() == 0) {
    throw ConfigError(fmt::format("optim.freeze {}: takes all parameters, so nothing would train",
                                  shown(fmt::format("{}", fmt::join(frozen.patterns(), ",")))));
  }
  return trained;
}

}  // namespace trireme::nn
