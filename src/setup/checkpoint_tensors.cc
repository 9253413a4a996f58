#include "trireme/setup/checkpoint_tensors.h"

#include <algorithm>
#include <deque>
#include <functional>

#include <fmt/format.h>

#include "trireme/config/optimizer_config.h"

namespace trireme {

namespace {

const std::string kParameters = "parameters/", kStates = "state/", kOptimizer = "optimizer/";
const std::string kOuter = "outer/";
const std::string kGradients = "gradients/", kKept = "/kept";
const std::string kAveragesOfStates = "state/average/";

std::string name_of_state(std::string_view parameter, std::string_view state) {
  return fmt::format("{}{}/{}", kOptimizer, parameter, state);
}

// Adds a part of a group's shard, whose elements these are.
void add_part(const parallel::Stage& stage, const std::string& name, const Tensor& elements,
              const nn::FlatGroup::Part& part, std::vector<TensorSlice>& slices) {
  const nn::Placement& placement = part.parameter->placement();
  for (const nn::Slab& slab : nn::slabs_of(placement, part.elements)) {
    const std::int64_t begin = slab.at - part.elements.begin;
    slices.push_back({name, placement.global, slab.start, slab.extent, std::nullopt,
                      elements.flat_range(begin, begin + slab.local.elements()).reshape(slab.local),
                      stage.stream()});
  }
}

// The same of a group's values, wherever they are kept.
void add_values(const parallel::Stage& stage, const std::string& name, const nn::FlatGroup& group,
                const nn::FlatGroup::Part& part, std::vector<TensorSlice>& slices) {
  if (!group.splits()) {
    return add_part(stage, name, nn::FlatGroup::view(group.values(), part), part, slices);
  }
  std::vector<TensorSlice> low;
  add_part(stage, name, nn::FlatGroup::view(group.master(), part), part, low);
  const std::size_t first = slices.size();
  add_part(stage, name, nn::FlatGroup::view(group.weight_shard(), part), part, slices);
  for (std::size_t i = 0; i < low.size(); ++i) slices[first + i].low = low[i].local;
}

void add_whole_states(const parallel::Stage& stage, const optim::Optimizer& optimizer,
                      bool owned_only, std::vector<TensorSlice>& slices) {
  const ProcessGrid& grid = stage.grid();
  const bool first_of_stage = grid.index(kAllAxes.without(Axis::kPipeline)) == 0;
  for (const auto& [parameter, name, values] : optimizer.whole_states()) {
    const int copy =
        parameter->residence().copy(grid.shape(), grid.index(kAllAxes), Axis::kPipeline);
    if (owned_only && (!first_of_stage || copy != 0)) continue;
    slices.push_back(TensorSlice::whole(name_of_state(parameter->name(), name), values));
    slices.back().stream = stage.stream();
  }
}

}  // namespace

std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only) {
  std::vector<TensorSlice> slices;
  const auto written =
      nn::written_parts(stage.groups(), stage.grid().shape(), stage.grid().index(kAllAxes));
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    for (const nn::FlatGroup::Part& part : owned_only ? written[i] : group.parts()) {
      const std::string& name = part.parameter->name();
      add_values(stage, kParameters + name, group, part, slices);
      if (optimizer == nullptr) continue;
      for (const auto& [state, elements] : optimizer->states(i, part)) {
        add_part(stage, name_of_state(name, state), elements, part, slices);
      }
    }
  }
  // What follows is small, so one rank of those that hold it writes it.
  const ProcessGrid& grid = stage.grid();
  if (optimizer != nullptr) add_whole_states(stage, *optimizer, owned_only, slices);
  const parallel::ResidentGroup states = stage.residence_of_states();
  const nn::Residence& held = states.members.front();
  if (owned_only && held.copy(grid.shape(), grid.index(kAllAxes), kAllAxes) != 0) return slices;
  for (const nn::State* state : stage.states().states()) {
    slices.push_back(TensorSlice::whole(kStates + state->name(), state->value()));
    slices.back().stream = stage.stream();
    if (optimizer == nullptr || !state->average().defined()) continue;
    slices.push_back(TensorSlice::whole(kAveragesOfStates + state->name(), state->average()));
    slices.back().stream = stage.stream();
  }
  return slices;
}

namespace {

// The elements of a part of a group, or of a piece of one that is written here, in tensors that are
// one for each part.
Tensor elements_of(const nn::FlatGroup& group, const Tensors& by_part,
                   const nn::FlatGroup::Part& piece) {
  const auto whole =
      std::ranges::find(group.parts(), piece.parameter, &nn::FlatGroup::Part::parameter);
  const std::int64_t begin = piece.at - whole->at;
  const std::int64_t count = piece.elements.end - piece.elements.begin;
  const auto at = static_cast<std::size_t>(whole - group.parts().begin());
  return by_part[at].flat_range(begin, begin + count);
}

// Calls `visit` with each part of a group, or each piece of one that this rank writes.
void for_parts(const parallel::Stage& stage, const nn::FlatGroup& group, bool owned_only,
               const std::function<void(const nn::FlatGroup::Part&)>& visit) {
  if (!owned_only) {
    std::ranges::for_each(group.parts(), visit);
    return;
  }
  const auto written =
      nn::written_parts(stage.groups(), stage.grid().shape(), stage.grid().index(kAllAxes));
  const auto at = std::ranges::find(stage.groups(), &group) - stage.groups().begin();
  std::ranges::for_each(written[static_cast<std::size_t>(at)], visit);
}

}  // namespace

