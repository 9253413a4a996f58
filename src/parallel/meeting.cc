#include "trireme/parallel/meeting.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/exact_sum.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"
#include "trireme/tensor/copy.h"

namespace trireme::parallel {
namespace {

Communicator& copies_of(const Stage& stage) {
  return stage.grid().comm(stage.sharded() ? Axes(Axis::kReplicate) : kDataAxes);
}

ops::Context with_own_state(ops::Context ctx) {
  ctx.step_state = ops::make_step_state(*ctx.allocator, ctx.stream);
  return ctx;
}

// Waits for the stream.
template <class T>
T first_of(const ops::Context& ctx, const Tensor& tensor) {
  const Tensor host = ctx.allocate_host({1}, tensor.dtype(), MemoryUse::kWorkspace);
  copy(tensor.flat_range(0, 1), host, ctx.stream);
  if (ctx.device.kind != DeviceKind::kCpu) ctx.stream.synchronize();
  return host.data<T>()[0];
}

}  // namespace

Meeting::Meeting(ops::Context& ctx, TrainerStep& step, Communicator& islands,
                 const MeetingRule& rule)
    : ctx_(ctx),
      outer_ctx_(with_own_state(ctx)),
      step_(step),
      islands_(islands),
      copies_(copies_of(step.stage())),
      rule_(rule),
      limbs_(ctx.allocate({kExactLimbs}, DType::kI64, MemoryUse::kWorkspace)),
      squares_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)) {
  for (const nn::FlatGroup* group : step.stage().trained_groups()) {
    const Shape shard = {group->sharding().shard_extent()};
    Outer& made = outer_.emplace_back(Outer{group, {}, {}});
    made.weights = ctx.allocate(shard, DType::kF32, MemoryUse::kOptimizer);
    if (rule.momentum != 0.0f) {
      made.momentum = ctx.allocate(shard, DType::kF32, MemoryUse::kOptimizer);
    }
  }
  form_fragments(rule.fragments);
  begin();
}

void Meeting::begin() {
  for (const Outer& outer : outer_) {
    ops::cast(ctx_, outer.group->values(), outer.weights);
    if (outer.momentum.defined()) ops::fill(ctx_, outer.momentum, 0.0f);
  }
}

// The fragment of each group of outer_. A group that several stages share belongs to the first one, on all of them.
std::vector<int> Meeting::fragments_of_groups(int fragments) const {
  const Stage& stage = step_.stage();
  const int blocks = stage.bounds().back();
  std::map<const nn::FlatGroup*, int> first_blocks;
  for (int chunk = 0; chunk < stage.layout().chunks; ++chunk) {
    for (std::size_t i = 0; i < stage.blocks(chunk).size(); ++i) {
      for (const nn::FlatGroup* group : stage.used_by(chunk, i, i + 1)) {
        const int block = group->shared() ? 0 : stage.first_block(chunk) + static_cast<int>(i);
        const auto [known, fresh] = first_blocks.try_emplace(group, block);
        if (!fresh) known->second = std::min(known->second, block);
      }
    }
  }
  std::vector<int> of_groups;
  for (const Outer& outer : outer_) {
    of_groups.push_back(
        static_cast<int>(std::int64_t{first_blocks.at(outer.group)} * fragments / blocks));
  }
  return of_groups;
}

void Meeting::form_fragments(int fragments) {
  TRIREME_CHECK(fragments >= 1 && fragments <= step_.stage().bounds().back(),
                "there are as many fragments as blocks at most");
  fragments_.resize(static_cast<std::size_t>(fragments));
  const std::vector<int> of_groups = fragments_of_groups(fragments);
  for (std::size_t i = 0; i < of_groups.size(); ++i) {
    fragments_[static_cast<std::size_t>(of_groups[i])].groups.push_back(i);
  }
  const std::int64_t states = step_.stage().states().elements();
  for (Fragment& fragment : fragments_) {
    std::int64_t elements = 0;
    for (const std::size_t i : fragment.groups) elements += outer_[i].weights.elements();
    const nn::Sharding parts(elements, copies_.size(), copies_.rank());
    fragment.sum = allocate_carried({&islands_, &copies_}, *ctx_.allocator, ctx_.stream,
                                    {parts.extent()}, DType::kF32, MemoryUse::kOptimizer);
    const bool last = &fragment == &fragments_.back();
    fragment.numbers =
        allocate_carried({&islands_}, *ctx_.allocator, ctx_.stream, {1 + (last ? states : 0)},
                         DType::kF32, MemoryUse::kOptimizer);
  }
}

