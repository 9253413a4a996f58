// Flat groups whose elements are sharded and copied over ranks: what they gather, reduce and write
// is what a single rank that holds the whole group has.
#include "trireme/nn/flat_group.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/exact_sum.h"
#include "trireme/base/philox.h"
#include "trireme/io/checkpoint.h"
#include "trireme/nn/parameter.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/parallel/gradient_reducer.h"
#include "trireme/setup/checkpoint_tensors.h"

#include "models/gpt/gpt.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

constexpr std::uint64_t kSeed = 5;

// The ranks of the world as a grid of so many tensor ranks and shards, and of copies.
GridShape shape_of(int shards, int tensor = 1) {
  GridShape shape(runtime().size() / shards / tensor, 1, tensor);
  shape[Axis::kShard] = shards;
  return shape;
}

nn::StateLayout layout_of(const ProcessGrid& grid) {
  return nn::StateLayout::along(grid, Axis::kReplicate, Axis::kShard);
}

// How many ranks may share a copy, in this world.
std::vector<int> shard_counts() {
  std::vector<int> counts;
  for (int count = 1; count <= runtime().size(); ++count) {
    if (runtime().size() % count == 0) counts.push_back(count);
  }
  return counts;
}

// 2,395 elements: parameters that shards cut in the middle, a small one, padding columns.
void declare(nn::ParameterSet& parameters, const nn::Holders& holders = {}) {
  const auto normal = nn::Initializer::normal(0.5f);
  parameters.add({.name = "a.weight",
                  .placement = nn::Placement::whole({37, 11}),
                  .initial = normal,
                  .holders = holders});
  parameters.add({.name = "b.weight",
                  .placement = nn::Placement::split({50, 33}, 1, 2, 1, 8),
                  .initial = normal,
                  .holders = {}});
  parameters.add({.name = "c.bias",
                  .placement = nn::Placement::whole({5}),
                  .initial = nn::Initializer::constant(0.25f),
                  .holders = holders});
  parameters.add({.name = "d.weight",
                  .placement = nn::Placement::whole({9, 3, 29}),
                  .initial = normal,
                  .holders = {}});
}

// One group of those parameters, or of three elements, which most shards have nothing of.
class Group {
 public:
  Group(ops::Context& ctx, const nn::StateLayout& layout, const nn::ParameterUse& use = {},
        bool small = false, const nn::Holders& holders = {}) {
    if (small) {
      parameters_.add({.name = "small",
                       .placement = nn::Placement::whole({3}),
                       .initial = nn::Initializer::normal(1.0f),
                       .holders = {}});
    } else {
      declare(parameters_, holders);
    }
    parameters_.form_groups("group", layout);
    flat().materialize(ctx, use,
                       ctx.allocate({flat().extent()}, DType::kF32, MemoryUse::kGradients));
  }
  nn::FlatGroup& flat() { return *parameters_.groups().front(); }
  const nn::Parameter& first() const { return *parameters_.parameters().front(); }

 private:
  nn::ParameterSet parameters_;
};

