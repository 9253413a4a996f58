#include "optim/whole_parameters.h"

#include "trireme/base/error.h"
#include "trireme/base/exact_sum.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

#include "optim/whole_matrices.h"

namespace trireme::optim {
namespace {

// The axes over which the parts of a stage's parameters lie.
constexpr Axes kParts = Axis::kShard | Axis::kTensor;

}  // namespace

WholeParameters::WholeParameters(const ProcessGrid& grid)
    : grid_(grid.shape()),
      place_(grid.index(kAllAxes)),
      comm_(grid.make({"lengths", kParts, Purpose::kState})) {}

std::int64_t WholeParameters::Member::line_count() const {
  return lines == nullptr ? 0 : whole.rows.elements() + whole.columns.elements();
}

void WholeParameters::add(ops::Context& ctx, const nn::Parameter& parameter,
                          const UpdateRule& rule) {
  const auto make = [&](std::int64_t n, DType dtype) {
    const Tensor zero = ctx.allocate({n}, dtype, MemoryUse::kOptimizer);
    ops::fill(ctx, zero, 0.0f);
    return zero;
  };
  const Shape& global = parameter.placement().global;
  Member& member = members_.emplace_back();
  member.parameter = &parameter;
  member.rule = &rule;
  member.lines = rule.lines(global);
  member.whole.elements = global.elements();
  if (rule.needs_lengths()) member.whole.squares = make(2, DType::kF64);
  if (member.lines != nullptr) {
    const Shape matrix = as_matrix(parameter.placement()).global;
    member.whole.rows = make(matrix[0], DType::kF32);
    member.whole.columns = make(matrix[1], DType::kF32);
    member.whole.mean = make(1, DType::kF32);
  }
  by_parameter_[&parameter] = &member;
}

const WholeParameter& WholeParameters::of(const nn::Parameter& parameter) const {
  return by_parameter_.at(&parameter)->whole;
}

void WholeParameters::hold(const nn::Parameter& parameter, const FlatRange& elements,
                           const FlatShard& shard, std::int64_t first) {
  Member& member = *by_parameter_.at(&parameter);
  member.shard = shard;
  member.first = first;
  if (member.lines == nullptr) return;
  for (const nn::Slab& slab : nn::slabs_of(as_matrix(parameter.placement()), elements)) {
    member.whole.boxes.push_back({.box = {.row = slab.start[0],
                                          .column = slab.start[1],
                                          .rows = slab.extent[0],
                                          .columns = slab.extent[1],
                                          .stride = slab.local[1]},
                                  .at = slab.at - elements.begin});
  }
}

bool WholeParameters::counts(const Member& member) const {
  return member.shard.master.defined() &&
         member.parameter->residence().copy(grid_, place_, kParts) == 0;
}

Tensor WholeParameters::make_sums(ops::Context& ctx) const {
  std::int64_t lines = 0;
  for (const Member& member : members_) lines += member.line_count();
  if (lines == 0) return {};
  const Tensor sums = ctx.allocate({2 * lines}, DType::kF64, MemoryUse::kWorkspace);
  ops::fill(ctx, sums, 0.0f);
  return sums;
}

Tensor WholeParameters::make_limbs(ops::Context& ctx) const {
  std::int64_t count = 0;
  for (const Member& member : members_) count += member.rule->needs_lengths() ? 2 : 0;
  if (count == 0) return {};
  const Tensor limbs = ctx.allocate({count * kExactLimbs}, DType::kI64, MemoryUse::kWorkspace);
  ops::fill(ctx, limbs, 0.0f);
  return limbs;
}

void WholeParameters::add_up(ops::Context& ctx, const Tensor& sums) const {
  comm_->all_reduce(ctx.stream, sums, ReduceOp::kSum).wait_on(ctx.stream);
}

void WholeParameters::average_lines(ops::Context& ctx) const {
  const Tensor sums = make_sums(ctx);
  if (!sums.defined()) return;
  std::int64_t at = 0;
  const auto sums_of_next = [&](const Member& member) {
    const std::int64_t begin = at, lines = member.line_count();
    at += 2 * lines;
    return sums.flat_range(begin, at).reshape({2, lines});
  };
  for (const Member& member : members_) {
    const Tensor of_member = sums_of_next(member);
    if (!counts(member)) continue;
    for (const WholeParameter::Box& part : member.whole.boxes) {
      const std::int64_t end = part.at + part.box.rows * part.box.stride;
      ops::add_squares_of_lines(ctx, part.box, member.shard.gradient.flat_range(part.at, end),
                                member.whole.rows.elements(), of_member);
    }
  }
  add_up(ctx, sums);
  at = 0;
  for (const Member& member : members_) {
    const Tensor of_member = sums_of_next(member);
    if (member.lines != nullptr) member.lines->average(ctx, of_member, member.whole);
  }
}

void WholeParameters::take_lengths(ops::Context& ctx) const {
  const Tensor limbs = make_limbs(ctx);
  if (!limbs.defined()) return;
  std::int64_t at = 0;
  for (const Member& member : members_) {
    if (!member.rule->needs_lengths()) continue;
    for (const Tensor& x : {member.shard.master, member.shard.gradient}) {
      if (counts(member)) {
        ops::add_sum_of_squares(ctx, x, member.first, limbs.flat_range(at, at + kExactLimbs));
      }
      at += kExactLimbs;
    }
  }
  add_up(ctx, limbs);
  at = 0;
  for (const Member& member : members_) {
    if (!member.rule->needs_lengths()) continue;
    ops::round_exact_sum(ctx, limbs.flat_range(at, at + 2 * kExactLimbs), member.whole.squares);
    at += 2 * kExactLimbs;
  }
}

void WholeParameters::connect(ops::Context& ctx) const {
  for (const Tensor& sums : {make_sums(ctx), make_limbs(ctx)}) {
    if (sums.defined()) add_up(ctx, sums);
  }
}

std::vector<Optimizer::WholeState> WholeParameters::states() const {
  std::vector<Optimizer::WholeState> all;
  for (const Member& member : members_) {
    if (member.lines == nullptr) continue;
    all.push_back({member.parameter, kRowAverages, member.whole.rows});
    all.push_back({member.parameter, kColumnAverages, member.whole.columns});
  }
  return all;
}

}  // namespace trireme::optim
