#include "plan/layout_estimate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"

namespace trireme::plan {
namespace {

// Middle blocks that the four stages of the measured model hold: what a block adds is what the
// third has beyond the second.
constexpr std::array kMiddleOfStage = {1, 1, 2, 1};
constexpr int kMiddleMeasured = 5;

// The bytes of master weights, which are there where weights have a type of less than 32 bits. They
// are as large as gradients then, or half of that where they are split.
double masters_of(double parameters, double gradients, bool split) {
  constexpr double kHasMasters = 1.2;
  if (split) return gradients / 2.0;
  return parameters > kHasMasters * gradients ? gradients : 0.0;
}

// The longest run of blocks of one kind: [first, second).
std::pair<int, int> middle_of(const nn::ModelPlan& model) {
  std::pair<int, int> longest{0, 0};
  const int count = static_cast<int>(model.blocks.size());
  for (int begin = 0; begin < count;) {
    int end = begin + 1;
    const std::string& kind = model.blocks[static_cast<std::size_t>(begin)].kind;
    while (end < count && !kind.empty() &&
           model.blocks[static_cast<std::size_t>(end)].kind == kind) {
      ++end;
    }
    if (end - begin > longest.second - longest.first) longest = {begin, end};
    begin = end;
  }
  return longest;
}

// Cuts so many equal blocks, and what lies before and behind them, measured in blocks, into parts.
// Returns the largest part of the best cut.
double largest_part(int middle, int parts, double before, double behind) {
  const double even = (middle + before + behind) / parts;
  std::vector<double> sizes;
  for (int whole = 0; whole <= std::ceil(even) + 1; ++whole) {
    for (const double end : {0.0, before, behind}) sizes.push_back(whole + end);
  }
  std::ranges::sort(sizes);
  for (const double size : sizes) {
    if (size < std::max({even, before, behind}) - 1e-9) continue;
    const double held = (parts - 2) * std::floor(size) + std::floor(size - before + 1e-9) +
                        std::floor(size - behind + 1e-9);
    if (held >= middle) return size;
  }
  return sizes.back();
}

// Keeps so many of the middle blocks.
void shorten(DryRunInput& input, int begin, int end, int kept) {
  const auto erase = [&](auto& list) {
    list.erase(list.begin() + begin + kept, list.begin() + end);
  };
  erase(input.model.blocks);
  if (!input.step.stage.trained.elements.empty()) erase(input.step.stage.trained.elements);
}

}  // namespace

NetworkCosts& LayoutEstimate::network_of(const GridShape& grid) {
  std::unique_ptr<NetworkCosts>& network =
      networks_[fmt::format("{} {}", grid.to_string(), grid[Axis::kShard])];
  if (!network) network = options_.network(grid);
  return *network;
}

const LayoutEstimate::Blocks& LayoutEstimate::measured(const Layout& layout) {
  const Key key{layout.grid[Axis::kTensor], layout.micro, layout.recompute,
                layout.sequence_parallel, layout.schedule.starts_with("zb-")};
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  Layout all = layout;
  all.recomputed_blocks.reset();
  return blocks_.emplace(key, measure(all)).first->second;
}

LayoutEstimate::Blocks LayoutEstimate::blocks_of(const Layout& layout, bool on_first_stage) {
  const Blocks& recomputed = measured(layout);
  if (!layout.recomputed_blocks || !recomputed.known) return recomputed;
  Layout none = layout;
  none.recompute = "none";
  const Blocks& kept = measured(none);
  if (!kept.known) return kept;
  const int stages = layout.grid[Axis::kPipeline];
  const auto share = [](double count, double of) {
    return of > 0.0 ? std::clamp(count / of, 0.0, 1.0) : 0.0;
  };
  // In the order of the model. One without equal blocks is all before them, and stages have equal
  // shares of it.
  Blocks made = recomputed;
  double left = *layout.recomputed_blocks;
  const double before = recomputed.before / (recomputed.middle == 0 ? stages : 1.0);
  made.first = between(kept.first, recomputed.first, share(left, before));
  if (on_first_stage || stages == 1) left -= before;
  const double middle = std::ceil(static_cast<double>(recomputed.middle) / stages);
  const double of_middle = share(left, middle);
  made.block = between(kept.block, recomputed.block, of_middle);
  made.last = between(kept.last, recomputed.last, share(left - middle, recomputed.after));
  // The backward of the blocks that keep all comes first, and leaves their memory to those that are
  // computed again.
  made.transient = std::max(
      kept.transient, recomputed.transient - (1.0 - of_middle) * middle * kept.block.activations);
  return made;
}

// The dry run of one micro-batch whose differences between stages are the blocks' costs: a model
// with a few of the middle blocks on four stages, or all of a model that has fewer, on one.
std::optional<DryRunInput> LayoutEstimate::measured_input(const Layout& layout,
                                                          Blocks& made) const {
  Layout alone = layout;
  alone.shard_stage = 0;
  alone.schedule = layout.schedule.starts_with("zb-") ? "zb-h1" : "1f1b";
  alone.chunks = 1;
  alone.grid = GridShape(1, 1, layout.grid[Axis::kTensor]);
  std::optional<DryRunInput> input = options_.input(alone);
  if (!input) return input;
  const auto [begin, end] = middle_of(input->model);
  const int blocks = static_cast<int>(input->model.blocks.size());
  made.known = true;
  made.split = input->step.stage.split_masters;
  const bool composed = end - begin >= kMiddleMeasured;
  made.before = composed ? begin : blocks;
  made.middle = composed ? end - begin : 0;
  made.after = composed ? blocks - end : 0;
  if (composed) {
    shorten(*input, begin, end, kMiddleMeasured);
    input->grid = GridShape(1, static_cast<int>(kMiddleOfStage.size()), layout.grid[Axis::kTensor]);
    input->step.stage.cut.assign(kMiddleOfStage.begin(), kMiddleOfStage.end());
    input->step.stage.cut.front() += made.before;
    input->step.stage.cut.back() += made.after;
  }
  input->meeting.reset();
  input->islands = 1;
  input->recomputed_steps = 0;
  input->step.work = parallel::WorkSplit::even(1, 1);
  input->step.schedule = alone.schedule;
  return input;
}

// What a stage takes and holds: the times of its phases as if each communication but messages were
// exposed.
LayoutEstimate::Cost LayoutEstimate::cost_of(const DryRunResult& stage, NetworkCosts& network,
                                             double launch) const {
  Cost cost;
  double* phase = &cost.rest;
  double calls = 0.0;
  const auto leave = [&] {
    *phase = std::max(*phase, calls * launch);
    calls = 0.0;
  };
  for (const ProgramEntry& entry : stage.program.entries) {
    const std::string& name = stage.program.name_of(entry);
    if (entry.kind == ProgramEntry::Kind::kPhase) {
      leave();
      phase = name == "forward" ? &cost.forward : name == "backward" ? &cost.backward : &cost.rest;
    } else if (entry.kind == ProgramEntry::Kind::kCompute ||
               entry.kind == ProgramEntry::Kind::kCopy) {
      *phase += options_.device->seconds(entry, name) * options_.device->device().constants.pace;
      ++calls;
    } else if (entry.kind == ProgramEntry::Kind::kPost) {
      const ProgramCommunication& posted = stage.program.communication(entry);
      const DryLane& lane = stage.lanes.at(posted.lane);
      if (posted.peer >= 0) {
        if (name == "send") cost.sent = static_cast<double>(posted.bytes);
        continue;
      }
      const CommunicationCost one = network.cost(name, lane.group, lane.ranks, posted.bytes);
      *phase += one.latency + one.flow;
    }
  }
  leave();
  const auto held = [&](MemoryUse use) {
    return static_cast<double>(stage.memory.peak[static_cast<std::size_t>(use)]);
  };
  cost.parameters = held(MemoryUse::kParameters);
  cost.gradients = held(MemoryUse::kGradients);
  cost.optimizer = held(MemoryUse::kOptimizer);
  cost.activations = held(MemoryUse::kActivations);
  cost.workspace = held(MemoryUse::kWorkspace);
  return cost;
}

// What `more` has beyond `fewer`.
LayoutEstimate::Cost LayoutEstimate::beyond(const Cost& more, const Cost& fewer) {
  const auto minus = [](double a, double b) { return std::max(0.0, a - b); };
  return {.forward = minus(more.forward, fewer.forward),
          .backward = minus(more.backward, fewer.backward),
          .rest = minus(more.rest, fewer.rest),
          .parameters = minus(more.parameters, fewer.parameters),
          .gradients = minus(more.gradients, fewer.gradients),
          .optimizer = minus(more.optimizer, fewer.optimizer),
          .activations = minus(more.activations, fewer.activations),
          .workspace = std::max(more.workspace, fewer.workspace),
          .sent = more.sent};
}

// What a block costs on average where this share of blocks is recomputed.
LayoutEstimate::Cost LayoutEstimate::between(const Cost& kept, const Cost& recomputed,
                                             double share) {
  Cost mean = recomputed;
  for (double Cost::*part : {&Cost::forward, &Cost::backward, &Cost::rest, &Cost::activations}) {
    mean.*part = std::lerp(kept.*part, recomputed.*part, share);
  }
  mean.workspace = std::max(kept.workspace, recomputed.workspace);
  return mean;
}

LayoutEstimate::Blocks LayoutEstimate::measure(const Layout& layout) {
  Blocks made;
  const std::optional<DryRunInput> input = measured_input(layout, made);
  if (!input) return made;
  NetworkCosts& network = network_of(input->grid);
  const double launch =
      input->device.on_gpus() && !input->step.cuda_graphs ? options_.device->device().launch : 0.0;
  std::vector<Cost> stages;
  for (const DryRunResult& stage : record_stages(*input, 1)) {
    stages.push_back(cost_of(stage, network, launch));
  }
  if (stages.size() == 1) {
    made.first = stages.front();
    return made;
  }
  made.block = beyond(stages[2], stages[1]);
  made.block.sent = stages[1].sent;
  made.first = beyond(stages[0], stages[1]);
  made.last = beyond(stages[3], stages[1]);
  made.transient = std::max(0.0, stages[1].activations - made.block.activations);
  return made;
}

LayoutCost LayoutEstimate::cost(const Layout& layout, int samples) {
  // All stages decide the time, the first one the memory.
  const Blocks blocks = blocks_of(layout, /*on_first_stage=*/false);
  if (!blocks.known) return {};
  const int micro_batches = samples / layout.micro / layout.grid.extent(kDataAxes);
  return {.seconds = step_seconds(layout, blocks, micro_batches),
          .bytes = rank_bytes(layout, blocks_of(layout, /*on_first_stage=*/true), micro_batches),
          .known = true};
}

std::vector<int> LayoutEstimate::cut(const Layout& layout) {
  const Blocks blocks = blocks_of(layout, /*on_first_stage=*/false);
  const int stages = layout.grid[Axis::kPipeline];
  if (stages == 1 || layout.chunks > 1 || blocks.middle == 0) return {};
  const auto seconds = [](const Cost& cost) { return cost.forward + cost.backward; };
  std::vector<double> costs;
  const auto add = [&](int count, double all) { costs.insert(costs.end(), count, all / count); };
  if (blocks.before > 0) add(blocks.before, seconds(blocks.first));
  add(blocks.middle, blocks.middle * seconds(blocks.block));
  if (blocks.after > 0) add(blocks.after, seconds(blocks.last));
  const std::vector<int> bounds = parallel::partition_blocks(costs, stages);
  std::vector<int> parts;
  for (std::size_t i = 1; i < bounds.size(); ++i) parts.push_back(bounds[i] - bounds[i - 1]);
  return parts;
}

double LayoutEstimate::step_seconds(const Layout& layout, const Blocks& blocks, int micro_batches) {
  const int stages = layout.grid[Axis::kPipeline];
  // The middle blocks of a stage, where the ends count as their share of one.
  const double of_block = blocks.block.forward + blocks.block.backward;
  const double ends =
      blocks.first.forward + blocks.first.backward + blocks.last.forward + blocks.last.backward;
  const double whole = blocks.middle * of_block + ends;
  double slowest = whole / stages;
  if (blocks.middle > 0 && stages > 1) {
    // A stage of several chunks is cut so that all of them together are even.
    slowest = largest_part(blocks.middle, stages,
                           (blocks.first.forward + blocks.first.backward) / of_block,
                           (blocks.last.forward + blocks.last.backward) / of_block) *
              of_block;
  }
  // How much of the pipeline's filling and draining each schedule leaves.
  double idle = (stages - 1) * whole / stages;
  if (layout.schedule == "interleaved") idle /= layout.chunks;
  if (layout.schedule == "zb-h1") idle /= 3.0;
  if (layout.schedule == "zb-v") idle /= 6.0;
  double filling = 0.0;
  if (stages > 1 && blocks.block.sent > 0.0) {
    NetworkCosts& network = network_of(layout.grid);
    const int next = layout.grid.stride(Axis::kPipeline);
    const auto node_of = [&](int stage) { return stage * next / network.network().ranks_of_node; };
    for (int stage = 0; stage + 1 < stages;) {
      // Neighbours within a node cost alike, and so do those on two.
      const bool leaves = node_of(stage) != node_of(stage + 1);
      int alike = 1;
      while (stage + alike + 1 < stages &&
             leaves == (node_of(stage + alike) != node_of(stage + alike + 1))) {
        ++alike;
      }
      const CommunicationCost message = network.cost(
          "send", GroupLabel("pipeline", Span(Axis::kPipeline), Purpose::kActivations),
          {stage * next, (stage + 1) * next}, static_cast<std::size_t>(blocks.block.sent));
      filling += 2.0 * alike * layout.chunks * (message.latency + message.flow);
      // Activations to the next stage and gradients to the one before share a stage's way out.
      slowest = std::max(slowest, 2.0 * layout.chunks * message.flow);
      stage += alike;
    }
  }
  const double seconds = micro_batches * slowest + idle + filling;
  const double backward = blocks.block.backward * std::max(1, blocks.middle / stages);
  const double shards =
      layout.shard_stage >= 1 ? static_cast<double>(layout.grid[Axis::kShard]) : 1.0;
  const double rest =
      (blocks.block.rest * blocks.middle + blocks.first.rest + blocks.last.rest) / stages / shards;
  return seconds + rest + exposed_by_data(layout, blocks, micro_batches, backward);
}

// Gradients travel beside the backward of the last micro-batch; whole weights of shards, where each
// block is gathered before its use, beside the block before.
double LayoutEstimate::exposed_by_data(const Layout& layout, const Blocks& blocks,
                                       int micro_batches, double backward) {
  if (layout.grid.extent(kDataAxes) == 1) return 0.0;
  NetworkCosts& network = network_of(layout.grid);
  const int stages = layout.grid[Axis::kPipeline];
  const auto seconds = [&](const char* operation, Axes axes, double bytes) {
    if (layout.grid.extent(axes) == 1 || bytes <= 0.0) return 0.0;
    const CommunicationCost one =
        network.cost(operation, GroupLabel("data", Span(axes), Purpose::kGradients),
                     layout.grid.group(0, axes), static_cast<std::size_t>(bytes));
    return one.latency + one.flow;
  };
  const double of_blocks = blocks.block.gradients * blocks.middle / stages;
  const double all = of_blocks + std::max(blocks.first.gradients, blocks.last.gradients);
  if (layout.shard_stage == 0) {
    return std::max(0.0, seconds("all_reduce", kDataAxes, all) - backward);
  }
  const double shards = layout.grid[Axis::kShard];
  // From stage 2 on each micro-batch is reduced, where replicas can divide them so (step_options).
  const auto data = static_cast<unsigned>(layout.grid.extent(kDataAxes));
  const bool each_is_reduced = layout.shard_stage >= 2 && std::has_single_bit(data);
  const double reduction = seconds("reduce_scatter", Axis::kShard, all) +
                           seconds("all_reduce", Axis::kReplicate, all / shards);
  const double exposed =
      std::max(0.0, reduction - backward) * (each_is_reduced ? micro_batches : 1);
  const double weights = blocks.block.parameters -
                         masters_of(blocks.block.parameters, blocks.block.gradients, blocks.split);
  const double each = seconds("all_gather", Axis::kShard, weights);
  if (layout.shard_stage < 3) return exposed + each * blocks.middle / stages;
  const double passes = 2.0 * micro_batches * blocks.middle / stages;
  const double half = (blocks.block.forward + blocks.block.backward) / 2.0;
  return exposed + passes * std::max(0.0, each - half);
}

double LayoutEstimate::rank_bytes(const Layout& layout, const Blocks& blocks,
                                  int micro_batches) const {
  const int stages = layout.grid[Axis::kPipeline];
  const double shards = layout.grid[Axis::kShard];
  const bool v = layout.schedule == "zb-v";
  const parallel::PipelineLayout on_stages{
      stages, layout.chunks,
      v ? parallel::PipelineLayout::Order::kV : parallel::PipelineLayout::Order::kLoop};
  const std::vector<int> live =
      parallel::live_micro_batches(layout.schedule, on_stages, micro_batches);
  const double blocks_of_stage = std::ceil(static_cast<double>(blocks.middle) / stages);
  double most = 0.0;
  for (int stage = 0; stage < stages; ++stage) {
    if (stage != 0 && stage != stages - 1) continue;  // others hold less
    const bool is_first = stage == 0, is_last = stage == stages - 1 || v;
    const auto sum = [&](double Cost::*part) {
      return blocks_of_stage * blocks.block.*part + (is_first ? blocks.first.*part : 0.0) +
             (is_last ? blocks.last.*part : 0.0);
    };
    double gradients = sum(&Cost::gradients), optimizer = sum(&Cost::optimizer);
    double masters = masters_of(sum(&Cost::parameters), gradients, blocks.split);
    double weights = sum(&Cost::parameters) - masters;
    const double of_block = weights / std::max(1.0, blocks_of_stage);
    if (layout.shard_stage >= 1) {
      optimizer /= shards;
      masters /= shards;
    }
    if (layout.shard_stage >= 2) gradients = gradients / shards + 2.0 * blocks.block.gradients;
    if (layout.shard_stage >= 3) weights = weights / shards + 2.0 * of_block;
    double parameters = weights + masters;
    if (blocks.middle == 0) {  // a model without equal blocks: as if stages had equal shares
      parameters /= stages;
      gradients /= stages;
      optimizer /= stages;
    }
    const double held = live[static_cast<std::size_t>(stage)] / static_cast<double>(layout.chunks);
    const double kept =
        blocks_of_stage * blocks.block.activations + (is_first ? blocks.first.activations : 0.0);
    const double activations =
        kept * std::max(1.0, held) + blocks.transient + (is_last ? blocks.last.activations : 0.0);
    most = std::max(most, parameters + gradients + optimizer + activations +
                              std::max(blocks.block.workspace, blocks.last.workspace));
  }
  return most;
}

}  // namespace trireme::plan