std::vector<float> values_of(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

// The values as fp32.
std::vector<float> as_floats(ops::Context& ctx, const Tensor& tensor) {
  const Tensor wide = ctx.allocate(tensor.shape(), DType::kF32);
  ops::cast(ctx, tensor, wide);
  return values_of(wide);
}

std::vector<float> contribution(int rank, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  philox_normals(philox_key(kSeed, fmt::format("rank {}", rank)), 0, std::span(values));
  return values;
}

// Adds along the tree of src/comm/README.md, "Order of sums".
std::vector<float> sum_of(std::vector<std::vector<float>> terms) {
  const auto add = [](const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
    return sum;
  };
  std::size_t pairs = terms.size() - std::bit_floor(terms.size());  // of the first round
  while (terms.size() > 1) {
    if (pairs == 0) pairs = terms.size() / 2;
    std::vector<std::vector<float>> next;
    for (std::size_t i = 0; i < pairs; ++i) next.push_back(add(terms[2 * i], terms[2 * i + 1]));
    next.insert(next.end(), terms.begin() + static_cast<std::ptrdiff_t>(2 * pairs), terms.end());
    terms = std::move(next);
    pairs = 0;
  }
  return terms.front();
}

std::vector<float> sum_of_contributions(std::int64_t elements) {
  std::vector<std::vector<float>> terms;
  for (int rank = 0; rank < runtime().size(); ++rank) {
    terms.push_back(contribution(rank, elements));
  }
  return sum_of(std::move(terms));
}

void contribute(ops::Context& ctx, nn::FlatGroup& group) {
  ops::fill(ctx, group.gradients(), 0.0f);
  std::ranges::copy(contribution(runtime().rank(), group.elements()),
                    group.gradients().data<float>());
}

// The calls of a group's gradients, whichever moments they are for.
std::vector<parallel::Call> gradient_calls(const nn::FlatGroup& group, const ProcessGrid& grid,
                                           bool to_shard) {
  parallel::ResidentGroup resident{group.name(), {}, group.sharding().index()};
  for (const nn::Parameter* one : group.parameters()) resident.members.push_back(one->residence());
  const int replicas = grid.extent(kDataAxes);
  auto calls = parallel::calls_of({&resident, 1}, grid.shape(),
                                  parallel::WorkSplit::even(replicas, replicas),
                                  {.to_shard = to_shard, .fixed_order = false});
  std::erase_if(calls, [](const auto& call) { return call.why != Purpose::kGradients; });
  return calls;
}

// Makes the group's calls: all of them but what hands copies on, or these alone.
void make_calls(ops::Context& ctx, nn::FlatGroup& group, const ProcessGrid& grid, bool to_shard,
                bool hands_on = false) {
  const auto start = [&](const parallel::Call& call) {
    if (hands_on == (call.what == Collective::kBroadcast)) {
      parallel::start_call(ctx, group, call, grid.comm(call.over.axes)).wait_host();
    }
  };
  const auto calls = gradient_calls(group, grid, to_shard);
  if (!hands_on) group.begin_reduction(ctx);
  for (const auto& call : calls) {
    if (call.when != parallel::Moment::kStepEnd) start(call);
  }
  if (!hands_on) group.finish_reduction(ctx);
  for (const auto& call : calls) {
    if (call.when == parallel::Moment::kStepEnd) start(call);
  }
}

// What carries its sums over ranks with other data.
std::vector<Communicator*> carriers_of(const nn::FlatGroup& group, const ProcessGrid& grid,
                                       bool to_shard) {
  std::vector<Communicator*> carriers;
  for (const auto& call : gradient_calls(group, grid, to_shard)) {
    if (call.when != parallel::Moment::kStepEnd) carriers.push_back(&grid.comm(call.over.axes));
  }
  return carriers;
}

Work gather(ops::Context& ctx, nn::FlatGroup& group, const ProcessGrid& grid,
            const Tensor& whole = {}) {
  nn::FlatGroup* const self = &group;
  return nn::FlatGroup::gather(ctx, grid.comm(Axis::kShard), {&self, 1}, {&whole, 1});
}

std::vector<float> part_of(const std::vector<float>& whole, const FlatRange& range) {
  return {whole.begin() + range.begin, whole.begin() + range.end};
}

// The elements of this rank's shard of a flat tensor of the shard, without padding.
std::vector<float> in_shard(const nn::FlatGroup& group, const Tensor& shard) {
  return part_of(values_of(shard), {0, group.sharding().range().size()});
}

class FlatGroups : public ::testing::Test {
 protected:
  ops::Context ctx_ = ops::make_cpu_context(1);
};

TEST_F(FlatGroups, ShardsAreDrawnAsTheWholeIs) {
  for (const bool small : {false, true}) {
    Group whole(ctx_, {}, {}, small);
    const std::int64_t drawn = whole.flat().draw_initial_values(ctx_, kSeed);
    const std::vector<float> expected = values_of(whole.flat().master());
    for (const int count : shard_counts()) {
      const ProcessGrid grid(runtime(), shape_of(count));
      Group group(ctx_, layout_of(grid), {}, small);
      const nn::FlatGroup& flat = group.flat();
      const std::int64_t own = group.flat().draw_initial_values(ctx_, kSeed);
      EXPECT_EQ(grid.comm(Axis::kShard).all_reduce_host(own, ReduceOp::kSum), drawn);
      EXPECT_EQ(in_shard(flat, flat.master()), part_of(expected, flat.sharding().range()));
      EXPECT_EQ(flat.master().elements(), flat.sharding().shard_extent());
    }
  }
}

TEST_F(FlatGroups, GatherBringsTheShardsTogetherInPlace) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const bool small : {false, true}) {
      Group whole(ctx_, {}, {.compute = compute}, small);
      whole.flat().draw_initial_values(ctx_, kSeed);
      const std::vector<float> expected = as_floats(ctx_, whole.flat().weights());
      for (const int count : shard_counts()) {
        const ProcessGrid grid(runtime(), shape_of(count));
        Group group(ctx_, layout_of(grid), {.compute = compute}, small);
        nn::FlatGroup& flat = group.flat();
        flat.draw_initial_values(ctx_, kSeed);
        const void* before = group.first().weight().raw();
        gather(ctx_, flat, grid).wait_host();
        EXPECT_EQ(group.first().weight().raw(), before);
        EXPECT_EQ(part_of(as_floats(ctx_, flat.weights()), {0, flat.elements()}), expected);
        // The master values of fp32 are a view of the weights.
        const auto* shard =
            static_cast<const char*>(flat.weights().raw()) +
            static_cast<std::size_t>(flat.sharding().memory().begin) * size_of(compute);
        EXPECT_EQ(flat.weight_shard().raw(), shard);
        EXPECT_EQ(flat.master().raw() == shard, compute == DType::kF32);
      }
    }
  }
}

