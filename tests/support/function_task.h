// A task of the progress engine that calls a function.
#pragma once

#include <functional>
#include <utility>

#include "trireme/comm/task.h"

namespace trireme::testing {

class FunctionTask final : public Task {
 public:
  explicit FunctionTask(std::function<Step()> advance) : advance_(std::move(advance)) {}
  Step advance() override { return advance_(); }

 private:
  std::function<Step()> advance_;
};

}  // namespace trireme::testing
