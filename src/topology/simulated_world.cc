#include "trireme/topology/simulated_world.h"

#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trireme/base/error.h"

#include "simulation.h"

namespace trireme {
namespace {

constexpr std::size_t kAddresses = std::size_t{1} << 40;

// Addresses of memory that is not there.
class NoMemory {
 public:
  NoMemory()
      : base_(mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {
    TRIREME_CHECK(base_ != MAP_FAILED, "no addresses for a simulated world");
  }
  ~NoMemory() { munmap(base_, kAddresses); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
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
    operation.task = make(simulation.transport(operation, rank, nullptr, impl_->options.blocks));
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
  TRIREME_CHECK(bytes <= kAddresses, fmt::format("a tensor of {} bytes", bytes));
  return Tensor::wrap(impl_->no_memory.get(), {elements}, dtype);
}

}  // namespace trireme