std::vector<TensorSlice> outer_slices(const parallel::Stage& stage,
                                      const parallel::Meeting& meeting, bool owned_only) {
  std::vector<TensorSlice> slices;
  for (const parallel::Meeting::Outer& outer : meeting.outer()) {
    for_parts(stage, *outer.group, owned_only, [&](const nn::FlatGroup::Part& part) {
      const std::string& name = part.parameter->name();
      const auto add = [&](const std::string& called, const Tensor& elements) {
        add_part(stage, called, elements, part, slices);
      };
      add(kParameters + name, nn::FlatGroup::view(outer.weights, part));
      if (outer.momentum.defined()) {
        add(kOuter + name + "/momentum", nn::FlatGroup::view(outer.momentum, part));
      }
      if (meeting.under_way(outer.fragment)) {
        add(kOuter + name + "/arriving", elements_of(*outer.group, outer.arriving, part));
      }
    });
  }
  return slices;
}

std::vector<TensorSlice> learned_slices(const parallel::Stage& stage,
                                        const parallel::Meeting::Outer& outer,
                                        const Tensors& by_part, bool owned_only) {
  std::vector<TensorSlice> slices;
  for_parts(stage, *outer.group, owned_only, [&](const nn::FlatGroup::Part& part) {
    add_part(stage, kOuter + part.parameter->name() + "/learned",
             elements_of(*outer.group, by_part, part), part, slices);
  });
  return slices;
}

std::vector<TensorSlice> kept_slices(const parallel::Stage& stage, const parallel::Meeting& meeting,
                                     bool owned_only) {
  std::vector<TensorSlice> slices;
  const ProcessGrid& grid = stage.grid();
  for (const parallel::Meeting::Kept& kept : meeting.kept()) {
    const FlatRange here{kept.begin, kept.begin + kept.values.elements()};
    for (const nn::FlatGroup::Part& part : kept.group->parts()) {
      // The ranks of a replica that have a parameter keep the same of it.
      const nn::Residence& held = part.parameter->residence();
      if (owned_only && held.copy(grid.shape(), grid.index(kAllAxes), kModelAxes) != 0) continue;
      const std::int64_t count = part.elements.end - part.elements.begin;
      const FlatRange both = intersection(here, {part.at, part.at + count});
      if (both.begin >= both.end) continue;
      const std::int64_t first = part.elements.begin + both.begin - part.at;
      const std::string& name = part.parameter->name();
      add_part(stage, kept.of_sum ? kOuter + name + "/kept" : "kept/" + name,
               kept.values.flat_range(both.begin - here.begin, both.end - here.begin),
               {part.parameter, {first, first + both.end - both.begin}, both.begin}, slices);
    }
  }
  return slices;
}

std::vector<TensorSlice> kept_gradient_slices(const parallel::Stage& stage, bool owned_only) {
  std::vector<TensorSlice> slices;
  const auto written =
      nn::written_parts(stage.groups(), stage.grid().shape(), stage.grid().index(kAllAxes));
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    if (!group.trains()) continue;
    for (const nn::FlatGroup::Part& part : owned_only ? written[i] : group.parts()) {
      add_part(stage, kGradients + part.parameter->name() + kKept,
               nn::FlatGroup::view(group.gradient_shard(), part), part, slices);
    }
  }
  return slices;
}

bool is_kept_gradient(std::string_view tensor) {
  return tensor.starts_with(kGradients) && tensor.ends_with(kKept);
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

std::string_view parameter_of_state(std::string_view tensor) {
  if (!tensor.starts_with(kOptimizer)) return "";
  return tensor.substr(kOptimizer.size(), tensor.rfind('/') - kOptimizer.size());
}

bool is_average(std::string_view tensor) {
  return tensor.starts_with(kAveragesOfStates) ||
         tensor == name_of_state(parameter_of_state(tensor), optim::kWeightAverage);
}

std::string averaged_by(std::string_view tensor) {
  if (tensor.starts_with(kAveragesOfStates)) {
    return std::string(tensor.substr(kAveragesOfStates.size()));
  }
  return std::string(parameter_of_state(tensor));
}

void take_averages(const Checkpoint& checkpoint, std::span<TensorSlice> slices) {
  const auto& tensors = checkpoint.contents().tensors;
  if (std::ranges::none_of(tensors, is_average, &CheckpointTensor::name)) {
    const Config config = config_from_ini(checkpoint.info().config, checkpoint.path());
    throw CheckpointError(fmt::format(
        "{}: holds no average of the weights: its run had {}", checkpoint.path(),
        optimizer_of(config).rule_averages()
            ? "schedule_free, whose weights are an average themselves: leave --weights out"
            : "optim.average none"));
  }
  for (TensorSlice& slice : slices) {
    std::string average;
    if (slice.name.starts_with(kParameters)) {
      average = name_of_state(slice.name.substr(kParameters.size()), optim::kWeightAverage);
    } else if (slice.name.starts_with(kStates)) {
      average = kAveragesOfStates + slice.name.substr(kStates.size());
    }
    if (checkpoint.contents().find(average) != nullptr) slice.name = average;
  }
}

std::vector<TensorSlice> step_state_slices(ops::StepState& state,
                                           const optim::OptimizerConfig& optimizer,
                                           bool loss_scale) {
  std::vector<TensorSlice> slices;
  const auto add = [&slices](std::string name, auto& value) {
    slices.push_back(
        TensorSlice::whole("state/" + std::move(name), Tensor::wrap(std::span(&value, 1))));
  };
  add("updates", state.updates);
  if (optimizer.average) add("averaged", state.averaged);
  if (optimizer.rule_averages()) add("rate_squares", state.rate_squares);
  if (!loss_scale) return slices;
  add("loss_scale", state.loss_scale);
  add("loss_scale_good_steps", state.good_steps);
  return slices;
}

}  // namespace trireme
