// What a dry run says of a rank, compared with what that rank held and sent in real steps, on every
// grid.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/islands.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/step_traffic.h"
#include "trireme/tasks/pictures.h"
#include "trireme/tasks/texts.h"

#include "support/batches.h"
#include "support/decoder_choices.h"
#include "support/equality.h"
#include "support/mpi_test.h"
#include "support/small_convolutional.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

struct Case {
  const char* name;
  GridShape grid;
  bool llama = false, bf16 = false, sequence_parallel = false;
  const char* schedule = "1f1b";
  int micro_batches = 8;
  float dropout = 0.0f;
  bool any_order = false;  // of sums
  int recompute = 0;       // blocks of a run, which is computed again; 0: none
  std::optional<int> recomputed_blocks = {};
  bool whole_weights = true, whole_gradients = true;
  bool splits = false;    // master values, of bf16
  bool run_each = false;  // each micro-batch is a run
  const char* rule = nullptr;
  bool averages = false, clips_each = false;
  const char* frozen = nullptr;
  // "resnet" or "mobilenet", in the place of a model of texts; and whether running statistics are
  // computed anew between steps.
  const char* network = nullptr;
  bool recomputes = false;
  const DecoderChoices* choices = nullptr;
  // Islands of such grids, which meet after the steps.
  int islands = 1;
  std::optional<parallel::MeetingRule> meeting = {};
  int reduce_bits = 32;

  int ranks() const { return islands * grid.ranks(); }
};

// Replicas of which `shards` neighbours share a copy.
GridShape sharded(int data, int shards, int pipeline, int tensor) {
  GridShape shape(data / shards, pipeline, tensor);
  shape[Axis::kShard] = shards;
  return shape;
}

models::GptConfig model_of(const Case& c) {
  models::GptConfig model = c.llama ? small_llama() : small_gpt();
  model.dropout = c.dropout;
  if (c.choices != nullptr) c.choices->apply(model);
  return model;
}

bool is_resnet(const Case& c) {
  return std::string_view(c.network) == "resnet";
}
models::ConvolutionalConfig pictures_of(const Case& c) {
  if (is_resnet(c)) return small_resnet(false);
  return small_mobilenet();
}
nn::ModelPlan plan_of(const Case& c) {
  if (!c.network) return models::gpt_plan(model_of(c));
  return is_resnet(c) ? models::resnet_plan(small_resnet(false))
                      : models::mobilenet_v2_plan(small_mobilenet());
}

plan::DryRunInput input_of(const Case& c) {
  plan::DryRunInput input{.model = plan_of(c),
                          .step = {},
                          .grid = c.grid,
                          .islands = c.islands,
                          .meeting = c.meeting,
                          .micro = 2,
                          .recomputed_steps = c.recomputes ? 3 : 0};
  if (c.network) {
    input.make_batch = [side = pictures_of(c).image](ops::Context& to, std::int64_t micro,
                                                     std::int64_t, const plan::BatchParts& parts) {
      return make_host_pictures(to, micro, {side, side}, parts.inputs, parts.targets);
    };
  } else {
    input.make_batch = [](ops::Context& to, std::int64_t micro, std::int64_t length,
                          const plan::BatchParts& /*parts*/) {
      return make_host_texts(to, micro, length, false);
    };
  }
  if (c.frozen) {
    input.step.stage.trained = nn::trained_parameters(input.model, NamePatterns::of_list(c.frozen));
  }
  input.step.stage.compute = c.bf16 ? DType::kBF16 : DType::kF32;
  input.step.stage.sequence_parallel = c.sequence_parallel;
  input.step.stage.split_masters = c.splits;
  input.step.stage.whole_weights = c.whole_weights;
  input.step.stage.whole_gradients = c.whole_gradients;
  input.step.work = parallel::WorkSplit::even(
      c.micro_batches, c.grid.extent(kDataAxes),
      c.run_each ? parallel::BatchRuns{c.micro_batches, true} : parallel::BatchRuns());
  input.step.stage.separates_uses = c.run_each;
  const auto layout = parallel::schedule_layout(c.schedule, c.grid[Axis::kPipeline], {});
  input.step.stage.chunks = layout.chunks;
  input.step.stage.order = layout.order;
  input.step.schedule = c.schedule;
  if (c.rule) {
    input.step.optimizer = optimizer_of_rule(c.rule);
    if (c.bf16) input.step.optimizer.rule.matrices = DType::kBF16;
  }
  if (c.averages) input.step.optimizer.average.emplace();
  input.step.stage.weights_apart = input.step.optimizer.weights_apart();
  input.step.clip_each = c.clips_each ? 1.0f : 0.0f;
  input.step.reduce = c.bf16 ? DType::kBF16 : DType::kF32;
  input.step.reduce_bits = c.reduce_bits;
  if (c.reduce_bits < 32) input.step.reduce = DType::kF32;
  input.keeps_order = !c.any_order;
  if (c.recompute > 0) {
    input.step.runs = {c.recompute, parallel::Recompute::kFull, c.recomputed_blocks};
  }
  return input;
}