// Collective over the grid.
bool Meeting::is_finite(const Tensor& sum) {
  ops::fill(ctx_, limbs_, 0.0f);
  ops::add_sum_of_squares(ctx_, sum, 0, limbs_);
  ops::round_exact_sum(ctx_, limbs_, squares_);
  const bool finite = std::isfinite(first_of<double>(ctx_, squares_));
  return step_.stage().grid().world().agree(finite);
}

// What this copy sends of a tensor that all copies hold.
Tensor Meeting::part_of_copy(const Tensor& sum) const {
  const std::int64_t each = sum.elements() / copies_.size();
  return sum.flat_range(each * copies_.rank(), each * (copies_.rank() + 1));
}

std::vector<Tensor> Meeting::states() const {
  std::vector<Tensor> all;
  for (const nn::State* state : step_.stage().states().states()) {
    all.push_back(state->value().reshape({state->value().elements()}));
  }
  return all;
}

bool Meeting::start(int number, std::int64_t targets) {
  Fragment& fragment = fragments_.at(static_cast<std::size_t>(number));
  std::int64_t at = 0;
  for (const std::size_t i : fragment.groups) {
    const Outer& outer = outer_[i];
    const Tensor learned = fragment.sum.flat_range(at, at + outer.weights.elements());
    ops::cast(ctx_, outer.weights, learned);
    ops::add_scaled(ctx_, outer.group->values(), -1.0f, learned);
    at += outer.weights.elements();
  }
  ops::fill(ctx_, fragment.sum.flat_range(at, fragment.sum.elements()), 0.0f);
  const bool counts = is_finite(fragment.sum);
  const float weight = counts ? static_cast<float>(targets) : 0.0f;
  if (counts) {
    ops::scale(ctx_, fragment.sum, weight);
  } else {
    ops::fill(ctx_, fragment.sum, 0.0f);  // zero times NaN is NaN
  }
  ops::fill(ctx_, fragment.numbers, weight);
  std::int64_t next = 1;
  for (const Tensor& state : fragment.numbers.elements() > 1 ? states() : Tensors()) {
    const Tensor place = fragment.numbers.flat_range(next, next + state.elements());
    if (counts) ops::cast(ctx_, state, place);
    ops::scale(ctx_, place, weight);
    next += state.elements();
  }
  fragment.counts = islands_.all_reduce(ctx_.stream, fragment.numbers, ReduceOp::kSum);
  fragment.sums = islands_.all_reduce(ctx_.stream, part_of_copy(fragment.sum), ReduceOp::kSum);
  return counts;
}

double Meeting::finish(int number) {
  Fragment& fragment = fragments_.at(static_cast<std::size_t>(number));
  fragment.counts.wait_on(ctx_.stream);
  fragment.sums.wait_on(ctx_.stream);
  copies_.all_gather(ctx_.stream, part_of_copy(fragment.sum), fragment.sum).wait_on(ctx_.stream);
  const float targets = first_of<float>(ctx_, fragment.numbers);
  take_step(fragment, targets);
  if (targets > 0.0f) take_states(fragment, targets);
  step_.values_changed();
  return double{targets};
}

void Meeting::take_step(const Fragment& fragment, float targets) {
  const bool counts = targets > 0.0f;
  ops::write_step_state(outer_ctx_, {.learning_rate = 1.0f,
                                     .gradient_scale = counts ? 1.0f / targets : 1.0f,
                                     .finite = counts ? 1 : 0});
  const ops::Sgd rule{
      .momentum = rule_.momentum, .nesterov = rule_.momentum != 0.0f, .rate = rule_.rate};
  std::int64_t at = 0;
  for (const std::size_t i : fragment.groups) {
    const Outer& outer = outer_[i];
    const Tensor learned = fragment.sum.flat_range(at, at + outer.weights.elements());
    ops::sgd_step(outer_ctx_, rule, outer.weights, learned, outer.momentum, outer.weights);
    const Tensor& values = outer.group->values();
    if (rule_.mix == 0.0f) {
      ops::cast(ctx_, outer.weights, values);
    } else {
      ops::scale(ctx_, values, rule_.mix);
      ops::add_scaled(ctx_, outer.weights, 1.0f - rule_.mix, values);
    }
    at += outer.weights.elements();
  }
}

void Meeting::take_states(const Fragment& fragment, float targets) {
  std::int64_t next = 1;
  for (const Tensor& state : fragment.numbers.elements() > 1 ? states() : Tensors()) {
    ops::cast(ctx_, fragment.numbers.flat_range(next, next + state.elements()), state);
    ops::scale(ctx_, state, 1.0f / targets);
    next += state.elements();
  }
}

}  // namespace trireme::parallel
