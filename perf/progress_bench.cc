// Measures the progress engine's polls per second while one operation is in flight, after this rank
// has exchanged messages with PEERS peers.
//
//     progress_bench [PEERS...]
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/clock.h"

#include "comm/mpi/progress_engine.h"
#include "support/function_task.h"

namespace {

using trireme::ProgressEngine;
using trireme::Task;
using trireme::testing::FunctionTask;

void run(ProgressEngine& engine, const trireme::LaneKey& lane,
         std::function<Task::Step()> advance) {
  std::vector<ProgressEngine::Queued> operations;
  operations.push_back({lane, "bench", 0, std::make_unique<FunctionTask>(std::move(advance))});
  engine.submit(std::move(operations)).wait_host();
}

double polls_per_second(int peers) {
  constexpr std::int64_t kNs = 500'000'000;
  trireme::FlightRecorder recorder;
  ProgressEngine engine(recorder);
  for (int peer = 0; peer < peers; ++peer) {
    run(engine, {1, peer, true}, [] { return Task::Step::kDone; });
  }
  std::int64_t polls = 0;
  const std::int64_t begin = trireme::now_ns();
  run(engine, {2, -1, false}, [&] {
    ++polls;
    return trireme::now_ns() - begin < kNs ? Task::Step::kIdle : Task::Step::kDone;
  });
  return static_cast<double>(polls) / (static_cast<double>(trireme::now_ns() - begin) * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> peers;
  for (int i = 1; i < argc; ++i) peers.push_back(std::atoi(argv[i]));
  if (peers.empty()) peers = {0, 64, 4096};
  for (const int count : peers) {
    fmt::print("{:5} peers  {:12.0f} polls/s\n", count, polls_per_second(count));
  }
}
