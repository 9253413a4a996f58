// The gradient of the loss with respect to every parameter, against central differences of the
// loss. That the ops are right is shown in double precision by their own tests; this shows that the
// tape and the layers put them together rightly, so a tolerance of two percent is enough to tell.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "support/equality.h"
#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

class ModelGradient : public ::testing::TestWithParam<bool> {
 protected:
  double loss(parallel::TrainerStep& step) {
    const auto batches = make_batches(ctx_, shape_, 0, 2, false);
    return parallel::evaluate(ctx_, step.stage(), 2,
                              [&](int i) { return batches[static_cast<std::size_t>(i)]; })
        .loss_sum;
  }

  BatchShape shape_;
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_{trireme::testing::runtime(), {1, 1, 1}, {trireme::testing::runtime().rank()}};
};

TEST_P(ModelGradient, EqualsCentralDifferences) {
  models::GptConfig model = models::gpt_preset(GetParam() ? "test-llama" : "test-gpt");
  model.layers = 2;
  model.tied = !GetParam();
  parallel::TrainerStep step(ctx_, grid_, models::gpt_plan(model), {});
  // Larger weights than a fresh model's, so that every gradient stands out from rounding.
  for (const nn::FlatGroup* group : step.stage().groups()) {
    for (float& value : group->master().span<float>()) value *= 4.0f;
  }
  step.accumulate(make_batches(ctx_, shape_, 0, 2, false));

  for (const nn::Parameter* parameter : step.stage().parameters()) {
    if (zero_in_exact_arithmetic(parameter->name(), model)) continue;
    const auto gradient = parameter->gradient().span<float>();
    // Along the gradient itself: the loss changes by its length, which stands out most.
    double squares = 0.0;
    for (const float g : gradient) squares += double{g} * g;
    ASSERT_GT(squares, 0.0) << parameter->name();
    const double length = std::sqrt(squares);
    const std::vector<float> saved(parameter->weight().span<float>().begin(),
                                   parameter->weight().span<float>().end());
    const double epsilon = 2e-3;
    const auto at = [&](double distance) {
      for (std::size_t i = 0; i < saved.size(); ++i) {
        parameter->weight().span<float>()[i] =
            saved[i] + static_cast<float>(distance * gradient[i] / length);
      }
      return loss(step);
    };
    const double slope = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
    std::copy(saved.begin(), saved.end(), parameter->weight().span<float>().begin());
    EXPECT_NEAR(slope / length, 1.0, 0.02) << parameter->name() << ", gradient norm " << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradient, ::testing::Values(false, true),
                         [](const auto& family) { return family.param ? "llama" : "gpt2"; });

}  // namespace
}  // namespace trireme::testing
