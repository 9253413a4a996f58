#include "trireme/train/checkpoint_tensors.h"

#include <deque>

#include <fmt/format.h>

namespace trireme {

std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only) {
  std::vector<TensorSlice> slices;
  const auto add = [&](const std::string& name, const Tensor& elements,
                       const nn::FlatGroup::Part& part) {
    const nn::Placement& placement = part.parameter->placement();
    for (const nn::Slab& slab : nn::slabs_of(placement, part.elements)) {
      const std::int64_t begin = slab.at - part.elements.begin;
      slices.push_back(
          {name, placement.global, slab.start, slab.extent, std::nullopt,
           elements.flat_range(begin, begin + slab.local.elements()).reshape(slab.local),
           stage.stream()});
    }
  };
  const auto written =
      nn::written_parts(stage.groups(), stage.grid().shape(), stage.grid().index(kAllAxes));
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    for (const nn::FlatGroup::Part& part : owned_only ? written[i] : group.parts()) {
      const std::string& name = part.parameter->name();
      add("parameters/" + name, nn::FlatGroup::view(group.values(), part), part);
      if (optimizer == nullptr) continue;
      for (const auto& [state, elements] : optimizer->states(i, part)) {
        add(fmt::format("optimizer/{}/{}", name, state), elements, part);
      }
    }
  }
  // They are small, so one rank of those that hold them writes them.
  const ProcessGrid& grid = stage.grid();
  const parallel::ResidentGroup states = stage.residence_of_states();
  const nn::Residence& held = states.members.front();
  if (owned_only && held.copy(grid.shape(), grid.index(kAllAxes), kAllAxes) != 0) return slices;
  for (const nn::State* state : stage.states().states()) {
    slices.push_back(TensorSlice::whole("state/" + state->name(), state->value()));
    slices.back().stream = stage.stream();
  }
  return slices;
}

void read_checkpoint(ops::Context& ctx, const Checkpoint& checkpoint, parallel::Stage& stage,
                     std::span<const TensorSlice> slices, std::set<std::string>* rounded) {
  const ProcessGrid& grid = stage.grid();
  std::vector<TensorSlice> wanted(slices.begin(), slices.end());
  std::deque<bool> changed(wanted.size(), false);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].rounded = &changed[i];
  if (stage.sharded()) {
    checkpoint.read(grid.world(), wanted);  // the ranks of the data dimension want different parts
  } else {
    checkpoint.read({grid.world(), grid.comm(kModelAxes), &grid.comm(kDataAxes)}, wanted);
  }
  stage.refresh_weights(ctx);
  if (!rounded) return;
  const auto name_of_parameter = [](const TensorSlice& slice) {
    return slice.name.substr(slice.name.find('/') + 1);
  };
  for (const TensorSlice& slice : wanted) rounded->erase(name_of_parameter(slice));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (changed[i]) rounded->insert(name_of_parameter(wanted[i]));
  }
}

std::vector<TensorSlice> step_state_slices(ops::StepState& state, bool loss_scale) {
  std::vector<TensorSlice> slices;
  const auto add = [&slices](std::string name, auto& value) {
    slices.push_back(
        TensorSlice::whole("state/" + std::move(name), Tensor::wrap(std::span(&value, 1))));
  };
  add("updates", state.updates);
  if (!loss_scale) return slices;
  add("loss_scale", state.loss_scale);
  add("loss_scale_good_steps", state.good_steps);
  return slices;
}

}  // namespace trireme