// Calls and bytes by communicator, operation and peer.
using Traffic =
    std::map<std::tuple<std::string, std::string, int>, std::pair<std::int64_t, double>>;

// `first_rank` is that of the island: a dry run is of the first one.
Traffic traffic_by_operation(const Trace& trace, int first_rank) {
  Traffic traffic;
  for (const Operation& operation : trace.operations) {
    const int peer = operation.peer < 0 ? operation.peer : operation.peer - first_rank;
    auto& [calls, bytes] =
        traffic[{trace.lanes.at(operation.lane).name, std::string(operation.name), peer}];
    ++calls;
    bytes += static_cast<double>(operation.bytes);
  }
  return traffic;
}

Traffic traffic_by_operation(const std::vector<DryTraffic>& recorded) {
  Traffic traffic;
  for (const DryTraffic& one : recorded) {
    const bool to_peer = one.operation == "send" || one.operation == "receive";
    auto& [calls, bytes] =
        traffic[{one.group.name, one.operation, to_peer ? one.ranks.front() : -1}];
    calls += one.calls;
    bytes += static_cast<double>(one.bytes);
  }
  return traffic;
}

std::string text_of(const Traffic& traffic) {
  std::string text;
  for (const auto& [key, sums] : traffic) {
    text += fmt::format("{} {} {}: {} calls, {} bytes\n", std::get<0>(key), std::get<1>(key),
                        std::get<2>(key), sums.first, sums.second);
  }
  return text;
}

// What each lane did, in its order, by communicator, peer and direction.
using Lanes = std::map<std::tuple<std::string, int, bool>, std::string>;

Lanes lanes_of(Trace trace, int first_rank) {
  std::ranges::stable_sort(trace.operations, {}, &Operation::sequence);
  Lanes lanes;
  for (const Operation& operation : trace.operations) {
    const int peer = operation.peer < 0 ? operation.peer : operation.peer - first_rank;
    lanes[{trace.lanes.at(operation.lane).name, peer, operation.sends}] +=
        fmt::format("{} {}\n", operation.name, operation.bytes);
  }
  return lanes;
}

Lanes lanes_of(const plan::DryRunResult& dry) {
  Lanes lanes;
  for (const ProgramCommunication& posted : dry.program.communications) {
    const std::string& name = dry.program.names[static_cast<std::size_t>(posted.name)];
    lanes[{dry.lanes.at(posted.lane).group.name, posted.peer, name == "send"}] +=
        fmt::format("{} {}\n", name, posted.bytes);
  }
  return lanes;
}

// The phases and the waits for communication, in the order of their begins. A wait for what is done
// already takes no time, and a recorder does not tell of it.
std::string order_of(Trace trace) {
  std::ranges::stable_sort(trace.activities, {}, [](const Activity& activity) {
    return std::pair(activity.begin_ns, -activity.end_ns);
  });
  std::string order;
  for (const Activity& activity : trace.activities) {
    if (activity.kind == Activity::Kind::kCompute) {
      order += fmt::format("{} {}\n", activity.name, activity.number);
    }
  }
  return order;
}