TEST_F(FlatGroups, WeightsLieInGivenMemory) {
  Group whole(ctx_, {}, {.compute = DType::kBF16});
  whole.flat().draw_initial_values(ctx_, kSeed);
  const std::vector<float> expected = as_floats(ctx_, whole.flat().weights());
  for (const bool whole_weights : {true, false}) {
    for (const int count : shard_counts()) {
      const ProcessGrid grid(runtime(), shape_of(count));
      nn::ParameterSet parameters;
      declare(parameters, {});
      parameters.form_groups("group", layout_of(grid));
      nn::FlatGroup& flat = *parameters.groups().front();
      const bool stays = whole_weights || count == 1;
      const std::int64_t kept = stays ? flat.extent() : flat.sharding().shard_extent();
      const Tensor gradients = ctx_.allocate({flat.extent()}, DType::kF32, MemoryUse::kGradients);
      const Tensor block = ctx_.allocate({2 * kept}, DType::kBF16);
      ops::fill(ctx_, block, 7.0f);
      const Tensor before = block.flat_range(0, kept), given = block.flat_range(kept, 2 * kept);
      const nn::ParameterUse use = {.compute = DType::kBF16, .whole_weights = whole_weights};
      flat.materialize(ctx_, use, gradients, given);
      const std::vector<float> zeros(static_cast<std::size_t>(kept));
      EXPECT_EQ(stays ? flat.weights().raw() : flat.weight_shard().raw(), given.raw());
      EXPECT_EQ(as_floats(ctx_, given), zeros);
      flat.draw_initial_values(ctx_, kSeed);
      const Tensor buffer = stays ? given : ctx_.allocate({flat.extent()}, DType::kBF16);
      gather(ctx_, flat, grid, stays ? Tensor() : buffer).wait_host();
      EXPECT_EQ(part_of(as_floats(ctx_, buffer), {0, flat.elements()}), expected);
      EXPECT_EQ(as_floats(ctx_, before), std::vector<float>(zeros.size(), 7.0f));
      EXPECT_THROW(flat.materialize(ctx_, {.whole_weights = whole_weights}, gradients, given),
                   InternalError)
          << "of another type";
      EXPECT_THROW(flat.materialize(ctx_, use, gradients, block), InternalError) << "too long";
    }
  }
}

TEST_F(FlatGroups, GatherFillsAGivenBufferUntilTheRelease) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int count : shard_counts()) {
      if (count == 1) continue;
      Group whole(ctx_, {}, {.compute = compute});
      whole.flat().draw_initial_values(ctx_, kSeed);
      const ProcessGrid grid(runtime(), shape_of(count));
      Group group(ctx_, layout_of(grid), {.compute = compute, .whole_weights = false});
      nn::FlatGroup& flat = group.flat();
      flat.draw_initial_values(ctx_, kSeed);
      EXPECT_FALSE(group.first().weight().defined());
      EXPECT_THROW(gather(ctx_, flat, grid), InternalError);
      const Tensor buffer = ctx_.allocate({flat.extent()}, compute);
      for (int round = 0; round < 2; ++round) {
        ops::fill(ctx_, buffer, 7.0f);
        gather(ctx_, flat, grid, buffer).wait_host();
        EXPECT_EQ(group.first().weight().raw(), buffer.raw());
        EXPECT_EQ(as_floats(ctx_, group.first().weight()), as_floats(ctx_, whole.first().weight()));
        EXPECT_EQ(part_of(as_floats(ctx_, buffer), {0, flat.elements()}),
                  as_floats(ctx_, whole.flat().weights()));
        flat.release();
        EXPECT_FALSE(group.first().weight().defined());
        EXPECT_FALSE(flat.weights().defined());
        // After a change of the master values the next gather brings the new weights.
        ops::scale(ctx_, flat.master(), 2.0f);
        flat.refresh_weights(ctx_);
        if (round == 0) {
          ops::scale(ctx_, whole.flat().master(), 2.0f);
          whole.flat().refresh_weights(ctx_);
        }
      }
    }
  }
}

