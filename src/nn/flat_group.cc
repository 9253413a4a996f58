#include "trireme/nn/flat_group.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "trireme/nn/parameter.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

#include "nn/initial_values.h"

namespace trireme::nn {
namespace {

int size_of_group(const Communicator* comm) {
  return comm == nullptr ? 1 : comm->size();
}
int rank_in_group(const Communicator* comm) {
  return comm == nullptr ? 0 : comm->rank();
}

std::vector<std::int64_t> sizes_of(const std::vector<Parameter*>& parameters) {
  std::vector<std::int64_t> sizes;
  for (const Parameter* one : parameters) sizes.push_back(one->placement().local.elements());
  return sizes;
}

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

}  // namespace

GroupRanks GroupRanks::along(const ProcessGrid& grid, Axes copied, Axes sharded) {
  return {&grid.comm(copied | sharded), &grid.comm(sharded), &grid.comm(copied)};
}

FlatGroup::FlatGroup(std::string name, std::vector<Parameter*> parameters, const GroupRanks& ranks)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      ranks_(ranks),
      sharding_(sum_of(sizes_of(parameters_)), size_of_group(ranks.sharded),
                rank_in_group(ranks.sharded)) {
  std::int64_t offset = 0;
  for (Parameter* parameter : parameters_) {
    parameter->group_ = this;
    parameter->offset_ = offset;
    offset += parameter->placement().local.elements();
  }
  for (const PartOfParameter& part : parts_in(sharding_.range(), sizes_of(parameters_))) {
    const Parameter* parameter = parameters_[part.parameter];
    parts_.push_back(
        {parameter, part.elements,
         parameter->offset_in_group() + part.elements.begin - sharding_.memory().begin});
  }
}

bool FlatGroup::decay() const {
  return parameters_.front()->spec().decay;
}
bool FlatGroup::tied() const {
  return parameters_.front()->spec().tied;
}

std::vector<Communicator*> FlatGroup::holders(const Parameter& parameter) const {
  std::vector<Communicator*> found;
  if (ranks_.copied != nullptr) found.push_back(ranks_.copied);
  if (Communicator* within = parameter.spec().copies.holders) found.push_back(within);
  return found;
}

int FlatGroup::uses() const {
  int uses = 0;
  for (const Parameter* parameter : parameters_) uses += parameter->uses();
  return uses;
}

void FlatGroup::materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients) {
  use_ = use;
  const auto zeros = [&](std::int64_t elements, DType dtype) {
    const Tensor made = ctx.allocate({elements}, dtype, MemoryUse::kParameters);
    ops::fill(ctx, made, 0.0f);
    return made;
  };
  Tensor whole;
  if (keeps_whole_weights()) {
    whole = zeros(extent(), use.compute);
    weight_shard_ = whole.flat_range(sharding_.memory().begin, sharding_.memory().end);
  } else {
    weight_shard_ = zeros(sharding_.shard_extent(), use.compute);
  }
  master_ =
      use.compute == DType::kF32 ? weight_shard_ : zeros(sharding_.shard_extent(), DType::kF32);
  set_weights(whole);
  if (use.trains) take_gradients(ctx, gradients);
}

void FlatGroup::take_gradients(ops::Context& ctx, const Tensor& gradients) {
  ops::fill(ctx, gradients, 0.0f);
  if (gradients.elements() == extent()) return set_gradients({gradients, {}});
  TRIREME_CHECK(gradients.elements() == sharding_.shard_extent(),
                fmt::format("{} was to have other gradients than whole ones or a shard's", name_));
  gradient_shard_ = gradients;
}

void FlatGroup::set_gradients(WholeGradients whole) {
  gradients_ = std::move(whole);
  for (Parameter* parameter : parameters_) {
    parameter->gradient_ = lacks_gradients() ? Tensor() : view(gradients_.sums, *parameter);
  }
}

FlatGroup::WholeGradients FlatGroup::allocate_gradients(ops::Context& ctx) const {
  WholeGradients whole{allocate_carried_by_reducers(ctx, DType::kF32), {}};
  if (rounds()) whole.rounded = allocate_carried_by_reducers(ctx, travel_);
  return whole;
}

void FlatGroup::hold_gradients(WholeGradients whole) {
  TRIREME_CHECK(!keeps_whole_gradients() && to_shard_ && lacks_gradients() &&
                    whole.sums.elements() == extent() && whole.rounded.defined() == rounds(),
                fmt::format("{} was to have its gradients in other memory than it needs", name_));
  set_gradients(std::move(whole));
}

FlatGroup::WholeGradients FlatGroup::release_gradients() {
  WholeGradients whole = std::move(gradients_);
  set_gradients({});
  return whole;
}

