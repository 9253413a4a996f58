#include "support/equality_cases.h"

#include <algorithm>

#include "support/whole_product.h"

namespace trireme::testing {

EqualityCase base_case(const GridShape& grid, bool llama, bool tied) {
  EqualityCase test;
  test.grid = grid;
  test.model = models::gpt_preset(llama ? "test-llama" : "test-gpt");
  const bool threes = grid.ranks() % 3 == 0;
  if (threes) {
    test.model.width = 48;
    test.model.heads = 12;
    test.model.kv_heads = llama ? (grid[Axis::kTensor] == 3 ? 6 : 2) : 12;
    test.model.hidden = 144;
    test.model.context = 18;
    test.batch.length = 18;
  }
  // What goes wrong in a step shows after a few; more of them are for the whole product.
  if (!whole_product()) test.steps = 4;
  // Not a multiple of the replicas, and enough for one each.
  test.micro_batches = grid.extent(kDataAxes) > 4 ? 9 : 5;
  test.model.tied = tied;
  test.model.dropout = tied ? static_cast<float>(kDropout) : 0.0f;
  return test;
}

EqualityCase scaled_case(const GridShape& grid, bool llama) {
  EqualityCase test;
  test.grid = grid;
  test.model = models::gpt_preset(llama ? "test-llama" : "test-gpt");
  test.choices = llama ? "fp8 llama" : "fp8";
  test.model.layers = 2;
  test.model.width = test.model.hidden = std::int64_t{128} * grid[Axis::kTensor];
  test.model.kv_heads = test.model.heads;
  test.model.dropout = llama ? 0.0f : static_cast<float>(kDropout);
  test.batch.micro = 128 / test.batch.length;
  test.micro_batches = 2 * grid.extent(kDataAxes);
  test.compute = DType::kBF16;
  test.block_scaled = true;
  return test;
}

std::vector<GridShape> factorizations(int ranks) {
  std::vector<GridShape> grids;
  for (int d = 1; d <= ranks; ++d) {
    for (int p = 1; d * p <= ranks; ++p) {
      if (ranks % (d * p) == 0) grids.push_back({d, p, ranks / (d * p)});
    }
  }
  return grids;
}

GridShape most_dimensions(int ranks) {
  const std::vector<GridShape> grids = factorizations(ranks);
  return *std::max_element(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    const auto dimensions = [](const GridShape& g) {
      return std::ranges::count_if(kGridDimensions, [&](const GridDimension& dimension) {
        return g.extent(dimension.axes) > 1;
      });
    };
    return dimensions(a) < dimensions(b);
  });
}

GridShape sharded(GridShape grid, int group) {
  grid[Axis::kReplicate] = grid.extent(kDataAxes) / group;
  grid[Axis::kShard] = group;
  return grid;
}

std::vector<EqualityCase> schedule_cases(int ranks) {
  std::vector<EqualityCase> all;
  int number = 0;
  for (const int stages : {2, 4}) {
    if (ranks % stages != 0) continue;
    for (const std::string schedule : {"interleaved", "zb-h1", "zb-v"}) {
      const int rest = ranks / stages;
      const bool llama = number % 2 == 1, tied = number % 3 != 1;
      const GridShape grid =
          number % 2 == 0 ? GridShape(rest, stages, 1) : GridShape(1, stages, rest);
      EqualityCase test = base_case(grid, llama, tied);
      test.model.layers = 2 * stages;
      test.schedule = schedule;
      test.sequence_parallel = number % 4 == 1;
      if (schedule == "interleaved") test.micro_batches = ranks;
      all.push_back(test);
      ++number;
    }
  }
  return all;
}

std::string schedule_that_fits(const EqualityCase& test, int number) {
  const auto& names = parallel::schedule_names();
  for (;; ++number) {
    const std::string& name = names[static_cast<std::size_t>(number) % names.size()];
    const auto layout = parallel::schedule_layout(name, test.grid[Axis::kPipeline], {});
    const int count = test.micro_batches / test.grid.extent(kDataAxes);
    if (layout.parts() <= test.model.layers + 2 &&
        parallel::takes_micro_batches(name, layout, count)) {
      return name;
    }
  }
}

}  // namespace trireme::testing
