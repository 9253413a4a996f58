#include "trireme/comm/process_grid.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void check_positive(std::string_view key, std::optional<int> value) {
  if (value && *value < 1) {
    throw ConfigError(fmt::format("grid.{} is {}: it must be at least 1", key, *value));
  }
}

// Lists the requested dimensions: "tensor=3", "pipeline=2 and tensor=2".
std::string fixed_dimensions(const GridRequest& request) {
  std::vector<std::string> parts;
  if (request.data) parts.push_back(fmt::format("data={}", *request.data));
  if (request.pipeline) parts.push_back(fmt::format("pipeline={}", *request.pipeline));
  if (request.tensor) parts.push_back(fmt::format("tensor={}", *request.tensor));
  return fmt::format("{}", fmt::join(parts, " and "));
}

// Names the multiples of `unit` just below and above `size`: "3 or 6". "4" if none is below.
std::string sizes_around(std::int64_t unit, std::int64_t size) {
  const std::int64_t below = size / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

std::string started(int ranks) {
  return ranks == 1 ? "1 was started" : fmt::format("{} were started", ranks);
}

// The product of three ints, capped so that it cannot overflow: anything above kMany is too many.
std::int64_t ranks_of(std::int64_t a, std::int64_t b, std::int64_t c) {
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  return std::min(std::min(a * b, kMany) * c, kMany);
}

[[noreturn]] void refuse_complete(const GridRequest& request, std::int64_t ranks, int world_size) {
  const std::int64_t model = ranks_of(*request.pipeline, *request.tensor, 1);
  const std::string instead =
      world_size % model == 0
          ? fmt::format("set grid.data={}", world_size / model)
          : fmt::format("with pipeline={} and tensor={} left as they are {} ranks would fit",
                        *request.pipeline, *request.tensor, sizes_around(model, world_size));
  throw ConfigError(fmt::format("grid {} x {} x {} needs {} ranks, but {}: start {}, or {}",
                                *request.data, *request.pipeline, *request.tensor, ranks,
                                started(world_size), ranks, instead));
}

}  // namespace

std::string GridShape::to_string() const {
  return fmt::format("{} x {} x {} (data x pipeline x tensor)", data, pipeline, tensor);
}

GridShape resolve_grid(const GridRequest& request, int world_size) {
  check_positive("data", request.data);
  check_positive("pipeline", request.pipeline);
  check_positive("tensor", request.tensor);
  const std::int64_t fixed =
      ranks_of(request.data.value_or(1), request.pipeline.value_or(1), request.tensor.value_or(1));
  if (request.data && request.pipeline && request.tensor) {
    if (fixed != world_size) refuse_complete(request, fixed, world_size);
  } else if (world_size % fixed != 0) {
    throw ConfigError(fmt::format(
        "a grid with {} needs a multiple of {} ranks, but {}: {} would fit",
        fixed_dimensions(request), fixed, started(world_size), sizes_around(fixed, world_size)));
  }
  const int rest = static_cast<int>(world_size / fixed);
  GridShape shape{.data = request.data.value_or(1),
                  .pipeline = request.pipeline.value_or(1),
                  .tensor = request.tensor.value_or(1)};
  if (!request.data) {
    shape.data = rest;
  } else if (!request.pipeline) {
    shape.pipeline = rest;
  } else if (!request.tensor) {
    shape.tensor = rest;
  }
  return shape;
}

ProcessGrid::ProcessGrid(RankRuntime& runtime, const GridShape& shape, std::vector<int> order)
    : runtime_(runtime), shape_(shape), order_(std::move(order)) {
  if (order_.empty()) {
    order_.resize(static_cast<std::size_t>(runtime.size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
  TRIREME_CHECK(shape.ranks() == static_cast<int>(order_.size()),
                fmt::format("a grid of {} ranks over {}", shape.ranks(), order_.size()));
  const auto here = std::find(order_.begin(), order_.end(), runtime.rank());
  TRIREME_CHECK(here != order_.end(), fmt::format("rank {} is not in the grid", runtime.rank()));
  const int place = static_cast<int>(here - order_.begin());
  data_index_ = place / (shape.pipeline * shape.tensor);
  pipeline_index_ = place / shape.tensor % shape.pipeline;
  tensor_index_ = place % shape.tensor;
  std::vector<int> data;
  std::vector<int> pipeline;
  std::vector<int> tensor;
  std::vector<int> model;
  for (int d = 0; d < shape.data; ++d)
    data.push_back(world_rank(d, pipeline_index_, tensor_index_));
  for (int p = 0; p < shape.pipeline; ++p) {
    pipeline.push_back(world_rank(data_index_, p, tensor_index_));
    for (int t = 0; t < shape.tensor; ++t) model.push_back(world_rank(data_index_, p, t));
  }
  for (int t = 0; t < shape.tensor; ++t) {
    tensor.push_back(world_rank(data_index_, pipeline_index_, t));
  }
  world_ = runtime.host_group("grid", order_);
  data_ = runtime.group("data", data);
  pipeline_ = runtime.group("pipeline", pipeline);
  tensor_ = runtime.group("tensor", tensor);
  model_ = runtime.group("model", model);
}

int ProcessGrid::world_rank(int data_index, int pipeline_index, int tensor_index) const {
  const int place = (data_index * shape_.pipeline + pipeline_index) * shape_.tensor + tensor_index;
  return order_.at(static_cast<std::size_t>(place));
}

}  // namespace trireme
