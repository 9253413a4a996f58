#include "trireme/nn/parameter.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/ops/elementwise.h"

namespace trireme::nn {
namespace {

Tensor side_by_side(const std::vector<Parameter*>& parameters, const Tensor& flat) {
  const Parameter& first = *parameters.front();
  std::int64_t rows = 0;
  std::int64_t end = first.offset_in_group();
  for (const Parameter* parameter : parameters) {
    TRIREME_CHECK(&parameter->group() == &first.group() && parameter->offset_in_group() == end,
                  fmt::format("{} does not lie behind its neighbour", parameter->name()));
    rows += parameter->placement().local[0];
    end += parameter->placement().local.elements();
  }
  const Tensor range = flat.flat_range(first.offset_in_group(), end);
  return first.placement().local.rank() == 1
             ? range
             : range.reshape({rows, (end - first.offset_in_group()) / rows});
}

}  // namespace

Parameter& ParameterSet::add(ParameterSpec spec) {
  return *parameters_.emplace_back(std::make_unique<Parameter>(std::move(spec)));
}

Parameter& ParameterSet::add_use(ParameterSpec spec, const Parameter& first) {
  return *parameters_.emplace_back(std::make_unique<Parameter>(std::move(spec), &first));
}

void ParameterSet::keep_together(const std::vector<Parameter*>& pack) {
  if (pack.size() > 1) packs_.push_back(pack);
}

void ParameterSet::freeze(const NamePatterns& frozen) {
  for (const auto& parameter : parameters_) {
    parameter->spec_.trains = !frozen.match(parameter->name());
  }
  for (const std::vector<Parameter*>& pack : packs_) {
    const auto stays = std::ranges::find(pack, false, &Parameter::trains);
    const auto trains = std::ranges::find(pack, true, &Parameter::trains);
    if (stays == pack.end() || trains == pack.end()) continue;
    throw ConfigError(fmt::format(
        "optim.freeze takes {} but not {}: they lie together in memory, so freeze both or none",
        (*stays)->name(), (*trains)->name()));
  }
}

void ParameterSet::form_groups(const std::string& block, const StateLayout& layout) {
  // The properties that all members of a group share.
  struct Key {
    bool decay;
    bool shared;
    bool trains;
    bool operator==(const Key&) const = default;
  };
  std::vector<std::pair<Key, std::vector<Parameter*>>> members;
  for (const auto& parameter : parameters_) {
    if (parameter->first_use() != nullptr) {
      if (!parameter->trains()) continue;
      uses_apart_.push_back(std::make_unique<FlatGroup>(
          fmt::format("{}.tied", block), std::vector<Parameter*>{parameter.get()}, layout));
      continue;
    }
    const Key key{parameter->spec().decay, parameter->spec().shared, parameter->trains()};
    auto found = std::find_if(members.begin(), members.end(),
                              [&](const auto& entry) { return entry.first == key; });
    if (found == members.end()) found = members.insert(members.end(), {key, {}});
    found->second.push_back(parameter.get());
  }
  for (auto& [key, parameters] : members) {
    const char* kind = key.shared ? "tied" : key.decay ? "matrices" : "vectors";
    const char* state = key.trains ? "" : ".frozen";
    groups_.push_back(std::make_unique<FlatGroup>(fmt::format("{}.{}{}", block, kind, state),
                                                  parameters, layout));
  }
}

void Parameter::write_gradient(ops::Context& ctx) const {
  if (take_beta() == 0.0f) ops::fill(ctx, gradient_, 0.0f);
}

Tensor side_by_side_weight(const std::vector<Parameter*>& parameters) {
  return parameters.empty() ? Tensor()
                            : side_by_side(parameters, parameters.front()->group().weights());
}

Tensor side_by_side_gradient(const std::vector<Parameter*>& parameters) {
  if (parameters.empty() || !parameters.front()->trains()) return {};
  return side_by_side(parameters, parameters.front()->group().gradients());
}

float take_beta(const std::vector<Parameter*>& parameters) {
  const float beta = parameters.front()->take_beta();
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    TRIREME_CHECK(parameters[i]->take_beta() == beta,
                  parameters[i]->name() + " has other contributions than what is packed with it");
  }
  return beta;
}

}  // namespace trireme::nn
