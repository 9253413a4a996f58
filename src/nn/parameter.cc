#include "trireme/nn/parameter.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "trireme/base/philox.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::nn {
namespace {

// A contiguous row of a slice.
struct Row {
  std::int64_t local = 0;   // offset of its first element in local memory
  std::int64_t global = 0;  // index of that element in the global tensor
};

// Row `number` of the slice, in row-major order.
Row row_of(const Placement& placement, std::int64_t number) {
  const int rank = placement.global.rank();
  std::array<std::int64_t, Shape::kMaxRank> index{};
  for (int i = rank - 2; i >= 0; --i) {
    index[static_cast<std::size_t>(i)] = number % placement.extent[i];
    number /= placement.extent[i];
  }
  Row row;
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    row.local = row.local * placement.local[i] + index[at];
    row.global = row.global * placement.global[i] + index[at] + placement.offset[at];
  }
  return row;
}

// `master` is on the host. Every element depends on seed, name and global index alone, so any
// division of the slice among threads gives the same values. Returns the number of draws.
std::int64_t fill_in(const ops::Context& ctx, const Parameter& parameter, const Tensor& master,
                     std::uint64_t seed) {
  constexpr std::int64_t kGrain = 16384;  // elements
  const Placement& placement = parameter.placement();
  const Initializer& initial = parameter.spec().initial;
  const bool draws = initial.kind == Initializer::Kind::kNormal;
  const std::uint64_t key = philox_key(seed, parameter.name());
  auto* values = master.data<float>();
  std::fill_n(values, master.elements(), 0.0f);
  if (placement.extent.elements() == 0) return 0;
  const std::int64_t width = placement.extent[placement.global.rank() - 1];
  ops::host_parallel(
      ctx, placement.extent.elements(), kGrain, [&](std::int64_t at, std::int64_t end) {
        while (at < end) {
          const std::int64_t column = at % width;
          const std::int64_t count = std::min(width - column, end - at);
          const Row row = row_of(placement, at / width);
          const std::span to(values + row.local + column, static_cast<std::size_t>(count));
          if (draws) philox_normals(key, static_cast<std::uint64_t>(row.global + column), to);
          for (float& value : to) value = draws ? initial.value * value : initial.value;
          at += count;
        }
      });
  return draws ? placement.extent.elements() : 0;
}

// Works parameter by parameter, so that the host never holds more than one of a model on a GPU.
std::int64_t initialize(ops::Context& ctx, const Parameter& parameter, const Tensor& master,
                        std::uint64_t seed) {
  if (master.device().kind == DeviceKind::kCpu) return fill_in(ctx, parameter, master, seed);
  std::vector<float> values(static_cast<std::size_t>(master.elements()));
  const Tensor host = Tensor::wrap(std::span(values));
  const std::int64_t drawn = fill_in(ctx, parameter, host, seed);
  copy(host, master, ctx.stream);  // waits: the values are not in pinned memory
  return drawn;
}

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

Placement Placement::whole(const Shape& global) {
  return {global, global, std::vector<std::int64_t>(static_cast<std::size_t>(global.rank()), 0),
          global};
}

Placement Placement::split(const Shape& global, int dimension, int parts, int index,
                           std::int64_t multiple) {
  Placement placement = whole(global);
  const std::int64_t each = (global[dimension] + parts - 1) / parts;
  const std::int64_t begin = std::min(each * index, global[dimension]);
  placement.local = global.with(dimension, (each + multiple - 1) / multiple * multiple);
  placement.offset[static_cast<std::size_t>(dimension)] = begin;
  placement.extent = global.with(dimension, std::min(each, global[dimension] - begin));
  return placement;
}

FlatGroup::FlatGroup(std::string name, std::vector<Parameter*> parameters)
    : name_(std::move(name)), parameters_(std::move(parameters)) {
  for (Parameter* parameter : parameters_) {
    parameter->group_ = this;
    parameter->offset_ = elements_;
    elements_ += parameter->placement().local.elements();
  }
}

void FlatGroup::materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients) {
  master_ = ctx.allocate({elements_}, DType::kF32, MemoryUse::kParameters);
  weights_ = use.compute == DType::kF32
                 ? master_
                 : ctx.allocate({elements_}, use.compute, MemoryUse::kParameters);
  ops::fill(ctx, master_, 0.0f);
  if (use.trains) {
    gradients_ = gradients;
    ops::fill(ctx, gradients_, 0.0f);
  }
  for (Parameter* parameter : parameters_) {
    parameter->weight_ = view(weights_, *parameter);
    if (use.trains) parameter->gradient_ = view(gradients_, *parameter);
  }
  refresh_weights(ctx);
}

std::int64_t FlatGroup::draw_initial_values(ops::Context& ctx, std::uint64_t seed) const {
  std::int64_t drawn = 0;
  for (const Parameter* parameter : parameters_) {
    drawn += initialize(ctx, *parameter, view(master_, *parameter), seed);
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

void FlatGroup::refresh_weights(ops::Context& ctx) const {
  if (weights_.raw() != master_.raw()) ops::cast(ctx, master_, weights_);
}

Parameter& ParameterSet::add(ParameterSpec spec) {
  return *parameters_.emplace_back(std::make_unique<Parameter>(std::move(spec)));
}

void ParameterSet::form_groups(const std::string& block) {
  // The properties that all members of a group share.
  struct Key {
    bool decay;
    bool tied;
    bool operator==(const Key&) const = default;
  };
  std::vector<std::pair<Key, std::vector<Parameter*>>> members;
  for (const auto& parameter : parameters_) {
    const Key key{parameter->spec().decay, parameter->spec().tied};
    auto found = std::find_if(members.begin(), members.end(),
                              [&](const auto& entry) { return entry.first == key; });
    if (found == members.end()) found = members.insert(members.end(), {key, {}});
    found->second.push_back(parameter.get());
  }
  for (auto& [key, parameters] : members) {
    const char* kind = key.tied ? "tied" : key.decay ? "matrices" : "vectors";
    groups_.push_back(std::make_unique<FlatGroup>(fmt::format("{}.{}", block, kind), parameters));
  }
}

Tensor side_by_side_weight(const std::vector<Parameter*>& parameters) {
  return side_by_side(parameters, parameters.front()->group().weights());
}

Tensor side_by_side_gradient(const std::vector<Parameter*>& parameters) {
  return side_by_side(parameters, parameters.front()->group().gradients());
}

}  // namespace trireme::nn
