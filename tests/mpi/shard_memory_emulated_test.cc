// Weights that shards are gathered from and to, in memory that is registered with the scripted
// NCCL, on an emulated GPU.
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "trireme/comm/process_grid.h"

#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"

namespace trireme::testing {
namespace {

// The last one of the program: communicators carry tensors of this GPU from now on.
TEST(ShardMemory, WeightsAreRegisteredWhileTheStageLives) {
  if (runtime().size() == 1) GTEST_SKIP() << "one rank has no shards";
  ops::Context ctx = make_test_context();
  auto& gpu = dynamic_cast<FakeCuda&>(*ctx.cuda);
  gpu.uuid = "of rank " + std::to_string(runtime().rank());
  runtime().use_device(ctx.cuda, 0, DeviceBackend::kNccl);
  const FakeNccl& nccl = *current_fake_nccl();
  const auto registered = [&] {
    return nccl.registered(FakeNccl::Registration::kWindow) +
           nccl.registered(FakeNccl::Registration::kBuffer);
  };
  GridShape shape(1, 1, 1);
  shape[Axis::kShard] = runtime().size();
  const ProcessGrid grid(runtime(), shape);
  const Runtime::DeviceUse use(runtime());
  for (const bool trains : {true, false}) {
    for (const bool whole_weights : {true, false}) {
      {
        parallel::Stage stage(
            ctx, grid, picture_plan(),
            {.compute = DType::kBF16, .trains = trains, .whole_weights = whole_weights});
        const std::size_t blocks = trains ? 2 : 1;  // weights, gradients
        EXPECT_EQ(registered(), blocks);
        EXPECT_EQ(nccl.memory(), blocks);
        EXPECT_EQ(nccl.registered(FakeNccl::Registration::kWindow), blocks);
        const nn::FlatGroup* before = nullptr;
        for (const nn::FlatGroup* group : stage.groups()) {
          if (!whole_weights) break;
          if (before != nullptr) {
            EXPECT_EQ(
                group->weights().raw(),
                static_cast<const std::byte*>(before->weights().raw()) + before->weights().bytes());
          }
          before = group;
        }
        const FakeNccl::Places so_far = nccl.places("all_gather");
        stage.weights().connect(ctx);
        ctx.stream.synchronize();
        const FakeNccl::Places now = nccl.places("all_gather");
        EXPECT_EQ(now.registered - so_far.registered, stage.groups().size());
        EXPECT_EQ(now.elsewhere, so_far.elsewhere);
      }
      EXPECT_EQ(registered() + nccl.memory(), 0u);
    }
  }
  EXPECT_TRUE(nccl.faults().empty()) << nccl.faults().front();
  EXPECT_TRUE(gpu.faults().empty()) << gpu.faults().front();
}

}  // namespace
}  // namespace trireme::testing