// The program tells of each phase when it begins, and when the one within it has ended.
std::string order_of(const StepProgram& program) {
  std::string order;
  std::vector<std::string> open;
  for (const ProgramEntry& entry : program.entries) {
    if (entry.kind != ProgramEntry::Kind::kPhase) continue;
    const std::string text = fmt::format("{} {}\n", program.name_of(entry), entry.number);
    const bool ends = open.size() > 1 ? open[open.size() - 2] == text : entry.number < 0;
    if (program.name_of(entry).empty()) {
      open.clear();
    } else if (ends && open.size() > 1) {
      open.pop_back();
    } else {
      open.push_back(text);
      order += text;
    }
  }
  return order;
}

// Waits that a recorder told of are among those of the program: in the same order, unless some are
// done when they would not wait.
void expect_waits_among(const Trace& trace, const plan::DryRunResult& dry) {
  std::vector<std::string> recorded;
  for (const ProgramEntry& entry : dry.program.entries) {
    if (entry.kind != ProgramEntry::Kind::kWait) continue;
    const ProgramCommunication& posted = dry.program.communication(entry);
    recorded.push_back(dry.program.names[static_cast<std::size_t>(posted.name)] + " of " +
                       dry.lanes.at(posted.lane).group.name);
  }
  const bool ordered = std::ranges::none_of(dry.program.entries, [](const ProgramEntry& entry) {
    return entry.kind == ProgramEntry::Kind::kLater;
  });
  auto next = recorded.begin();
  for (const Activity& activity : trace.activities) {
    if (activity.kind != Activity::Kind::kWait) continue;
    const auto found = std::find(next, recorded.end(), activity.name);
    ASSERT_TRUE(found != recorded.end()) << activity.name << " is not waited for in the program";
    if (ordered) {
      next = std::next(found);
    } else {
      recorded.erase(found);
      next = recorded.begin();
    }
  }
}

// The micro-batches of a rank whose replica begins with micro-batch `first`.
std::vector<nn::MicroBatch> batches_of(ops::Context& ctx, const Case& c,
                                       const plan::DryRunInput& input, const parallel::Stage& stage,
                                       int first, int count) {
  if (!c.network) {
    const BatchShape shape{model_of(c).vocabulary, input.micro, input.model.length};
    return make_batches(ctx, shape, first, count, true);
  }
  std::vector<nn::MicroBatch> made;
  for (int i = 0; i < count; ++i) {
    const nn::HostMicroBatch host = input.make_batch(
        ctx, input.micro, input.model.length,
        {.inputs = stage.grid().index(Axis::kPipeline) == 0, .targets = stage.last()});
    for (std::int64_t& sample : host.samples.span<std::int64_t>()) sample = first + i;
    for (const nn::Field& field : host.fields) {
      if (field.name == nn::kTargets) {
        std::ranges::fill(field.tensor.span<std::int32_t>(), 1);
        continue;
      }
      float number = 0.0f;
      for (float& pixel : field.tensor.span<float>()) pixel = std::sin(number++);
    }
    made.push_back(host.to_device(ctx, input.micro, true));
  }
  return made;
}

// This rank's place in the grid of its island.
int place_of(const Case& c) {
  return runtime().rank() % c.grid.ranks();
}

class DryRunBesideRealOne : public ::testing::TestWithParam<Case> {};