// Both halves are those of the values in fp32, and take as much memory as two halves do; what is
// written comes back, in the weights rounded away from zero at ties.
TEST_F(FlatGroups, SplitMastersLieInTheWeights) {
  Group whole(ctx_, {}, {});
  whole.flat().draw_initial_values(ctx_, kSeed);
  const std::vector<float> expected = values_of(whole.flat().master());
  for (const bool whole_weights : {true, false}) {
    for (const int count : shard_counts()) {
      const ProcessGrid grid(runtime(), shape_of(count));
      Group group(ctx_, layout_of(grid),
                  {.compute = DType::kBF16, .whole_weights = whole_weights, .split = true});
      nn::FlatGroup& flat = group.flat();
      flat.draw_initial_values(ctx_, kSeed);
      EXPECT_EQ(flat.master().bytes(),
                static_cast<std::size_t>(2 * flat.sharding().shard_extent()));
      EXPECT_THROW(flat.values(), InternalError);
      const Tensor values = flat.read_values(ctx_);
      EXPECT_EQ(in_shard(flat, values), part_of(expected, flat.sharding().range()));
      ops::fill(ctx_, values, 1.0f + 0x1p-8f);  // a tie between 1 and the next value of bf16
      flat.write_values(ctx_, values);
      flat.refresh_weights(ctx_);
      EXPECT_EQ(values_of(flat.read_values(ctx_)), values_of(values));
      const std::vector<float> weights = as_floats(ctx_, flat.weight_shard());
      EXPECT_EQ(weights, std::vector<float>(weights.size(), 1.0f + 0x1p-7f));
    }
  }
  EXPECT_THROW(Group(ctx_, {}, {.compute = DType::kF32, .split = true}), InternalError);
  EXPECT_THROW(Group(ctx_, {}, {.compute = DType::kBF16, .apart = true, .split = true}),
               InternalError);
}

// Whole and to a shard the sums are those of the tree, to the last bit.
TEST_F(FlatGroups, ReduceAddsAlongOneTree) {
  for (const bool small : {false, true}) {
    for (const int count : shard_counts()) {
      const ProcessGrid grid(runtime(), shape_of(count));
      Group group(ctx_, layout_of(grid), {}, small);
      nn::FlatGroup& flat = group.flat();
      const std::vector<float> expected = sum_of_contributions(flat.elements());
      for (const bool to_shard : {false, true}) {
        const auto carriers = carriers_of(flat, grid, to_shard);
        flat.plan_reduction(ctx_, {.to_shard = to_shard}, carriers);
        EXPECT_EQ(carriers.size() == 2, to_shard && count > 1 && count < runtime().size());
        contribute(ctx_, flat);
        make_calls(ctx_, flat, grid, to_shard);
        EXPECT_EQ(in_shard(flat, flat.gradient_shard()), part_of(expected, flat.sharding().range()))
            << count << " shards";
        if (to_shard) continue;
        EXPECT_EQ(part_of(values_of(flat.gradients()), {0, flat.elements()}), expected);
      }
    }
  }
}

