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

}  // namespace
}  // namespace trireme::testing
