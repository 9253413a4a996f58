// Gradients of whole transformers compared with differences of their losses.
#pragma once

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trireme/parallel/stage.h"

#include "support/ops_testing.h"

namespace trireme::testing {

// Expects of each parameter that the loss changes along its gradient as the gradient says, and
// returns the names of those that it has checked. The gradients are in the stage; `loss` computes
// the loss of the same samples with the weights as they are.
inline std::set<std::string> check_slopes(const parallel::Stage& stage,
                                          const std::function<double()>& loss) {
  constexpr double kEpsilon = 2e-3;
  std::set<std::string> checked;
  for (const nn::Parameter* parameter : stage.parameters()) {
    // A constant added to all scores of a query changes nothing.
    if (parameter->name().ends_with("attention.key.bias")) continue;
    const Values gradient = values_of(parameter->gradient());
    const Values saved = values_of(parameter->weight());
    const double length = std::sqrt(inner_product(gradient, gradient));
    EXPECT_GT(length, 0.0) << parameter->name();
    const auto at = [&](double distance) {
      for (std::size_t i = 0; i < saved.size(); ++i) {
        parameter->weight().data<float>()[i] =
            static_cast<float>(saved[i] + distance * gradient[i] / length);
      }
      return loss();
    };
    const double slope = (at(kEpsilon) - at(-kEpsilon)) / (2 * kEpsilon);
    at(0.0);
    EXPECT_NEAR(slope / length, 1.0, 0.02) << parameter->name();
    checked.insert(parameter->name());
  }
  return checked;
}

}  // namespace trireme::testing