TEST_F(FlatGroups, GradientsThatTravelRoundedAreRoundedSums) {
  for (const int count : shard_counts()) {
    const ProcessGrid grid(runtime(), shape_of(count));
    Group group(ctx_, layout_of(grid));
    nn::FlatGroup& flat = group.flat();
    const std::vector<float> expected = sum_of_contributions(flat.elements());
    for (const bool to_shard : {false, true}) {
      const auto carriers = carriers_of(flat, grid, to_shard);
      const DType travel = carriers.empty() ? DType::kF32 : DType::kBF16;
      flat.plan_reduction(ctx_, {.travel = travel, .to_shard = to_shard}, carriers);
      EXPECT_EQ(flat.rounds(), runtime().size() > 1);
      contribute(ctx_, flat);
      make_calls(ctx_, flat, grid, to_shard);
      const std::vector<float> found = in_shard(flat, flat.gradient_shard());
      const std::vector<float> exact = part_of(expected, flat.sharding().range());
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], exact[i], 0.05) << i;
        if (runtime().size() > 1) {
          ASSERT_EQ(found[i], static_cast<float>(BFloat16(found[i])));
        }
      }
    }
  }
}

// Pairs of ranks hold copies of two of the parameters, as tensor ranks do.
TEST_F(FlatGroups, CopiesInAReplicaAreAddedUpLastAndHandedOn) {
  const int size = runtime().size();
  if (size % 2 != 0) GTEST_SKIP() << "for pairs of ranks";
  for (const bool sharded : {false, true}) {
    const ProcessGrid grid(runtime(), shape_of(sharded ? size / 2 : 1, 2));
    const int holder_here = grid.index(Axis::kTensor);
    Group group(ctx_, layout_of(grid), {}, false, {.ranks = Axes(Axis::kTensor), .partial = true});
    nn::FlatGroup& flat = group.flat();
    flat.plan_reduction(ctx_, {.to_shard = sharded}, carriers_of(flat, grid, sharded));
    contribute(ctx_, flat);
    make_calls(ctx_, flat, grid, sharded);
    std::vector<std::vector<float>> sums;  // over the data dimension, of each holder
    for (const int holder : {0, 1}) {
      std::vector<std::vector<float>> terms;
      for (int rank = holder; rank < size; rank += 2) {
        terms.push_back(contribution(rank, flat.elements()));
      }
      sums.push_back(sum_of(std::move(terms)));
    }
    const std::vector<float> of_copies = sum_of(sums);
    const std::vector<float>& of_others = sums[static_cast<std::size_t>(runtime().rank() % 2)];
    const Tensor shard = flat.gradient_shard();
    for (const nn::FlatGroup::Part& part : flat.parts()) {
      const bool copied = part.parameter->spec().holders.partial;
      const std::int64_t begin = part.parameter->offset_in_group() + part.elements.begin;
      EXPECT_EQ(values_of(nn::FlatGroup::view(shard, part)),
                part_of(copied ? of_copies : of_others, {begin, begin + part.elements.size()}))
          << part.parameter->name();
    }
    // What the second holder has of copies becomes what the first one has. Without replicas one
    // communicator has added up all.
    if (grid.extent(kDataAxes) == 1) continue;
    ops::fill(ctx_, shard, static_cast<float>(holder_here));
    make_calls(ctx_, flat, grid, sharded, /*hands_on=*/true);
    for (const nn::FlatGroup::Part& part : flat.parts()) {
      const bool copied = part.parameter->spec().holders.partial;
      for (const float value : values_of(nn::FlatGroup::view(shard, part))) {
        ASSERT_EQ(value, copied ? 0.0f : static_cast<float>(holder_here));
      }
    }
  }
}

// Padding, and what is not of this shard, hold no numbers.
TEST_F(FlatGroups, SumsOfSquaresCountEachElementOnce) {
  double of_one = 0.0;
  for (const int count : shard_counts()) {
    const ProcessGrid grid(runtime(), shape_of(count));
    Group group(ctx_, layout_of(grid));
    nn::FlatGroup& flat = group.flat();
    const std::vector<float> gradients = contribution(0, flat.elements());
    ops::fill(ctx_, flat.gradients(), std::numeric_limits<float>::quiet_NaN());
    double expected = 0.0;
    const FlatRange range = flat.sharding().range();
    for (std::int64_t i = 0; i < flat.elements(); ++i) {
      const float value = gradients[static_cast<std::size_t>(i)];
      expected += double{value} * double{value};
      if (range.begin <= i && i < range.end) flat.gradients().data<float>()[i] = value;
    }
    const Tensor sum = ctx_.allocate({1}, DType::kF64);
    const Tensor limbs = ctx_.allocate({kExactLimbs}, DType::kI64);
    ops::fill(ctx_, limbs, 0.0f);
    std::vector<ops::SquaresPart> parts;
    flat.add_counted(grid.shape(), grid.index(kAllAxes), kModelAxes | Axis::kShard, parts);
    ops::add_sum_of_squares(ctx_, parts, limbs);
    grid.comm(Axis::kShard).all_reduce_host(limbs.span<std::int64_t>(), ReduceOp::kSum);
    ops::round_exact_sum(ctx_, limbs, sum);
    const double found = sum.data<double>()[0];
    EXPECT_NEAR(found, expected, 1e-9 * expected);
    // Shards change no bit.
    if (count == shard_counts().front()) of_one = found;
    EXPECT_EQ(found, of_one);
  }
}

