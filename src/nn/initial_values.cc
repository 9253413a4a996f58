#include "nn/initial_values.h"

#include <algorithm>
#include <span>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/tensor/copy.h"

namespace trireme::nn {
namespace {

// `to`: elements from global index `first` on.
void fill_row(const Initializer& initial, std::uint64_t key, std::uint64_t first,
              std::span<float> to) {
  switch (initial.kind) {
    case Initializer::Kind::kConstant:
      std::ranges::fill(to, initial.value);
      break;
    case Initializer::Kind::kNormal:
      philox_normals(key, first, to);
      for (float& value : to) value *= initial.value;
      break;
    case Initializer::Kind::kUniform:
      for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = (2.0f * philox_uniform_at(key, first + i) - 1.0f) * initial.value;
      }
      break;
  }
}

// `values` are elements of the local memory from element `first` on. Returns the number of draws.
std::int64_t fill_in(const ops::Context& ctx, const Parameter& parameter, const Slab& slab,
                     std::uint64_t seed, std::int64_t first, float* values) {
  constexpr std::int64_t kGrain = 16384;  // elements
  const Placement& placement = parameter.placement();
  const Initializer& initial = parameter.spec().initial;
  const bool draws = initial.kind != Initializer::Kind::kConstant;
  const std::uint64_t key = philox_key(seed, parameter.name());
  const std::int64_t width = slab.extent[-1];
  ops::host_parallel(ctx, slab.extent.elements(), kGrain, [&](std::int64_t at, std::int64_t end) {
    while (at < end) {
      const std::int64_t column = at % width;
      const std::int64_t count = std::min(width - column, end - at);
      const SlabRow row = row_of(placement, slab, at / width);
      const std::span to(values + (row.local - first + column), static_cast<std::size_t>(count));
      fill_row(initial, key, static_cast<std::uint64_t>(row.global + column), to);
      at += count;
    }
  });
  return draws ? slab.extent.elements() : 0;
}

}  // namespace

std::int64_t draw_initial_values(ops::Context& ctx, const Parameter& parameter,
                                 const FlatRange& range, std::uint64_t seed, const Tensor& to) {
  if (is_dry(to.raw())) return 0;
  const bool on_host = to.device().kind == DeviceKind::kCpu;
  std::vector<float> own(on_host ? 0 : static_cast<std::size_t>(range.size()));
  const Tensor host = on_host ? to : Tensor::wrap(std::span(own));
  auto* values = host.data<float>();
  std::fill_n(values, range.size(), 0.0f);
  std::int64_t drawn = 0;
  for (const Slab& slab : slabs_of(parameter.placement(), range)) {
    drawn += fill_in(ctx, parameter, slab, seed, range.begin, values);
  }
  if (!on_host) copy(host, to, ctx.stream);  // waits: the values are not in pinned memory
  return drawn;
}

}  // namespace trireme::nn
