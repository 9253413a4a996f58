// Gradients of a transformer's products and biases on an emulated GPU: which memory they need, and
// in which pass they are made.
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/nn/parameter.h"
#include "trireme/ops/elementwise.h"

#include "support/fake_cuda.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"
#include "support/small_vit.h"

namespace trireme::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> of(ops::Context& ctx, const Tensor& x) {
  ctx.stream.synchronize();
  std::vector<float> values;
  for (const double value : values_of(x)) values.push_back(static_cast<float>(value));
  return values;
}

// A group of the matrices of two layers and, without `products`, of a table.
struct Matrices {
  nn::ParameterSet parameters;
  std::vector<nn::Parameter*> made;

  explicit Matrices(bool products) {
    for (const char* name : {"up.weight", "down.weight"}) {
      made.push_back(&parameters.add({.name = name,
                                      .placement = nn::Placement::whole({3, 5}),
                                      .initial = nn::Initializer::constant(1.0f),
                                      .holders = {},
                                      .overwrites = true}));
    }
    if (!products) {
      parameters.add({.name = "table",
                      .placement = nn::Placement::whole({2, 5}),
                      .initial = nn::Initializer::constant(1.0f),
                      .holders = {}});
    }
    parameters.form_groups("block");
  }
  nn::FlatGroup& group() { return *parameters.groups().front(); }
};

TEST(FirstContributions, OfProductsOverwriteWhatIsThere) {
  for (const bool on_gpu : {true, false}) {
    for (const bool products : {true, false}) {
      ops::Context ctx = on_gpu ? make_test_context() : ops::make_cpu_context(1);
      Matrices matrices(products);
      nn::FlatGroup& group = matrices.group();
      group.materialize(ctx, {}, ctx.allocate({group.extent()}, DType::kF32));
      ops::fill(ctx, group.gradients(), kNan);
      group.begin_gradients(ctx);
      const bool overwrites = on_gpu && products;
      EXPECT_EQ(nn::take_beta(matrices.made), overwrites ? 0.0f : 1.0f);
      EXPECT_EQ(nn::take_beta(matrices.made), 1.0f) << "the second one";
      // The next run's first contribution never comes for one of them.
      ops::fill(ctx, group.gradients(), kNan);
      group.begin_gradients(ctx);
      const nn::Parameter& up = *matrices.made[0];
      EXPECT_EQ(matrices.made[1]->take_beta(), overwrites ? 0.0f : 1.0f);
      up.write_gradient(ctx);
      EXPECT_EQ(of(ctx, up.gradient()), std::vector<float>(15));
      up.write_gradient(ctx);
      const std::int64_t end = group.elements();
      if (end < group.extent()) {
        EXPECT_EQ(of(ctx, group.gradients().flat_range(end, group.extent())),
                  std::vector<float>(static_cast<std::size_t>(group.extent() - end)));
      }
    }
  }
}

std::string trained(const ops::Context& ctx, const GridShape& shape, const char* schedule,
                    DType compute, bool spoils) {
  parallel::StepOptions options;
  options.stage.compute = compute;
  options.schedule = schedule;
  PictureTraining training(shape, options, models::vit_plan(small_vit()), ctx);
  for (int step = 0; step < 2; ++step) {
    if (spoils) {
      for (const nn::FlatGroup* group : training.stage().groups()) {
        ops::fill(training.ctx(), group->gradients(), kNan);
      }
    }
    EXPECT_TRUE(training.train(step, 2, 2).finite);
  }
  training.ctx().stream.synchronize();
  return training.bits();
}

// The last one of these: there is no way back from the device. Where weight gradients wait, biases
// have theirs from a pass of their own, with the bits of those that norms make.
TEST(FirstContributions, HaveTheSameBitsInAllSchedules) {
  const int ranks = runtime().size();
  const ops::Context ctx = make_test_context();
  runtime().use_device(ctx.cuda, 0, DeviceBackend::kMpi);
  const Runtime::DeviceUse use(runtime());
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const std::string whole = trained(ctx, {1, ranks, 1}, "1f1b", compute, false);
    EXPECT_EQ(trained(ctx, {1, ranks, 1}, "1f1b", compute, true), whole) << "after other gradients";
    if (ranks > 1) {
      EXPECT_EQ(trained(ctx, {1, ranks, 1}, "zb-h1", compute, false), whole);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
