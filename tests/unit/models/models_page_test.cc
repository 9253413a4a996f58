// The family that src/models/README.md makes step by step: its code is compiled as the page shows
// it, and its test is run.
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/bigram/bigram_family.h"
#include "support/message_of.h"
#include "support/simulated_training.h"

namespace trireme::testing {
namespace {

#include "bigram_test.cc"  // NOLINT(bugprone-suspicious-include)

TEST(Bigram, ItsKeysMakeItsModel) {
  const models::Family& family = models::bigram_family();
  OptionValues keys;
  Options options("trireme train");
  family.add_keys(options, keys);
  options.parse({"--model.layers", "3", "--model.width", "16"});
  const models::Model model = family.resolve(keys, {.vocabulary = 50});
  EXPECT_EQ(model.plan.blocks.size(), 5u);
  EXPECT_EQ(model.plan.parameters, 2 * 50 * 16 + 3 * (16 + 8 * 16 * 16) + 16);
  EXPECT_EQ(model.request.keys.at("vocabulary"), "50");
  EXPECT_EQ(model.operations(2).size(), 3u);
  EXPECT_EQ(family.resolve(model.request.keys, {}).request, model.request);
  EXPECT_NE(message_of([&] {
              options.parse({"--model.layers", "0"});
            }).find("model.layers"),
            std::string::npos);
}

TEST(Bigram, ItLearnsWhichTokenFollows) {
  EqualityCase test = bigram_case({1, 1, 1});
  test.steps = 20;
  const Observed seen = observe_simulated(test).front();
  ASSERT_EQ(seen.losses.size(), 20u);
  EXPECT_LT(seen.losses.back(), 0.99 * seen.losses.front());
}

}  // namespace
}  // namespace trireme::testing