TEST_P(DryRunBesideRealOne, HoldsAndSendsTheSame) {
  const Case& c = GetParam();
  if (c.ranks() != runtime().size()) GTEST_SKIP() << "another number of ranks";
  plan::DryRunInput input = input_of(c);
  input.records = true;
  ops::Context ctx = ops::make_cpu_context(1);
  runtime().use_algorithms(c.any_order ? AlgorithmTable::any_order() : AlgorithmTable());
  const Islands islands(runtime(), c.grid, c.islands);
  const ProcessGrid grid(runtime(), c.grid, islands.ranks());
  runtime().use_algorithms({});
  const parallel::WorkSplit& work = input.step.work;
  const int replica = grid.index(kDataAxes), mine = work.count(replica);
  parallel::TrainerStep step(ctx, grid, input.model, input.step);
  std::optional<parallel::Meeting> meeting;
  if (c.meeting) meeting.emplace(ctx, step, islands.across(), *c.meeting);
  const auto batches = [&] {
    return batches_of(ctx, c, input, step.stage(), work.micro(replica, 0).number, mine);
  };
  Trace trace;
  for (int number = 1; number <= 2; ++number) {
    const auto of_step = batches();
    runtime().recorder().start_trace();
    step.train(of_step, number, 1e-3f, 1);
    trace = runtime().recorder().take_trace();
  }
  for (int fragment = 0; c.meeting && fragment < c.meeting->fragments; ++fragment) {
    meeting->start(fragment, 1);
    meeting->finish(fragment);
  }
  if (c.recomputes) {
    step.use_averages(true);
    step.recompute_states(2, batches);
    step.use_averages(false);
  }
  const MemoryStats real = ctx.allocator->stats();
  const plan::DryRunResult dry = plan::dry_run(input, place_of(c));

  EXPECT_EQ(dry.micro_batches, mine);
  EXPECT_EQ(dry.memory.live, real.live);
  const auto expected = static_cast<double>(real.total_peak);
  // When a message leaves its buffer depends on time.
  const double tolerance = grid.extent(Axis::kPipeline) > 1 ? 0.03 : 0.0;
  EXPECT_NEAR(static_cast<double>(dry.memory.total_peak), expected, tolerance * expected);
  if (runtime().rank() == 0) {
    fmt::print("{}: dry {} bytes, real {}\n", c.name, dry.memory.total_peak, real.total_peak);
  }
  EXPECT_EQ(text_of(traffic_by_operation(dry.traffic)),
            text_of(traffic_by_operation(trace, islands.ranks().front())));
  if (plan::recorded_micro_batches(input).periods > 0) return;  // not all are recorded
  EXPECT_EQ(lanes_of(dry), lanes_of(trace, islands.ranks().front()));
  EXPECT_EQ(order_of(dry.program), order_of(trace));
  expect_waits_among(trace, dry);
}

// What the start of a run goes by: the largest of the kinds that may be largest.
TEST_P(DryRunBesideRealOne, TheLargestIsThatOfAllRanks) {
  const Case& c = GetParam();
  if (c.ranks() != runtime().size()) GTEST_SKIP() << "another number of ranks";
  const plan::DryRunInput input = input_of(c);
  const plan::DryRunResult mine = plan::dry_run(input, place_of(c));
  const auto most = [](double here) {
    return runtime().world().all_reduce_host(here, ReduceOp::kMax);
  };
  const std::vector<plan::DryRunResult> largest = plan::dry_run_largest(input);
  EXPECT_EQ(largest_of(largest).total, most(static_cast<double>(mine.memory.total_peak)));
  const GridTraffic all = traffic_of(largest), one = traffic_of(mine.traffic);
  EXPECT_EQ(all.data, most(one.data));
  EXPECT_EQ(all.pipeline, most(one.pipeline));
  EXPECT_EQ(all.tensor, most(one.tensor));
  EXPECT_EQ(all.ends, most(one.ends));
}

// Plans record one step, since each does what the one before it did.
TEST_P(DryRunBesideRealOne, OneStepIsLikeAnyOther) {
  const Case& c = GetParam();
  if (c.ranks() != runtime().size()) GTEST_SKIP() << "another number of ranks";
  if (runtime().rank() != 0) return;
  plan::DryRunInput input = input_of(c);
  input.records = true;
  const auto [counts, periods] = plan::recorded_micro_batches(input);
  if (periods > 0) return;  // a dry run has more of them
  for (const plan::DryRunResult& recorded : plan::record_stages(input, counts.front())) {
    const plan::DryRunResult second = plan::dry_run(input, recorded.place);
    EXPECT_FALSE(recorded.program.entries.empty());
    EXPECT_EQ(recorded.program, second.program);
  }
}