// How often the ranks of the world write each element of these groups, which all hold.
std::vector<std::int64_t> times_written(std::span<nn::FlatGroup* const> groups,
                                        const ProcessGrid& grid) {
  std::vector<std::int64_t> times;
  const auto written = nn::written_parts(groups, grid.shape(), grid.index(kAllAxes));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t before = times.size();
    times.resize(before + static_cast<std::size_t>(groups[i]->elements()));
    for (const nn::FlatGroup::Part& part : written[i]) {
      // Where the part says that it is, and nowhere else.
      EXPECT_EQ(part.at + groups[i]->sharding().memory().begin,
                part.parameter->offset_in_group() + part.elements.begin);
      for (std::int64_t e = part.elements.begin; e < part.elements.end; ++e) {
        ++times[before + static_cast<std::size_t>(part.parameter->offset_in_group() + e)];
      }
    }
  }
  return times;
}

TEST_F(FlatGroups, HoldersOfCopiesShareTheWriting) {
  const int size = runtime().size();
  const std::int64_t elements = 4 * 4 * nn::kWriteUnit + 12'345;
  for (const int count : shard_counts()) {
    for (const bool in_replica : {false, true}) {
      // The ranks of a row hold copies within a replica, or share one.
      const ProcessGrid grid(runtime(), in_replica ? shape_of(1, count) : shape_of(count));
      const nn::Holders holders{.ranks = in_replica ? Span(Axis::kTensor) : Span()};
      nn::ParameterSet parameters;
      for (const bool decay : {true, false}) {
        parameters.add({.name = decay ? "large" : "small",
                        .placement = nn::Placement::whole({decay ? elements : 700}),
                        .initial = {},
                        .holders = holders,
                        .decay = decay});
      }
      parameters.form_groups("block", layout_of(grid));
      std::vector<nn::FlatGroup*> groups;
      for (const auto& group : parameters.groups()) groups.push_back(group.get());
      std::vector<std::int64_t> times = times_written(groups, grid);
      const std::int64_t own = std::accumulate(times.begin(), times.end(), std::int64_t{0});
      EXPECT_GT(own, 0);
      EXPECT_LE(own, (elements + 700) / size + 3 * nn::kWriteUnit) << count << " of " << size;
      runtime().world().all_reduce_host(std::span<std::int64_t>(times), ReduceOp::kSum);
      EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times)) << count << " of " << size;
    }
  }
}

// Grids over all ranks: copies, shards, and both with pipeline stages and tensor ranks.
std::vector<GridShape> grids() {
  const int size = runtime().size();
  std::vector<GridShape> shapes = {{size, 1, 1}};
  const auto add_sharded = [&](GridShape shape, int shards) {
    shape[Axis::kShard] = shards;
    shapes.push_back(shape);
  };
  add_sharded({1, 1, 1}, size);
  if (size % 2 != 0) return shapes;
  shapes.insert(shapes.end(), {{size / 2, 2, 1}, {size / 2, 1, 2}});
  add_sharded({1, 2, 1}, size / 2);
  add_sharded({1, 1, 2}, size / 2);
  add_sharded({size / 2, 1, 1}, 2);
  return shapes;
}

