// Tensors without gradient on an emulated GPU, in steps that are captured as a graph.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/fake_cuda.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"

namespace trireme::testing {
namespace {

struct Step {
  bool finite;
  std::string states;
  bool operator==(const Step&) const = default;
};

std::string all_of(const std::map<std::string, std::string>& states) {
  std::string all;
  for (const auto& [name, bits] : states) all += bits;
  return all;
}

// The first one has states as they are before the first step. The loss scale overflows in the first
// steps, which are skipped.
std::vector<Step> train(bool captured) {
  parallel::StepOptions options;
  options.stage.compute = DType::kF16;
  options.loss_scaling = {.initial = 0x1p20f, .largest = 0x1p20f};
  options.cuda_graphs = captured;
  PictureTraining training({1, 1, 1}, options, picture_plan(), make_test_context());
  const auto& gpu = dynamic_cast<const FakeCuda&>(*training.ctx().cuda);
  const std::size_t launches = gpu.launches();
  std::vector<Step> steps = {{false, all_of(training.state_bits())}};
  int finite = 0;
  while (finite < 2 && steps.size() < 20) {
    const bool updated = training.train(0, 2).finite;
    steps.push_back({updated, all_of(training.state_bits())});
    finite += updated ? 1 : 0;
  }
  // All but the first.
  EXPECT_EQ(gpu.launches() - launches, captured ? steps.size() - 2 : 0);
  EXPECT_TRUE(gpu.faults().empty());
  return steps;
}

TEST(StatesOfCapturedSteps, ChangeWhereTheStepIsNotSkipped) {
  const std::vector<Step> steps = train(true);
  std::size_t skipped_replays = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].states == steps[i - 1].states, !steps[i].finite) << "step " << i;
    skipped_replays += !steps[i].finite && i > 1 ? 1 : 0;
  }
  EXPECT_GE(skipped_replays, 2u);
  EXPECT_TRUE(steps.back().finite);
  EXPECT_TRUE(steps == train(false)) << "without capture the states are others";
}

// Norms over replicas, whose moments and sums come from the kernels of a depthwise convolution. The
// last one: there is no way back from the device.
TEST(StatesOfReplicas, AreThoseOfACpu) {
  const int replicas = runtime().size();
  parallel::StepOptions options;
  options.work = parallel::WorkSplit::even(4, replicas, {.dealt = true});
  std::vector<parallel::StepResult> expected;
  PictureTraining cpu({replicas, 1, 1}, options, picture_plan(true));
  for (int step = 0; step < 2; ++step) expected.push_back(cpu.train(step));
  const std::map<std::string, Values> states = cpu.states();
  const ops::Context ctx = make_test_context();
  runtime().use_device(ctx.cuda, 0, DeviceBackend::kMpi);
  const Runtime::DeviceUse use(runtime());
  PictureTraining gpu({replicas, 1, 1}, options, picture_plan(true), ctx);
  for (int step = 0; step < 2; ++step) {
    const parallel::StepResult got = gpu.train(step);
    const parallel::StepResult& of_cpu = expected[static_cast<std::size_t>(step)];
    EXPECT_NEAR(got.loss, of_cpu.loss, 2e-5 * of_cpu.loss);
    EXPECT_NEAR(got.gradient_norm, of_cpu.gradient_norm, 1e-4 * of_cpu.gradient_norm);
  }
  for (const auto& [name, values] : gpu.states()) {
    EXPECT_LT(relative_error(values, states.at(name)), 1e-4) << name;
  }
}

}  // namespace
}  // namespace trireme::testing