void FlatGroup::set_weights(const Tensor& whole) {
  weights_ = whole;
  for (Parameter* parameter : parameters_) {
    parameter->weight_ = whole.defined() ? view(whole, *parameter) : Tensor();
  }
}

std::int64_t FlatGroup::draw_initial_values(ops::Context& ctx, std::uint64_t seed) const {
  std::int64_t drawn = 0;
  for (const Part& part : parts_) {
    drawn +=
        nn::draw_initial_values(ctx, *part.parameter, part.elements, seed, view(master_, part));
  }
  refresh_weights(ctx);
  return drawn;
}

Tensor FlatGroup::view(const Tensor& flat, const Parameter& parameter) const {
  const Shape& local = parameter.placement().local;
  return flat
      .flat_range(parameter.offset_in_group(), parameter.offset_in_group() + local.elements())
      .reshape(local);
}

Tensor FlatGroup::view(const Tensor& shard, const Part& part) {
  return shard.flat_range(part.at, part.at + part.elements.size());
}

Tensor FlatGroup::gradient_shard() const {
  if (gradient_shard_.defined() || lacks_gradients()) return gradient_shard_;
  return gradients_.sums.flat_range(sharding_.memory().begin, sharding_.memory().end);
}

Tensor FlatGroup::sums_of_run() const {
  if (!to_shard_) return gradients_.sums;
  return gradients_.sums.flat_range(sharding_.memory().begin, sharding_.memory().end);
}

Tensor FlatGroup::reduced(const FlatRange& elements) const {
  const std::int64_t at = to_shard_ ? sharding_.memory().begin : 0;
  return reduced().flat_range(elements.begin - at, elements.end - at);
}

void FlatGroup::refresh_weights(ops::Context& ctx) const {
  if (weight_shard_.raw() != master_.raw()) ops::cast(ctx, master_, weight_shard_);
}

Gather FlatGroup::begin_gather(const Tensor& whole) {
  if (!keeps_whole_weights()) {
    TRIREME_CHECK(
        whole.defined() && whole.elements() == extent() && whole.dtype() == weight_shard_.dtype(),
        fmt::format("{} was to be gathered in other memory than it needs", name_));
    set_weights(whole);
  }
  return {weight_shard_, weights_};
}

Work FlatGroup::gather(ops::Context& ctx, const Tensor& whole) {
  FlatGroup* const self = this;
  return gather(ctx, {&self, 1}, {&whole, 1});
}

Work FlatGroup::gather(ops::Context& ctx, std::span<FlatGroup* const> groups,
                       std::span<const Tensor> whole) {
  std::vector<Gather> gathers;
  Communicator* ranks = nullptr;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    FlatGroup& group = *groups[i];
    Gather one = group.begin_gather(whole[i]);
    if (group.sharding_.count() == 1) continue;
    TRIREME_CHECK(ranks == nullptr || ranks == group.ranks_.sharded,
                  "groups that are gathered together have the same ranks");
    ranks = group.ranks_.sharded;
    gathers.push_back(std::move(one));
  }
  if (gathers.empty()) return {};
  return ranks->all_gather_together(ctx.stream, std::move(gathers));
}

void FlatGroup::release() {
  if (!keeps_whole_weights()) set_weights({});
}

void FlatGroup::plan_reduction(ops::Context& ctx, const ReductionOptions& options) {
  to_shard_ = options.to_shard && sharding_.count() > 1;
  last_phase_ = to_shard_ && size_of_group(ranks_.copied) > 1 ? Phase::kCopies : Phase::kSum;
  const FlatRange within = to_shard_ ? sharding_.range() : FlatRange{0, elements()};
  copied_ = copied(within, Which::kAll);
  partial_ = copied(within, Which::kPartial);
  travel_ = size_of_group(ranks_.reduced) == 1 ? DType::kF32 : options.travel;
  gradients_.rounded = {};
  if (rounds() && keeps_whole_gradients()) {
    gradients_.rounded = allocate_carried_by_reducers(ctx, travel_);
  }
}

// To a shard, one communicator adds up after the other.
Tensor FlatGroup::allocate_carried_by_reducers(ops::Context& ctx, DType dtype) const {
  std::vector<Communicator*> carriers{ranks_.reduced};
  if (to_shard_) carriers = {ranks_.sharded, ranks_.copied};
  std::erase(carriers, nullptr);
  return allocate_carried(carriers, *ctx.allocator, ctx.stream, {extent()}, dtype,
                          MemoryUse::kGradients);
}

// Neighbouring parameters that the same ranks hold become one range.
std::vector<FlatGroup::Copied> FlatGroup::copied(const FlatRange& within, Which which) const {
  std::vector<Copied> found;
  for (const Parameter* parameter : parameters_) {
    const Copies& copies = parameter->spec().copies;
    Communicator* holders = which == Which::kAll || copies.partial ? copies.holders : nullptr;
    const std::int64_t begin = parameter->offset_in_group();
    const FlatRange here =
        intersection(within, {begin, begin + parameter->placement().local.elements()});
    if (holders == nullptr || here.empty()) continue;
    if (!found.empty() && found.back().holders == holders &&
        found.back().elements.end == here.begin) {
      found.back().elements.end = here.end;
    } else {
      found.push_back({holders, here});
    }
  }
  return found;
}

