// Tasks that are dropped while their messages are under way, as on a fault.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/segments.h"

namespace trireme {
namespace {

// What messages under way read and write, and which of it was freed too early.
struct Memory {
  struct Piece {
    const std::byte* begin;
    std::size_t bytes;
  };
  std::vector<Piece> used;  // by messages under way
  int freed_in_use = 0, live = 0;

  Buffer allocate(std::size_t bytes) {
    ++live;
    return {new std::byte[bytes], [this, bytes](std::byte* freed) {
              --live;
              freed_in_use += std::ranges::any_of(used, [&](const Piece& piece) {
                return freed <= piece.begin && piece.begin < freed + bytes;
              });
              delete[] freed;
            }};
  }
  Tensor tensor(std::int64_t elements) {
    return Tensor::over(allocate(static_cast<std::size_t>(elements) * sizeof(float)), Device(),
                        {elements}, DType::kF32);
  }
};

// Messages arrive at once until so many tests have been made, and never after that.
class Stalling final : public Transport {
 public:
  Stalling(Memory& memory, int rank, int size, std::shared_ptr<const RankBlocks> blocks, int tests,
           std::vector<std::unique_ptr<Task>>& kept)
      : Transport(rank, size, 1 << 20, kWorthwhileBytes, std::move(blocks)),
        memory_(memory),
        tests_(tests),
        kept_(kept) {}

  void send(const std::byte* data, std::size_t bytes, int) override { post(data, bytes); }
  void receive(std::byte* data, std::size_t bytes, int) override { post(data, bytes); }
  void signal(int, int) override { posted_ += 2; }
  bool done() override { return done(0, posted_); }
  std::size_t posted() const override { return posted_; }
  bool done(std::size_t first, std::size_t last) override {
    if (first == last) return true;
    if (tests_ == 0) return false;
    --tests_;
    memory_.used.clear();
    return true;
  }
  void abandon(std::unique_ptr<Task> task) override { kept_.push_back(std::move(task)); }
  Buffer workspace(std::size_t bytes) override { return memory_.allocate(bytes); }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void reduce(ReduceOp, DType, std::span<const std::byte* const>, DType, std::byte*,
              std::size_t) override {}

 private:
  void post(const std::byte* data, std::size_t bytes) {
    if (bytes > 0) memory_.used.push_back({data, bytes});
    ++posted_;
  }

  Memory& memory_;
  std::size_t posted_ = 0;
  int tests_;
  std::vector<std::unique_ptr<Task>>& kept_;
};

// Advances a task as far as it goes if messages stall after so many tests, and drops it. Returns
// whether messages were under way.
template <class Make>
bool drop(int rank, int ranks, int tests, const Make& make) {
  std::vector<int> nodes;
  for (int i = 0; i < ranks; ++i) nodes.push_back(i / 2);
  const auto blocks = std::make_shared<RankBlocks>(ranks, std::vector<std::vector<int>>{nodes});
  Memory memory;
  std::vector<std::unique_ptr<Task>> kept;
  auto task = make(std::make_shared<Stalling>(memory, rank, ranks, blocks, tests, kept), memory);
  auto step = Task::Step::kMoved;
  while (step == Task::Step::kMoved) step = task->advance();
  const bool under_way = !memory.used.empty() && step != Task::Step::kDone;
  const int live = memory.live;
  task.reset();
  EXPECT_EQ(memory.freed_in_use, 0);
  if (under_way) {
    EXPECT_EQ(memory.live, live) << "the transport has not released it yet";
  }
  memory.used.clear();
  kept.clear();
  EXPECT_EQ(memory.live, 0);
  return under_way;
}

Operands operands_of(Collective collective, Memory& memory, int ranks) {
  constexpr std::int64_t kPart = 20'000;
  const bool gathers = collective == Collective::kAllGather;
  const bool scatters = collective == Collective::kReduceScatter;
  Operands operands;
  operands.output = memory.tensor(scatters ? kPart : kPart * ranks);
  if (gathers || scatters || collective == Collective::kAllToAll) {
    operands.input = memory.tensor(gathers ? kPart : kPart * ranks);
  }
  return operands;
}

TEST(DroppedTasks, KeepTheirBuffersUntilTheTransportEndsTheirMessages) {
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      int under_way = 0;
      for (const int ranks : {2, 5, 8}) {
        for (int tests = 0; tests < 12; ++tests) {
          SCOPED_TRACE(testing::Message() << name_of(collective) << " " << name_of(algorithm) << " "
                                          << ranks << " " << tests);
          under_way += drop(1, ranks, tests, [&](TransportPtr transport, Memory& memory) {
            return make_collective(collective, algorithm, std::move(transport),
                                   operands_of(collective, memory, ranks));
          });
        }
      }
      EXPECT_GE(under_way, 3) << name_of(algorithm);
    }
  }
}

TEST(DroppedTasks, KeepTheTensorOfAMessage) {
  for (const auto direction : {Transfer::Direction::kSend, Transfer::Direction::kReceive}) {
    EXPECT_TRUE(drop(0, 2, 0, [&](TransportPtr transport, Memory& memory) {
      return make_transfer(std::move(transport), {direction, 1, memory.tensor(100)});
    }));
  }
}

}  // namespace
}  // namespace trireme
