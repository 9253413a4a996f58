// The tensors of a run that a checkpoint holds.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/checkpoint.h"
#include "trireme/optim/optimizer.h"
#include "trireme/parallel/meeting.h"

namespace trireme {

// Returns the parameters, the optimizer's state where `optimizer` is given, and the stage's states
// (Stage::states) as slices of a checkpoint. With `owned_only` it returns only those that this rank
// writes: each element of the model is on exactly one rank's list. All ranks that hold copies of
// parameters share in writing them; states are small, and one rank writes them.
std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only);

// Returns the outer state of islands as slices of a checkpoint: the outer weights under the names
// of the parameters, their momentum, and of fragments under way what arrives.
std::vector<TensorSlice> outer_slices(const parallel::Stage& stage,
                                      const parallel::Meeting& meeting, bool owned_only);

// Returns tensors of a group that meets as slices outer/NAME/learned of a file of their own.
// `by_part` are those of Meeting::Outer::arriving, or others like them.
std::vector<TensorSlice> learned_slices(const parallel::Stage& stage,
                                        const parallel::Meeting::Outer& outer,
                                        const Tensors& by_part, bool owned_only);

// The same of what few bits have lost of outer gradients (Meeting::kept): of the island's own under
// kept/NAME, of the mean under outer/NAME/kept.
std::vector<TensorSlice> kept_slices(const parallel::Stage& stage, const parallel::Meeting& meeting,
                                     bool owned_only);

// The same of what few bits have lost of gradients, after TrainerStep::gather_kept or before
// take_kept: gradients/NAME/kept.
std::vector<TensorSlice> kept_gradient_slices(const parallel::Stage& stage, bool owned_only);
// Whether that is the name of such a tensor.
bool is_kept_gradient(std::string_view tensor);

// Collective over the stage's grid. Fills slices of the stage's parameters, optimizer state and
// states from a checkpoint, and makes the weights from the parameters. Of the parameters that are
// read, `rounded`, where it is given, then has those that got other values on this rank, because
// their type does not have the ones that were read (frozen ones in bf16).
void read_checkpoint(ops::Context& ctx, const Checkpoint& checkpoint, parallel::Stage& stage,
                     std::span<const TensorSlice> slices, std::set<std::string>* rounded = nullptr);

// Lets slices of parameters and states have the averages of these (optim.average) instead, but for
// frozen parameters, which have none. Throws CheckpointError where the checkpoint has no averages.
void take_averages(const Checkpoint& checkpoint, std::span<TensorSlice> slices);
// The name of the parameter of which the checkpoint's tensor is a state of the optimizer, averages
// included; empty: it is none.
std::string_view parameter_of_state(std::string_view tensor);
// Whether the checkpoint's tensor is an average of weights or states.
bool is_average(std::string_view tensor);
// The name of the parameter or state whose average that is.
std::string averaged_by(std::string_view tensor);

// Returns what a checkpoint keeps of `state`: the number of updates, what the optimizer's averages
// need, and with `loss_scale` the loss scaler's state. `state` must outlive the slices. It is the
// same on every rank, so one rank writes it.
std::vector<TensorSlice> step_state_slices(ops::StepState& state,
                                           const optim::OptimizerConfig& optimizer,
                                           bool loss_scale);

}  // namespace trireme