// Writes the initial values on all grids and reads them. Returns the checksums of the tensors.
std::vector<std::uint64_t> write_and_read(ops::Context& ctx,
                                          const parallel::StageOptions& options) {
  std::optional<TemporaryFolder> made;
  if (runtime().rank() == 0) made.emplace();
  const std::string folder =
      runtime().world().broadcast_text(made ? made->path().string() : std::string());
  models::GptConfig model = models::gpt_preset("test-gpt");
  model.vocabulary = 16'000;
  std::vector<std::vector<std::uint64_t>> sums;
  const auto write = [&](const std::vector<TensorSlice>& slices) {
    CheckpointInfo info;
    info.step = std::ssize(sums) + 1;
    const std::string path =
        write_checkpoint(runtime().world(), runtime().recorder(), folder, info, slices);
    Checkpoint checkpoint = Checkpoint::open(runtime().world(), path);
    std::vector<std::uint64_t>& found = sums.emplace_back();
    for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
      found.push_back(tensor.checksum);
    }
    return checkpoint;
  };
  for (const GridShape& shape : grids()) {
    const ProcessGrid grid(runtime(), shape);
    const auto make_stage = [&](std::optional<std::uint64_t> seed) {
      parallel::StageOptions with_seed = options;
      with_seed.seed = seed;
      return std::make_unique<parallel::Stage>(ctx, grid, models::gpt_plan(model), with_seed);
    };
    const auto drawn = make_stage(kSeed), read = make_stage({});
    if (sums.empty()) {
      write(runtime().rank() == 0 ? checkpoint_slices(*drawn, nullptr, false)
                                  : std::vector<TensorSlice>());
    }
    const std::vector<TensorSlice> mine = checkpoint_slices(*drawn, nullptr, true);
    EXPECT_FALSE(mine.empty()) << "of rank " << runtime().rank() << ", " << shape.to_string();
    const Checkpoint checkpoint = write(mine);
    EXPECT_EQ(sums.back(), sums.front()) << shape.to_string();
    read_checkpoint(ctx, checkpoint, *read, checkpoint_slices(*read, nullptr, false));
    for (std::size_t i = 0; i < drawn->groups().size(); ++i) {
      const auto values = [&](const parallel::Stage& stage) {
        return as_floats(ctx, stage.groups()[i]->read_values(ctx));
      };
      EXPECT_EQ(values(*read), values(*drawn));
      EXPECT_EQ(as_floats(ctx, read->groups()[i]->weight_shard()),
                as_floats(ctx, drawn->groups()[i]->weight_shard()));
    }
  }
  runtime().world().barrier().wait_host();
  return sums.front();
}

// Whoever writes it, a checkpoint holds the same data; and each rank reads what its shard holds.
TEST_F(FlatGroups, ACheckpointsDataDoNotDependOnItsWriters) {
  write_and_read(ctx_, {});
}

// Master values in two halves, too: files hold what they hold of those in fp32.
TEST_F(FlatGroups, ACheckpointHoldsSplitMastersWhole) {
  const auto with = [&](DType compute, bool split) {
    return write_and_read(ctx_, {.compute = compute, .split_masters = split});
  };
  EXPECT_EQ(with(DType::kBF16, true), with(DType::kF32, false));
}

// Frozen weights of 16 bits, too, which files hold in fp32.
TEST_F(FlatGroups, ACheckpointHoldsFrozenWeightsOnce) {
  const nn::ModelPlan plan = models::gpt_plan(models::gpt_preset("test-gpt"));
  const auto frozen = NamePatterns::of_list("embedding.*,blocks.*.mlp.*,blocks.3.*");
  write_and_read(ctx_, {.compute = DType::kBF16, .trained = nn::trained_parameters(plan, frozen)});
}

// What rounding changes is named.
TEST_F(FlatGroups, FrozenWeightsSayWhatTheyRound) {
  const ProcessGrid grid(runtime(), {runtime().size(), 1, 1});
  const models::GptConfig model = models::gpt_preset("test-gpt");
  const nn::ModelPlan plan = models::gpt_plan(model);
  parallel::StageOptions options{
      .compute = DType::kBF16,
      .trained = nn::trained_parameters(plan, NamePatterns::of_list("embedding.*,blocks.0.*")),
      .seed = {}};
  parallel::Stage stage(ctx_, grid, plan, options);
  std::set<std::string> rounded;
  stage.draw_initial_values(ctx_, kSeed, &rounded);
  EXPECT_TRUE(rounded.contains("embedding.weight"));
  EXPECT_TRUE(rounded.contains("blocks.0.mlp.up.weight"));
  EXPECT_FALSE(rounded.contains("blocks.0.norm1.weight")) << "it is 1";
  EXPECT_FALSE(rounded.contains("blocks.1.mlp.up.weight")) << "it trains";
  for (const nn::FlatGroup* group : stage.groups()) {
    EXPECT_EQ(group->master().defined(), group->trains()) << group->name();
    EXPECT_EQ(group->gradient_shard().defined(), group->trains()) << group->name();
  }
}

}  // namespace
}  // namespace trireme::testing
