// What ranks hold copies of: it stays equal, a drift is named, and few communicators serve it.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "trireme/base/log.h"
#include "trireme/parallel/copy_check.h"
#include "trireme/parallel/trainer_step.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"
#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"

// MPI's profiling interface: what the tests count, and a library that adds otherwise in some
// communicators than in others.
namespace {

int groups_made = 0;  // communicators
int other_sums = 0;   // that were added otherwise

// Rounds otherwise, as another order of additions may: to an even last bit, downwards. It does the
// same on all ranks of a communicator.
void add_otherwise(void* in, void* in_out, int* count, MPI_Datatype* /*type*/) {
  const auto* x = static_cast<const float*>(in);
  auto* sum = static_cast<float*>(in_out);
  for (int i = 0; i < *count; ++i) {
    sum[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x[i] + sum[i]) & ~1u);
  }
}

bool first_rank_is_odd(MPI_Comm comm) {
  MPI_Group members = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &members);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  const int first = 0;
  int in_world = 0;
  MPI_Group_translate_ranks(members, 1, &first, world, &in_world);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  return in_world % 2 == 1;
}

}  // namespace

extern "C" int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  ++groups_made;
  return PMPI_Comm_create_group(comm, group, tag, made);
}

// Only where MPI's own algorithms carry sums.
extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request* request) {
  static const MPI_Op other = [] {
    MPI_Op made = MPI_OP_NULL;
    MPI_Op_create(add_otherwise, 1, &made);
    return made;
  }();
  if (type == MPI_FLOAT && op == MPI_SUM && first_rank_is_odd(comm)) {
    op = other;
    ++other_sums;
  }
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

namespace trireme::testing {
namespace {

// Norms and learned positions are on both tensor ranks, and so is the only key and value head.
models::GptConfig model() {
  models::GptConfig config = models::gpt_preset("test-gpt");
  config.kv_heads = 1;
  return config;
}

class Copies : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime().size() != 4) GTEST_SKIP() << "for two replicas of two ranks";
    grid_.emplace(runtime(), GridShape{2, 1, 2});
    parallel::StepOptions options;
    options.stage.sequence_parallel = true;
    step_.emplace(ctx_, *grid_, models::gpt_plan(model()), options);
    for (int i = 0; i < 2; ++i) {
      const auto mine = make_batches(ctx_, BatchShape(), 2 * i + grid_->index(kDataAxes), 1, true);
      step_->train(mine, i + 1, 1e-3f, 7);
    }
  }
  void check() { parallel::check_copies(ctx_, step_->stage(), step_->optimizer(), 2); }
  // Changes the last bit of an element of a parameter on one rank: of its weights, or of the
  // optimizer's first state.
  void drift(int rank, const std::string& name, bool state) {
    if (runtime().rank() != rank) return;
    const auto& groups = step_->stage().groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const nn::FlatGroup::Part& part : groups[i]->parts()) {
        if (part.parameter->name() != name) continue;
        const Tensor here = state ? step_->optimizer().states(i, part)[0].second
                                  : nn::FlatGroup::view(groups[i]->master(), part);
        reinterpret_cast<std::uint32_t*>(here.data<float>())[1] ^= 1u;
      }
    }
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  std::optional<ProcessGrid> grid_;
  std::optional<parallel::TrainerStep> step_;
};

TEST_F(Copies, AreEqualAfterSteps) {
  EXPECT_NO_THROW(check());
}

// copies_library_test: the second tensor ranks' data dimension adds otherwise than the first ones'.
TEST_F(Copies, AreEqualWhereALibraryAddsInItsOwnOrders) {
  if (std::getenv("TRIREME_TEST_LIBRARY") == nullptr) GTEST_SKIP() << "without the library";
  EXPECT_EQ(other_sums > 0, runtime().rank() % 2 == 1);
  EXPECT_NO_THROW(check());
}

// They are equal with the library, too. Both tensor ranks hold all weights and states of this
// model.
TEST_F(Copies, AreEqualWhereTheModelHasStates) {
  PictureTraining pictures({2, 1, 2});
  EXPECT_FALSE(pictures.stage().states().empty());
  for (int i = 0; i < 2; ++i) pictures.train(i);
  EXPECT_NO_THROW(
      parallel::check_copies(pictures.ctx(), pictures.stage(), pictures.step().optimizer(), 2));
}

// With comm.reduce bf16 the gradients are sums of rounded ones, the same on all ranks with a copy.
TEST_F(Copies, AreEqualWhereGradientsTravelRounded) {
  parallel::StepOptions options;
  options.reduce = DType::kBF16;
  parallel::TrainerStep rounded(ctx_, *grid_, models::gpt_plan(model()), options);
  const auto mine = make_batches(ctx_, BatchShape(), grid_->index(kDataAxes), 1, true);
  rounded.accumulate(mine);
  for (const nn::FlatGroup* group : rounded.stage().groups()) {
    for (const nn::Parameter* parameter : group->parameters()) {
      if (parameter->spec().holders.partial) continue;  // its holders' sums are added up in fp32
      for (const float gradient : parameter->gradient().span<float>()) {
        EXPECT_EQ(gradient, static_cast<float>(BFloat16(gradient)));
      }
    }
  }
  for (int i = 0; i < 2; ++i) rounded.train(mine, i + 1, 1e-3f, 7);
  EXPECT_NO_THROW(parallel::check_copies(ctx_, rounded.stage(), rounded.optimizer(), 2));
}

