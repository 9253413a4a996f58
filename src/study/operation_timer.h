// How long an operation takes, again and again.
#pragma once

#include <functional>
#include <vector>

#include "trireme/ops/context.h"

namespace trireme::bench {

class OperationTimer {
 public:
  // cold: before each run a GPU's cache loses what is in it, and that is not timed. graph: a GPU
  // replays a graph of many runs, so that launches cost nothing. On a CPU neither does anything.
  struct How {
    bool cold = false, graph = false;
  };
  OperationTimer(ops::Context& ctx, How how);

  // Returns the seconds of so many runs, after one that does not count.
  std::vector<double> repeats(const std::function<void()>& body, int count);
  // Returns the seconds of one run, without a graph.
  double once(const std::function<void()>& body);

 private:
  std::vector<double> in_graph(const std::function<void()>& body, int count);
  void evict();

  ops::Context& ctx_;
  How how_;
  Tensor evicts_;  // writing it leaves nothing else in the cache
};

}  // namespace trireme::bench
