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

constexpr std::int64_t kUnit = nn::Sharding::kUnit;

Communicator& copies_of(const Stage& stage) {
  return stage.grid().comm(stage.sharded() ? Axes(Axis::kReplicate) : kDataAxes);
}

// Undefined where the tensor is.
Tensor part_of(const Tensor& flat, const FlatRange& elements) {
  return flat.defined() ? flat.flat_range(elements.begin, elements.end) : Tensor();
}

ops::Context with_own_state(ops::Context ctx) {
  ctx.step_state = ops::make_step_state(ctx);
  return ctx;
}

// Waits for the stream. Dry tensors have no contents; it is 1 then.
template <class T>
T first_of(const ops::Context& ctx, const Tensor& tensor) {
  if (ctx.dry) return T{1};
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
    Outer& made = outer_.emplace_back(Outer{group, {}, {}, 0, {}});
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
    ops::cast(ctx_, outer.group->read_values(ctx_), outer.weights);
    if (outer.momentum.defined()) ops::fill(ctx_, outer.momentum, 0.0f);
  }
}

// The fragment of each group of outer_. A group that several stages share is of the first one, on
// all of them.
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
    outer_[i].fragment = of_groups[i];
    at(of_groups[i]).groups.push_back(i);
  }
  const std::int64_t states = step_.stage().states().elements();
  for (Fragment& fragment : fragments_) {
    std::int64_t end = 0;  // of the units so far
    for (const std::size_t i : fragment.groups) {
      for (const nn::FlatGroup::Part& part : outer_[i].group->parts()) {
        const FlatRange in_shard{part.at, part.at + part.elements.size()};
        const std::int64_t begin = end + in_shard.begin % kUnit;
        fragment.pieces.push_back({i, in_shard, {begin, begin + in_shard.size()}});
        end = (begin + in_shard.size() + kUnit - 1) / kUnit * kUnit;
      }
    }
    const nn::Sharding parts(end, copies_.size(), copies_.rank());
    fragment.sum = allocate_carried({&islands_, &copies_}, *ctx_.allocator, ctx_.stream,
                                    {parts.extent()}, DType::kF32, MemoryUse::kOptimizer);
    for (const Piece& piece : fragment.pieces) {
      outer_[piece.outer].arriving.push_back(part_of(fragment.sum, piece.in_sum));
    }
    fragment.exchange = std::make_unique<CompressedSum>(
        ctx_, islands_, part_of_copy(fragment.sum).elements(), rule_.bits);
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

Tensors Meeting::states() const {
  Tensors all;
  for (const nn::State* state : step_.stage().states().states()) {
    all.push_back(state->value().reshape({state->value().elements()}));
  }
  return all;
}

bool Meeting::start(int number, std::int64_t targets) {
  Fragment& fragment = at(number);
  TRIREME_CHECK(!fragment.under_way, "a fragment meets again when its last meeting has ended");
  ops::fill(ctx_, fragment.sum, 0.0f);  // with the padding
  for (const Piece& piece : fragment.pieces) {
    const Outer& outer = outer_[piece.outer];
    const Tensor learned = part_of(fragment.sum, piece.in_sum);
    ops::cast(ctx_, part_of(outer.weights, piece.in_shard), learned);
    ops::add_scaled(ctx_, outer.group->read_values(ctx_, piece.in_shard), -1.0f, learned);
  }
  const bool counts = is_finite(fragment.sum);
  const float own = counts ? static_cast<float>(targets) : 0.0f;
  add_up_numbers(fragment, own);
  if (own == 0.0f) ops::fill(ctx_, fragment.sum, 0.0f);  // zero times NaN is NaN
  fragment.exchange->start(ctx_, part_of_copy(fragment.sum),
                           own == 0.0f ? 1.0f : own / fragment.targets);
  fragment.under_way = true;
  fragment.turned = fragment.arrived = false;
  return counts;
}

void Meeting::turn(int number) {
  Fragment& fragment = at(number);
  if (!fragment.under_way || fragment.turned || fragment.arrived) return;
  fragment.exchange->turn(ctx_);
  fragment.turned = true;
}

void Meeting::add_up_numbers(Fragment& fragment, float targets) {
  const Tensor& numbers = fragment.numbers;
  const Tensors states = numbers.elements() > 1 ? this->states() : Tensors();
  ops::fill(ctx_, numbers, targets);
  const auto for_each_state = [&](const auto& visit) {
    std::int64_t begin = 1;
    for (const Tensor& state : states) {
      visit(state, numbers.flat_range(begin, begin + state.elements()));
      begin += state.elements();
    }
  };
  for_each_state([&](const Tensor& state, const Tensor& place) {
    if (targets == 0.0f) return;
    ops::cast(ctx_, state, place);
    ops::scale(ctx_, place, targets);
  });
  islands_.all_reduce(ctx_.stream, numbers, ReduceOp::kSum).wait_on(ctx_.stream);
  fragment.targets = first_of<float>(ctx_, numbers);
  if (fragment.targets == 0.0f) return;
  for_each_state([&](const Tensor& state, const Tensor& place) {
    ops::scale(ctx_, place, 1.0f / fragment.targets);
    ops::cast(ctx_, place, state);
  });
}

void Meeting::arrive(int number) {
  Fragment& fragment = at(number);
  TRIREME_CHECK(fragment.under_way, "no meeting of the fragment has begun");
  if (fragment.arrived) return;
  fragment.exchange->finish(ctx_);
  copies_.all_gather(ctx_.stream, part_of_copy(fragment.sum), fragment.sum).wait_on(ctx_.stream);
  fragment.arrived = true;
}

void Meeting::resume(int number, double targets) {
  Fragment& fragment = at(number);
  fragment.targets = static_cast<float>(targets);
  fragment.under_way = fragment.arrived = true;
}

void Meeting::finish(int number, float mix) {
  arrive(number);
  take_step(at(number), mix);
  at(number).under_way = false;
  step_.values_changed();
}

void Meeting::take_step(const Fragment& fragment, float mix) {
  const bool counts = fragment.targets > 0.0f;
  ops::write_step_state(outer_ctx_, {.learning_rate = 1.0f, .finite = counts ? 1 : 0});
  const ops::Sgd rule{
      .momentum = rule_.momentum, .nesterov = rule_.momentum != 0.0f, .rate = rule_.rate};
  for (const Piece& piece : fragment.pieces) {
    const Outer& outer = outer_[piece.outer];
    const Tensor weights = part_of(outer.weights, piece.in_shard);
    ops::sgd_step(outer_ctx_, rule, weights, part_of(fragment.sum, piece.in_sum),
                  part_of(outer.momentum, piece.in_shard), weights);
  }
  for (const std::size_t i : fragment.groups) {
    const Outer& outer = outer_[i];
    if (mix == 0.0f) {
      outer.group->write_values(ctx_, outer.weights);
      continue;
    }
    const Tensor values = outer.group->read_values(ctx_);
    ops::scale(ctx_, values, mix);
    ops::add_scaled(ctx_, outer.weights, 1.0f - mix, values);
    outer.group->write_values(ctx_, values);
  }
}

std::vector<Meeting::Kept> Meeting::kept() const {
  std::vector<Kept> all;
  for (const Fragment& fragment : fragments_) {
    const std::int64_t each = fragment.sum.elements() / copies_.size();
    const std::int64_t own = each * copies_.rank();
    for (const Piece& piece : fragment.pieces) {
      // `values` are of elements of the sum from `first` on.
      const auto add = [&](const Tensor& values, std::int64_t first, bool of_sum) {
        if (!values.defined()) return;
        const FlatRange both = intersection(piece.in_sum, {first, first + values.elements()});
        if (both.empty()) return;
        all.push_back({outer_[piece.outer].group,
                       piece.in_shard.begin + both.begin - piece.in_sum.begin,
                       values.flat_range(both.begin - first, both.end - first), of_sum});
      };
      add(fragment.exchange->kept_of_term(), own, false);
      for (const FlatRange& owned : fragment.exchange->owned()) {  // one at most
        add(fragment.exchange->kept_of_result(), own + owned.begin, true);
      }
    }
  }
  return all;
}

void Meeting::take_outer() {
  for (const Outer& outer : outer_) outer.group->write_values(ctx_, outer.weights);
  step_.values_changed();
}

void Meeting::exchange() {
  for (const Outer& outer : outer_) {
    const Tensor values = outer.group->read_values(ctx_);
    const Tensor kept = ctx_.allocate(values.shape(), values.dtype(), MemoryUse::kWorkspace);
    ops::cast(ctx_, values, kept);
    outer.group->write_values(ctx_, outer.weights);
    ops::cast(ctx_, kept, outer.weights);
  }
  step_.values_changed();
}

}  // namespace trireme::parallel