std::vector<Work> FlatGroup::start_partial(ops::Context& ctx) const {
  std::vector<Work> works;
  for (const Copied& one : partial_) {
    works.push_back(one.holders->all_reduce(ctx.stream, reduced(one.elements), ReduceOp::kSum));
  }
  return works;
}

std::vector<Work> FlatGroup::start_reduction(ops::Context& ctx, Phase phase) const {
  const ReduceOp op = rounds() ? ReduceOp::kRoundedSum : ReduceOp::kSum;
  const FlatRange memory = sharding_.memory();
  const Tensor shard = travelling().flat_range(memory.begin, memory.end);
  if (phase == Phase::kCopies) {
    if (last_phase_ != Phase::kCopies) return {};
    return {ranks_.copied->all_reduce(ctx.stream, shard, op)};
  }
  if (rounds()) ops::cast(ctx, gradients_.sums, gradients_.rounded);
  if (to_shard_) return {ranks_.sharded->reduce_scatter(ctx.stream, travelling(), shard, op)};
  if (ranks_.reduced == nullptr) return {};
  return {ranks_.reduced->all_reduce(ctx.stream, travelling(), op)};
}

void FlatGroup::finish_reduction(ops::Context& ctx) const {
  if (!rounds()) return;
  const FlatRange sums = to_shard_ ? sharding_.memory() : FlatRange{0, extent()};
  ops::cast(ctx, gradients_.rounded.flat_range(sums.begin, sums.end), sums_of_run());
}

bool FlatGroup::keeps_copies_equal(const ops::Context& ctx) const {
  const auto fixed = [&](const Communicator* comm) {
    return comm == nullptr || comm->fixes_order_of_sums(ctx.device.kind);
  };
  return !rounds() && fixed(ranks_.reduced) && fixed(ranks_.sharded) && fixed(ranks_.copied);
}

std::vector<Work> FlatGroup::hand_on_gradients(ops::Context& ctx) const {
  std::vector<Work> works;
  for (const Copied& one : copied_) {
    works.push_back(one.holders->broadcast(ctx.stream, reduced(one.elements), 0));
  }
  return works;
}

void FlatGroup::add_sum_of_squares(ops::Context& ctx, const Tensor& limbs) const {
  static_assert(Sharding::kUnit % ops::kSquaresUnit == 0, "no unit lies in two shards");
  const Tensor shard = gradient_shard();
  FlatRange counted;  // of the shard: neighbouring parts that this rank counts
  const auto add = [&] {
    if (counted.empty()) return;
    ops::add_sum_of_squares(ctx, shard.flat_range(counted.begin, counted.end),
                            sharding_.memory().begin + counted.begin, limbs);
  };
  for (const Part& part : parts_) {
    if (!part.parameter->spec().copies.counted()) continue;
    if (part.at != counted.end) {
      add();
      counted.begin = part.at;
    }
    counted.end = part.at + part.elements.size();
  }
  add();
}

std::vector<std::vector<FlatGroup::Part>> written_parts(std::span<FlatGroup* const> groups) {
  struct Candidate {
    std::size_t group;
    FlatGroup::Part part;
  };
  std::vector<Candidate> candidates;  // what this rank writes if there are no other replicas
  std::vector<std::int64_t> sizes;
  const auto cut = [](FlatGroup::Part part, const FlatRange& within) {
    part.at += within.begin;
    part.elements = {part.elements.begin + within.begin, part.elements.begin + within.end};
    return part;
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const FlatGroup::Part& part : groups[i]->parts()) {
      const Communicator* holders = part.parameter->spec().copies.holders;
      const FlatRange mine = even_share(part.elements.size(), size_of_group(holders),
                                        rank_in_group(holders), kWriteUnit);
      if (mine.empty()) continue;
      candidates.push_back({i, cut(part, mine)});
      sizes.push_back(mine.size());
    }
  }
  std::vector<std::vector<FlatGroup::Part>> written(groups.size());
  if (groups.empty()) return written;
  const Communicator* copied = groups.front()->ranks().copied;
  const FlatRange mine =
      even_share(sum_of(sizes), size_of_group(copied), rank_in_group(copied), kWriteUnit);
  for (const PartOfParameter& found : parts_in(mine, sizes)) {
    const Candidate& from = candidates[found.parameter];
    written[from.group].push_back(cut(from.part, found.elements));
  }
  return written;
}

}  // namespace trireme::nn
