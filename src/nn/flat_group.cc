#include "trireme/nn/flat_group.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "trireme/nn/parameter.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/split.h"
#include "trireme/tensor/copy.h"
#include "trireme/tensor/narrow.h"

#include "nn/initial_values.h"

namespace trireme::nn {
namespace {

std::vector<std::int64_t> sizes_of(const std::vector<Parameter*>& parameters) {
  std::vector<std::int64_t> sizes;
  for (const Parameter* one : parameters) sizes.push_back(one->placement().local.elements());
  return sizes;
}

Residence residence_of(const Parameter& parameter, const StateLayout& layout) {
  const ParameterSpec& spec = parameter.spec();
  Residence made{.name = spec.name,
                 .slice = spec.placement,
                 .copied = {layout.copied, spec.holders.ranks},
                 .divided = layout.divided,
                 .summed = {layout.summed},
                 .storage = {}};
  if (spec.holders.partial) made.summed.push_back(spec.holders.ranks);
  if (parameter.first_use() != nullptr) made.storage = {.weights = std::nullopt, .master = false};
  return made;
}

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

}  // namespace

StateLayout StateLayout::along(const ProcessGrid& grid, Axes copied, Axes divided) {
  return {copied | divided, divided, copied, grid.extent(divided), grid.index(divided)};
}

FlatGroup::FlatGroup(std::string name, std::vector<Parameter*> parameters,
                     const StateLayout& layout)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      sharding_(sum_of(sizes_of(parameters_)), layout.shards, layout.shard) {
  std::int64_t offset = 0;
  for (Parameter* parameter : parameters_) {
    parameter->group_ = this;
    parameter->offset_ = offset;
    parameter->residence_ = residence_of(*parameter, layout);
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
bool FlatGroup::shared() const {
  return parameters_.front()->spec().shared;
}
bool FlatGroup::trains() const {
  return parameters_.front()->trains();
}

int FlatGroup::uses() const {
  int uses = 0;
  for (const Parameter* parameter : parameters_) uses += parameter->uses();
  return uses;
}

void FlatGroup::materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients,
                            const Tensor& weights) {
  use_ = use;
  TRIREME_CHECK(!use.split || (use.compute == DType::kBF16 && !use.apart),
                fmt::format("{} splits master values that its weights are no part of", name_));
  const bool updated = use.trains && trains();
  for (Parameter* parameter : parameters_) {
    parameter->residence_.storage = {
        .weights = use.compute, .master = updated, .gradient = updated};
  }
  const auto zeros = [&](std::int64_t elements, DType dtype) {
    const Tensor made = ctx.allocate({elements}, dtype, MemoryUse::kParameters);
    ops::fill(ctx, made, 0.0f);
    return made;
  };
  const bool whole = keeps_whole_weights();
  const std::int64_t kept = whole ? extent() : sharding_.shard_extent();
  TRIREME_CHECK(
      !weights.defined() || (weights.elements() == kept && weights.dtype() == use.compute),
      fmt::format("{} was to have its weights in other memory than it needs", name_));
  if (weights.defined()) ops::fill(ctx, weights, 0.0f);
  const Tensor stays = weights.defined() ? weights : zeros(kept, use.compute);
  const FlatRange own = sharding_.memory();
  weight_shard_ = whole ? stays.flat_range(own.begin, own.end) : stays;
  if (use.compute == DType::kF32 && !(updated && use.apart)) {
    master_ = weight_shard_;
  } else if (updated || !use.trains) {
    master_ = zeros(sharding_.shard_extent(), use.split ? DType::kU16 : DType::kF32);
  }
  set_weights(whole ? stays : Tensor());
  if (updated) take_gradients(ctx, gradients);
}

void FlatGroup::take_gradients(ops::Context& ctx, const Tensor& gradients) {
  ops::fill(ctx, gradients, 0.0f);
  if (gradients.elements() == extent()) return set_gradients({gradients, {}});
  TRIREME_CHECK(gradients.elements() == sharding_.shard_extent(),
                fmt::format("{} was to have other gradients than whole ones or a shard's", name_));
  gradient_shard_ = gradients;
}

void FlatGroup::begin_gradients(ops::Context& ctx) {
  const bool overwrites =
      ctx.device.kind != DeviceKind::kCpu && !shared() &&
      std::ranges::all_of(parameters_, [](const Parameter* p) { return p->spec().overwrites; });
  for (const Parameter* parameter : parameters_) parameter->unwritten_ = overwrites;
  std::int64_t end = 0;  // of what products write
  if (overwrites) {
    const Parameter& last = *parameters_.back();
    end = last.offset_in_group() + last.gradient().elements();
  }
  if (end < extent()) ops::fill(ctx, gradients().flat_range(end, extent()), 0.0f);
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

std::int64_t FlatGroup::draw_initial_values(ops::Context& ctx, std::uint64_t seed,
                                            std::set<std::string>* rounded) const {
  std::int64_t drawn = 0;
  for (const Part& part : parts_) drawn += draw(ctx, part, seed, rounded);
  refresh_weights(ctx);
  return drawn;
}

// Where there are no master values in fp32, the elements are drawn on the host, a piece at a time,
// and rounded or split there.
std::int64_t FlatGroup::draw(ops::Context& ctx, const Part& part, std::uint64_t seed,
                             std::set<std::string>* rounded) const {
  if (master_.defined() && !splits()) {
    return nn::draw_initial_values(ctx, *part.parameter, part.elements, seed, view(master_, part));
  }
  if (is_dry(weight_shard_.raw())) return 0;
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements
  std::int64_t drawn = 0;
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < part.elements.size(); begin += kPiece) {
    const std::int64_t end = std::min(begin + kPiece, part.elements.size());
    values.resize(static_cast<std::size_t>(end - begin));
    const FlatRange range = {part.elements.begin + begin, part.elements.begin + end};
    drawn += nn::draw_initial_values(ctx, *part.parameter, range, seed,
                                     Tensor::wrap(std::span<float>(values)));
    if (write_piece(ctx, values, part.at + begin) && rounded) {
      rounded->insert(part.parameter->name());
    }
  }
  return drawn;
}

// Writes values on the host to the shard's elements from `at` on: to the weights, rounded, or to
// both halves. Returns whether rounding has changed one. Waits, because the copies are not in
// pinned memory.
bool FlatGroup::write_piece(ops::Context& ctx, std::span<const float> values,
                            std::int64_t at) const {
  std::vector<std::uint16_t> bits(values.size()), low(splits() ? values.size() : 0);
  const std::int64_t end = at + std::ssize(values);
  const Tensor piece = Tensor::wrap(bits.data(), {std::ssize(values)}, weight_shard_.dtype());
  bool changed = false;
  if (splits()) {
    split_to(values, piece, low);
    copy(Tensor::wrap(std::span(low)), master_.flat_range(at, end), ctx.stream);
  } else {
    changed = round_to(values, piece);
  }
  copy(piece, weight_shard_.flat_range(at, end), ctx.stream);
  return changed;
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

const Tensor& FlatGroup::values() const {
  TRIREME_CHECK(!splits(), fmt::format("{} has its values in no single memory", name_));
  return master_.defined() ? master_ : weight_shard_;
}

Tensor FlatGroup::read_values(ops::Context& ctx, const FlatRange& elements) const {
  const auto part = [&](const Tensor& shard) {
    return shard.flat_range(elements.begin, elements.end);
  };
  if (!splits()) return part(values());
  const Tensor joined = ctx.allocate({elements.size()}, DType::kF32, MemoryUse::kWorkspace);
  ops::join(ctx, part(weight_shard_), part(master_), joined);
  return joined;
}

void FlatGroup::write_values(ops::Context& ctx, const Tensor& from) const {
  if (splits()) return ops::split(ctx, from, weight_shard_, master_);
  if (from.raw() != values().raw()) ops::cast(ctx, from, values());
}

void FlatGroup::refresh_weights(ops::Context& ctx) const {
  if (splits() || !master_.defined() || weight_shard_.raw() == master_.raw()) return;
  ops::cast(ctx, master_, weight_shard_);
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

Work FlatGroup::gather(ops::Context& ctx, Communicator& shards, std::span<FlatGroup* const> groups,
                       std::span<const Tensor> whole) {
  std::vector<Gather> gathers;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    FlatGroup& group = *groups[i];
    Gather one = group.begin_gather(whole[i]);
    if (group.sharding_.count() > 1) gathers.push_back(std::move(one));
  }
  if (gathers.empty()) return {};
  return shards.all_gather_together(ctx.stream, std::move(gathers));
}

void FlatGroup::release() {
  if (!keeps_whole_weights()) set_weights({});
}

void FlatGroup::plan_reduction(ops::Context& ctx, const ReductionOptions& options,
                               const std::vector<Communicator*>& carriers) {
  to_shard_ = options.to_shard && sharding_.count() > 1;
  travel_ = options.travel;
  carriers_ = carriers;
  gradients_.rounded = {};
  if (rounds() && keeps_whole_gradients()) {
    gradients_.rounded = allocate_carried_by_reducers(ctx, travel_);
  }
}

Tensor FlatGroup::allocate_carried_by_reducers(ops::Context& ctx, DType dtype) const {
  return allocate_carried(carriers_, *ctx.allocator, ctx.stream, {extent()}, dtype,
                          MemoryUse::kGradients);
}

void FlatGroup::begin_reduction(ops::Context& ctx) const {
  if (rounds()) ops::cast(ctx, gradients_.sums, gradients_.rounded);
}

Tensor FlatGroup::travelling(const FlatRange& elements) const {
  const Tensor& all = rounds() ? gradients_.rounded : gradients_.sums;
  return all.flat_range(elements.begin, elements.end);
}

void FlatGroup::finish_reduction(ops::Context& ctx) const {
  if (!rounds()) return;
  const FlatRange sums = to_shard_ ? sharding_.memory() : FlatRange{0, extent()};
  ops::cast(ctx, gradients_.rounded.flat_range(sums.begin, sums.end), sums_of_run());
}

void FlatGroup::add_counted(const GridShape& grid, int place, Axes among,
                            std::vector<ops::SquaresPart>& parts) const {
  static_assert(Sharding::kUnit % ops::kSquaresUnit == 0, "no unit lies in two shards");
  const Tensor shard = gradient_shard();
  FlatRange counted;  // of the shard: neighbouring parts that this rank counts
  const auto add = [&] {
    if (counted.empty()) return;
    parts.push_back(
        {shard.flat_range(counted.begin, counted.end), sharding_.memory().begin + counted.begin});
  };
  for (const Part& part : parts_) {
    if (part.parameter->residence().copy(grid, place, among) != 0) continue;
    if (part.at != counted.end) {
      add();
      counted.begin = part.at;
    }
    counted.end = part.at + part.elements.size();
  }
  add();
}

std::vector<std::vector<FlatGroup::Part>> written_parts(std::span<FlatGroup* const> groups,
                                                        const GridShape& grid, int place) {
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
      const Residence& one = part.parameter->residence();
      const FlatRange mine = even_share(part.elements.size(), one.copies(grid, kModelAxes),
                                        one.copy(grid, place, kModelAxes), kWriteUnit);
      if (mine.empty()) continue;
      candidates.push_back({i, cut(part, mine)});
      sizes.push_back(mine.size());
    }
  }
  std::vector<std::vector<FlatGroup::Part>> written(groups.size());
  if (groups.empty()) return written;
  const Residence& any = groups.front()->parameters().front()->residence();
  const FlatRange mine = even_share(sum_of(sizes), any.copies(grid, kDataAxes),
                                    any.copy(grid, place, kDataAxes), kWriteUnit);
  for (const PartOfParameter& found : parts_in(mine, sizes)) {
    const Candidate& from = candidates[found.parameter];
    written[from.group].push_back(cut(from.part, found.elements));
  }
  return written;
}

}  // namespace trireme::nn
