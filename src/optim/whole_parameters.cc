#include "optim/whole_parameters.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ops/elementwise.h"

#include "optim/whole_matrices.h"

namespace trireme::optim {

std::int64_t WholeParameters::Member::line_count() const {
  return lines == nullptr ? 0 : whole.rows.elements() + whole.columns.elements();
}

WholeParameters::WholeParameters(ops::Context& ctx, const ProcessGrid& grid,
                                 const std::vector<Wanted>& wanted)
    : sums_(grid, "lengths") {
  const auto make = [&](std::int64_t n, DType dtype) {
    const Tensor zero = ctx.allocate({n}, dtype, MemoryUse::kOptimizer);
    ops::fill(ctx, zero, 0.0f);
    return zero;
  };
  const auto wants_lengths = [](const Wanted& one) { return one.rule->needs_lengths(); };
  const auto lengths = std::ranges::count_if(wanted, wants_lengths);
  if (lengths > 0) squares_ = make(2 * lengths, DType::kF64);
  std::int64_t next = 0;
  for (const Wanted& one : wanted) {
    const nn::Placement& placement = one.parameter->placement();
    Member& member = members_.emplace_back();
    member.parameter = one.parameter;
    member.lines = one.rule->lines(placement.global);
    member.whole.elements = placement.global.elements();
    if (wants_lengths(one)) {
      member.whole.squares = squares_.flat_range(next, next + 2);
      next += 2;
    }
    if (member.lines == nullptr) continue;
    const Shape matrix = as_matrix(placement).global;
    member.whole.rows = make(matrix[0], DType::kF32);
    member.whole.columns = make(matrix[1], DType::kF32);
    member.whole.mean = make(1, DType::kF32);
  }
}

const WholeParameter& WholeParameters::hold(const nn::Parameter& parameter, const FlatShard& shard,
                                            std::int64_t first) {
  while (held_ < members_.size() && members_[held_].parameter != &parameter) ++held_;
  TRIREME_CHECK(held_ < members_.size(), "parameters are held in their order");
  Member& member = members_[held_++];
  member.shard = shard;
  member.first = first;
  const std::int64_t count = parameter.placement().local.elements();
  const std::int64_t begin = std::min(first - parameter.offset_in_group(), count);
  const FlatRange elements{begin, std::min(begin + shard.master.elements(), count)};
  if (member.lines == nullptr || elements.size() == 0) return member.whole;
  for (const nn::Slab& slab : nn::slabs_of(as_matrix(parameter.placement()), elements)) {
    member.whole.boxes.push_back({.box = {.row = slab.start[0],
                                          .column = slab.start[1],
                                          .rows = slab.extent[0],
                                          .columns = slab.extent[1],
                                          .stride = slab.local[1]},
                                  .at = slab.at - elements.begin});
  }
  return member.whole;
}

Tensor WholeParameters::make_sums(ops::Context& ctx) const {
  std::int64_t lines = 0;
  for (const Member& member : members_) lines += member.line_count();
  if (lines == 0) return {};
  const Tensor sums = ctx.allocate({2 * lines}, DType::kF64, MemoryUse::kWorkspace);
  ops::fill(ctx, sums, 0.0f);
  return sums;
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
    if (!sums_.counts(*member.parameter)) continue;
    for (const WholeParameter::Box& part : member.whole.boxes) {
      const std::int64_t end = part.at + part.box.rows * part.box.stride;
      ops::add_squares_of_lines(ctx, part.box, member.shard.gradient.flat_range(part.at, end),
                                member.whole.rows.elements(), of_member);
    }
  }
  sums_.add_up(ctx, sums);
  at = 0;
  for (const Member& member : members_) {
    const Tensor of_member = sums_of_next(member);
    if (member.lines != nullptr) member.lines->average(ctx, of_member, member.whole);
  }
}

void WholeParameters::take_lengths(ops::Context& ctx) const {
  if (!squares_.defined()) return;
  std::vector<ParameterSums::Part> parts;
  std::int64_t number = 0;
  for (const Member& member : members_) {
    if (!member.whole.squares.defined()) continue;
    for (const Tensor& x : {member.shard.master, member.shard.gradient}) {
      if (x.defined()) parts.push_back({member.parameter, x, member.first, number});
      ++number;
    }
  }
  sums_.take_squares(ctx, parts, squares_);
}

void WholeParameters::connect(ops::Context& ctx) const {
  const Tensor sums = make_sums(ctx);
  if (sums.defined()) sums_.add_up(ctx, sums);
  if (squares_.defined()) sums_.take_squares(ctx, {}, squares_);
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