// Each gradient is summed in the group of a shard, and each shard among the groups.
TEST(StepTraffic, SumsOfReplicasAreThoseWithinAndAmongGroups) {
  const auto data = [](const GridShape& grid) {
    return traffic_of(plan::dry_run(input_of({.name = "traffic", .grid = grid}), 0).traffic).data;
  };
  const double whole = data({4, 1, 1});
  EXPECT_GT(whole, 0.0);
  EXPECT_NEAR(data(sharded(4, 4, 1, 1)) / whole, 1.0, 0.02);
  EXPECT_NEAR(data(sharded(4, 2, 1, 1)) / whole, 1.5, 0.03);
}

const Case kCases[] = {
    {.name = "alone", .grid = {1, 1, 1}},
    {.name = "data", .grid = {2, 1, 1}, .micro_batches = 7},
    {.name = "pipeline", .grid = {1, 2, 1}},
    {.name = "tensor", .grid = {1, 1, 2}},
    {.name = "data_bf16", .grid = {2, 1, 1}, .llama = true, .bf16 = true},
    {.name = "sequence_parallel", .grid = {1, 1, 2}, .sequence_parallel = true},
    {.name = "recompute", .grid = {1, 1, 1}, .dropout = 0.1f, .recompute = 1},
    {.name = "recompute_tensor",
     .grid = {1, 1, 2},
     .llama = true,
     .sequence_parallel = true,
     .recompute = 2},
    {.name = "recompute_mixed", .grid = {1, 2, 2}, .schedule = "gpipe", .recompute = 1},
    {.name = "recompute_some", .grid = {1, 1, 1}, .recompute = 2, .recomputed_blocks = 3},
    {.name = "recompute_some_tensor",
     .grid = {1, 1, 2},
     .llama = true,
     .bf16 = true,
     .sequence_parallel = true,
     .recompute = 1,
     .recomputed_blocks = 3},
    {.name = "recompute_some_chunks",
     .grid = {1, 2, 1},
     .schedule = "zb-v",
     .recompute = 1,
     .recomputed_blocks = 2},
    {.name = "recompute_some_interleaved",
     .grid = {1, 2, 2},
     .schedule = "interleaved",
     .recompute = 1,
     .recomputed_blocks = 2},
    {.name = "recompute_some_shards",
     .grid = sharded(2, 2, 2, 1),
     .recompute = 2,
     .recomputed_blocks = 1,
     .whole_weights = false},
    {.name = "any_order", .grid = {1, 1, 4}, .llama = true, .any_order = true},
    {.name = "gpipe", .grid = {1, 2, 1}, .llama = true, .schedule = "gpipe"},
    {.name = "data4", .grid = {4, 1, 1}},
    {.name = "pipeline4", .grid = {1, 4, 1}},
    {.name = "tensor4", .grid = {1, 1, 4}, .llama = true},
    {.name = "shards_of_state", .grid = sharded(2, 2, 1, 1), .bf16 = true},
    {.name = "shards", .grid = sharded(2, 2, 1, 1), .micro_batches = 7, .whole_weights = false},
    {.name = "split_masters",
     .grid = sharded(2, 2, 1, 1),
     .bf16 = true,
     .splits = true,
     .rule = "adamw"},
    {.name = "split_masters_of_shards",
     .grid = sharded(2, 2, 2, 1),
     .llama = true,
     .bf16 = true,
     .whole_weights = false,
     .splits = true,
     .rule = "muon by heads"},
    {.name = "shards_of_gradients",
     .grid = sharded(2, 2, 1, 1),
     .micro_batches = 32,
     .whole_gradients = false,
     .run_each = true},
    {.name = "shards_of_gradients_bf16",
     .grid = sharded(4, 2, 1, 1),
     .llama = true,
     .bf16 = true,
     .whole_gradients = false,
     .run_each = true},
    {.name = "shards_of_all",
     .grid = sharded(4, 4, 1, 1),
     .micro_batches = 4,
     .recompute = 2,
     .whole_weights = false,
     .whole_gradients = false},
    {.name = "shards_of_all_pipelined",
     .grid = sharded(2, 2, 2, 1),
     .schedule = "zb-h1",
     .whole_weights = false,
     .whole_gradients = false,
     .run_each = true},
    {.name = "shards_and_copies",
     .grid = sharded(4, 2, 1, 1),
     .llama = true,
     .whole_weights = false},
    {.name = "shards_recomputed",
     .grid = sharded(2, 2, 1, 2),
     .recompute = 2,
     .whole_weights = false},
    {.name = "shards_mixed", .grid = sharded(2, 2, 2, 1), .whole_weights = false},
    {.name = "mixed", .grid = {2, 2, 1}, .micro_batches = 7},
    {.name = "matrices", .grid = {1, 1, 1}, .bf16 = true, .rule = "muon by heads"},
    {.name = "matrices_data", .grid = {2, 1, 1}, .rule = "muon by heads"},
    {.name = "matrices_tensor",
     .grid = {1, 1, 2},
     .llama = true,
     .bf16 = true,
     .rule = "muon by heads"},
    {.name = "matrices_of_shards",
     .grid = sharded(4, 2, 1, 1),
     .whole_weights = false,
     .whole_gradients = false,
     .run_each = true,
     .rule = "muon by heads"},
    {.name = "matrices_mixed", .grid = sharded(2, 2, 1, 2), .llama = true, .rule = "muon by heads"},
    {.name = "lines_of_shards",
     .grid = sharded(4, 2, 1, 1),
     .whole_weights = false,
     .rule = "adafactor",
     .averages = true},
    {.name = "lines_mixed",
     .grid = sharded(2, 2, 1, 2),
     .llama = true,
     .bf16 = true,
     .rule = "adafactor",
     .clips_each = true},
    {.name = "lengths", .grid = {1, 2, 1}, .rule = "lamb", .averages = true, .clips_each = true},
    {.name = "schedule_free", .grid = sharded(2, 2, 1, 1), .rule = "schedule_free"},
    {.name = "gemma3",
     .grid = {1, 1, 1},
     .llama = true,
     .recompute = 1,
     .choices = &kDecoderChoices[0]},
    {.name = "gemma3_tensor",
     .grid = {1, 1, 2},
     .llama = true,
     .bf16 = true,
     .choices = &kDecoderChoices[0]},
    {.name = "olmo2_tensor4", .grid = {1, 1, 4}, .llama = true, .choices = &kDecoderChoices[1]},
    {.name = "neox_pipeline",
     .grid = {1, 2, 1},
     .llama = true,
     .bf16 = true,
     .choices = &kDecoderChoices[2]},
    {.name = "cohere2_shards",
     .grid = sharded(2, 2, 1, 1),
     .llama = true,
     .whole_weights = false,
     .choices = &kDecoderChoices[3]},
    {.name = "granite_mixed",
     .grid = sharded(2, 2, 1, 2),
     .llama = true,
     .choices = &kDecoderChoices[4]},
    {.name = "statistics", .grid = {1, 1, 1}, .averages = true, .network = "mobilenet"},
    {.name = "statistics_data",
     .grid = {2, 1, 1},
     .bf16 = true,
     .averages = true,
     .network = "resnet"},
    {.name = "statistics_anew",
     .grid = {1, 1, 1},
     .rule = "schedule_free",
     .network = "resnet",
     .recomputes = true},
    {.name = "statistics_anew_data",
     .grid = {2, 1, 1},
     .run_each = true,
     .rule = "schedule_free",
     .network = "mobilenet",
     .recomputes = true},
    {.name = "statistics_anew_of_averages",
     .grid = sharded(2, 2, 1, 1),
     .whole_weights = false,
     .averages = true,
     .network = "resnet",
     .recomputes = true},
    {.name = "statistics_anew_mixed",
     .grid = {2, 2, 1},
     .bf16 = true,
     .rule = "schedule_free",
     .network = "resnet",
     .recomputes = true},
    {.name = "mixed_tensor", .grid = {1, 2, 2}, .bf16 = true, .sequence_parallel = true},
    {.name = "frozen",
     .grid = {1, 1, 2},
     .bf16 = true,
     .recompute = 1,
     .frozen = "embedding.*,blocks.[02].*"},
    {.name = "frozen_recompute_some",
     .grid = {1, 2, 1},
     .recompute = 1,
     .recomputed_blocks = 1,
     .frozen = "embedding.*,blocks.0.*"},
    {.name = "frozen_stage",
     .grid = {1, 2, 1},
     .llama = true,
     .frozen = "embedding.*,blocks.[0-2].*"},
    {.name = "frozen_shards_of_state",
     .grid = sharded(2, 2, 1, 1),
     .bf16 = true,
     .frozen = "blocks.*.weight"},
    {.name = "frozen_shards",
     .grid = sharded(2, 2, 2, 1),
     .llama = true,
     .bf16 = true,
     .schedule = "zb-v",
     .whole_weights = false,
     .frozen = "embedding.*,blocks.0.*,blocks.*.norm?.*"},
    {.name = "compressed", .grid = {2, 1, 1}, .micro_batches = 7, .reduce_bits = 8},
    {.name = "compressed_in_rounds",
     .grid = {2, 1, 1},
     .llama = true,
     .bf16 = true,
     .run_each = true,
     .reduce_bits = 8},
    {.name = "compressed_shards",
     .grid = sharded(2, 2, 1, 1),
     .run_each = true,
     .frozen = "blocks.1.*",
     .reduce_bits = 8},
    {.name = "compressed_data4", .grid = {4, 1, 1}, .any_order = true, .reduce_bits = 8},
    {.name = "compressed_shards_and_copies",
     .grid = sharded(4, 2, 1, 1),
     .llama = true,
     .reduce_bits = 8},
    {.name = "compressed_stages", .grid = {2, 2, 1}, .reduce_bits = 8},
    {.name = "compressed_mixed",
     .grid = {2, 1, 2},
     .sequence_parallel = true,
     .any_order = true,
     .reduce_bits = 8},
    {.name = "compressed_statistics",
     .grid = {2, 1, 1},
     .rule = "schedule_free",
     .network = "resnet",
     .recomputes = true,
     .reduce_bits = 8},
    {.name = "compressed_islands",
     .grid = {2, 1, 1},
     .islands = 2,
     .meeting = parallel::MeetingRule{.bits = 8},
     .reduce_bits = 8},
    {.name = "islands", .grid = {1, 1, 1}, .islands = 2, .meeting = parallel::MeetingRule{}},
    {.name = "islands_in_stages",
     .grid = {1, 2, 1},
     .bf16 = true,
     .islands = 2,
     .meeting = parallel::MeetingRule{.rate = 0.7f, .momentum = 0.9f, .fragments = 2}},
    {.name = "islands_of_shards",
     .grid = sharded(2, 2, 1, 1),
     .whole_weights = false,
     .frozen = "blocks.1.*",
     .islands = 2,
     .meeting = parallel::MeetingRule{.rate = 0.7f, .momentum = 0.9f, .fragments = 3, .bits = 4}},
    {.name = "islands_of_pictures",
     .grid = {2, 1, 1},
     .network = "mobilenet",
     .islands = 2,
     .meeting = parallel::MeetingRule{.momentum = 0.9f}},
};
INSTANTIATE_TEST_SUITE_P(Grids, DryRunBesideRealOne, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trireme::testing
