#include "trireme/topology/simulated_world.h"

#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trireme/base/error.h"

#include "topology/simulation/simulation.h"

namespace trireme {
namespace {

constexpr std::size_t kMostAddresses = std::size_t{1} << 40;
constexpr std::size_t kFewestAddresses = std::size_t{1} << 28;

// Addresses of memory that is not there. Where a limit on addresses allows no more, there are
// fewer.
class NoMemory {
 public:
  NoMemory() {
    for (bytes_ = kMostAddresses; bytes_ >= kFewestAddresses; bytes_ /= 4) {
      base_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base_ != MAP_FAILED) return;
    }
    throw InternalError("no addresses for a simulated world");
  }
  ~NoMemory() { munmap(base_, bytes_); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(base_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace

struct SimulatedWorld::Impl {
  const Network& network;
  Options options;
  NoMemory no_memory{};
};

SimulatedWorld::SimulatedWorld(const Network& network, Options options)
    : impl_(new Impl{.network = network, .options = std::move(options)}) {}

SimulatedWorld::~SimulatedWorld() = default;

SimulatedWorld::Result SimulatedWorld::run(int ranks, const MakeTask& make) {
  Simulation simulation(impl_->network, impl_->options, ranks, impl_->no_memory.get());
  std::vector<Simulation::Operation> operations(static_cast<std::size_t>(ranks));
  int running = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Simulation::Operation& operation = operations[static_cast<std::size_t>(rank)];
    operation.rank = rank;
    operation.task = make(simulation.transport(
        operation, rank, nullptr, impl_->options.worthwhile_bytes, impl_->options.blocks));
    operation.ended = [&running] { --running; };
    simulation.start(operation);
  }
  while (running > 0) {
    if (!simulation.step()) {
      throw InternalError("nothing moves any more: " + simulation.waits());
    }
  }
  return simulation.result();
}

Tensor SimulatedWorld::tensor(std::int64_t elements, DType dtype) const {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  TRIREME_CHECK(bytes <= impl_->no_memory.bytes(), fmt::format("a tensor of {} bytes", bytes));
  return Tensor::wrap(impl_->no_memory.get(), {elements}, dtype);
}

}  // namespace trireme