// Frozen weights of 16 bits have no state.
TEST_F(Copies, FrozenOnesAreComparedToo) {
  const nn::ModelPlan plan = models::gpt_plan(model());
  parallel::StepOptions options;
  options.stage.compute = DType::kBF16;
  options.stage.trained =
      nn::trained_parameters(plan, NamePatterns::of_list("embedding.*,blocks.1.*"));
  parallel::TrainerStep step(ctx_, *grid_, plan, options);
  const auto mine = make_batches(ctx_, BatchShape(), grid_->index(kDataAxes), 1, true);
  for (int i = 0; i < 2; ++i) step.train(mine, i + 1, 1e-3f, 7);
  const auto check_now = [&] { parallel::check_copies(ctx_, step.stage(), step.optimizer(), 2); };
  EXPECT_NO_THROW(check_now());
  const std::string name = "blocks.1.norm1.weight";
  for (const nn::FlatGroup* group : step.stage().groups()) {
    for (const nn::Parameter* parameter : group->parameters()) {
      if (parameter->name() == name && runtime().rank() == 3) {
        parameter->weight().span<BFloat16>()[1].bits ^= 1u;
      }
    }
  }
  const std::string said = message_of<InternalError>(check_now);
  EXPECT_NE(said.find("the weights of " + name), std::string::npos) << said;
}

// The data dimension of the first tensor ranks adds around a ring, that of the second ones along
// the tree. All holders of a copy hand it on, or none does.
TEST_F(Copies, AreEqualWhereTablesDiffer) {
  runtime().use_planner([](const std::string& name, const std::vector<int>& ranks) {
    CommunicatorPlan plan;
    if (name == "data" && ranks.front() == 0) {
      plan.algorithms = AlgorithmTable(
          {{Collective::kAllReduce, std::numeric_limits<std::size_t>::max(), Algorithm::kRing}});
    }
    return plan;
  });
  ProcessGrid grid(runtime(), GridShape{2, 1, 2});
  runtime().use_planner(nullptr);
  EXPECT_EQ(grid.comm(kDataAxes).fixes_order_of_sums(DeviceKind::kCpu),
            grid.index(Axis::kTensor) == 1);
  parallel::TrainerStep step(ctx_, grid, models::gpt_plan(model()), parallel::StepOptions());
  const auto mine = make_batches(ctx_, BatchShape(), grid.index(kDataAxes), 1, true);
  for (int i = 0; i < 2; ++i) step.train(mine, i + 1, 1e-3f, 7);
  EXPECT_NO_THROW(parallel::check_copies(ctx_, step.stage(), step.optimizer(), 2));
}

TEST_F(Copies, ADriftIsNamedOnAllRanks) {
  drift(3, "blocks.1.norm2.weight", false);
  EXPECT_EQ(
      message_of<InternalError>([&] { check(); }),
      "after step 2 ranks that must hold copies do not, in the weights of blocks.1.norm2.weight: "
      "rank 1 holds one value, rank 3 another. Suspect the memory or the processor of "
      "a rank that differs, and go on from a checkpoint before");
}

// The replicas agree, the copies within them do not.
TEST_F(Copies, ADriftWithinEachReplicaIsFound) {
  for (const int rank : {1, 3}) drift(rank, "blocks.0.attention.key.weight", true);
  const std::string message = message_of<InternalError>([&] { check(); });
  EXPECT_NE(message.find("the optimizer state of blocks.0.attention.key.weight: rank 0 holds "
                         "one value, rank 1 another"),
            std::string::npos)
      << message;
}

// What is split over the tensor ranks has a copy in the other replica.
TEST_F(Copies, ADriftOfASplitMatrixIsFound) {
  drift(0, "blocks.0.mlp.up.weight", false);
  drift(0, "blocks.1.mlp.up.weight", true);
  const std::string message = message_of<InternalError>([&] { check(); });
  EXPECT_NE(message.find("blocks.0.mlp.up.weight: rank 0 holds one value, rank 2 another; 1 "
                         "more of theirs differ"),
            std::string::npos)
      << message;
}

// The copied heads of six layers need as many communicators as those of two: two pairs of ranks
// share a head.
TEST(CopiedHeads, OneCommunicatorServesAStage) {
  if (runtime().size() != 4) GTEST_SKIP() << "for four tensor ranks";
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid grid(runtime(), {1, 1, 4});
  for (const int layers : {2, 6}) {
    models::GptConfig config = model();
    config.layers = layers;
    config.heads = 4;
    config.kv_heads = 2;
    config.tied = false;
    groups_made = 0;
    const parallel::Stage stage(ctx, grid, models::gpt_plan(config), {});
    if (runtime().rank() == 0) {
      print_line(
          fmt::format("{} communicators for the copied heads of {} layers", groups_made, layers));
    }
    EXPECT_EQ(groups_made, 1);
  }
}

}  // namespace
}  // namespace trireme::testing
