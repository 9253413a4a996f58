// What the ranks report to each other before NCCL starts, and what all its communicators share.
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

#include "comm/device/device_carrier.h"
#include "comm/nccl/captured_operations.h"
#include "comm/nccl/guarded_communicator.h"
#include "comm/nccl/nccl_communicator.h"

namespace trireme {
namespace {

using nccl::version_text;

// What each rank reports about itself.
struct Own {
  int version = 0;             // of the library that it opened
  char launch_order[16] = {};  // from the environment
  char problem[512] = {};      // why it could not open one
  char gpu[64] = {};           // unique
  char gpu_name[64] = {};
  char tuning[256] = {};  // why it lacks what is asked of it
  char tuner[512] = {};   // why it cannot use the plugin
};
static_assert(std::is_trivially_copyable_v<Own>);

template <std::size_t size>
void put(char (&to)[size], const std::string& text) {
  text.copy(to, size - 1);
}

std::vector<Own> gather(Communicator& world, Own own) {
  std::vector<Own> all(static_cast<std::size_t>(world.size()));
  const auto bytes = [](Own* first, std::size_t count) {
    return Tensor::wrap(first, {static_cast<std::int64_t>(count * sizeof(Own))}, DType::kU8);
  };
  world.all_gather(Stream(), bytes(&own, 1), bytes(all.data(), all.size())).wait_host();
  return all;
}

// All ranks find the same problem, so the job ends with one line.
void check_versions(const std::vector<Own>& all, const std::vector<std::string>& hosts) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Own& own = all[rank];
    const std::string who = fmt::format("rank {} ({})", rank, hosts[rank]);
    if (own.problem[0] != '\0') throw NcclError(fmt::format("{}: {}", who, own.problem));
    if (own.launch_order != std::string_view("1")) {
      throw ConfigError(fmt::format(
          "{} has {}={} in its environment, but the order of communication on a GPU depends on "
          "its being 1: unset it",
          who, nccl::kLaunchOrder, own.launch_order));
    }
    if (own.version != all[0].version) {
      throw NcclError(
          fmt::format("{} has NCCL {}, but rank 0 ({}) has {}: all ranks need the same "
                      "(LD_LIBRARY_PATH may differ between nodes)",
                      who, version_text(own.version), hosts[0], version_text(all[0].version)));
    }
  }
}

void check_gpus(const std::vector<Own>& all, const std::vector<std::string>& hosts) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t before = 0; before < rank; ++before) {
      if (std::strcmp(all[rank].gpu, all[before].gpu) != 0) continue;
      throw ConfigError(fmt::format(
          "ranks {} and {} on {} share one GPU ({}), which NCCL refuses: --comm.backend mpi lets "
          "them, or give each rank a GPU of its own (Slurm: --gpus-per-node, as many as ranks)",
          before, rank, hosts[rank], all[rank].gpu_name));
    }
  }
}

void check_tuning(const std::vector<Own>& all, const std::vector<std::string>& hosts) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].tuning[0] == '\0') continue;
    throw ConfigError(fmt::format("rank {} ({}): {}", rank, hosts[rank], all[rank].tuning));
  }
}

// Returns why this rank cannot use the plugin; if it can, makes its table.
std::string try_tuner(const std::string& plugin, int version,
                      std::unique_ptr<nccl::TunerTable>& table) {
  std::string problem = nccl::why_no_tuner(plugin, version);
  if (!problem.empty()) return problem;
  try {
    table = std::make_unique<nccl::TunerTable>(plugin);
  } catch (const NcclError& error) {
    problem = error.what();
  }
  return problem;
}

// All ranks must choose alike, so either all of them use the tuner or none does; then rank 0 says
// why not.
bool all_can_tune(const std::vector<Own>& all, const std::vector<std::string>& hosts, bool tells) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].tuner[0] == '\0') continue;
    if (tells) {
      report_line(
          fmt::format("NCCL chooses its algorithms itself, without our tuner: rank {} ({}): {}",
                      rank, hosts[rank], all[rank].tuner));
    }
    return false;
  }
  return true;
}

class NcclCarrier final : public DeviceCarrier {
 public:
  NcclCarrier(std::shared_ptr<nccl::Library> library, const DeviceCarrierParts& parts,
              std::unique_ptr<nccl::TunerTable> tuner)
      : session_(std::move(library), parts) {
    session_.use_tuner(std::move(tuner));
  }

  std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> host, int lane) override {
    return nccl::make_communicator(session_, std::move(host), lane);
  }
  std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> host) override {
    return std::make_unique<nccl::GuardedCommunicator>(session_, std::move(host));
  }
  std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                 const std::int64_t* number) override {
    return std::make_unique<nccl::CapturedOperations>(session_, stream, number);
  }
  void set_timeout(double seconds) override { session_.set_timeout(bound(seconds)); }
  void check() override { session_.check(); }
  void close() noexcept override { session_.close(); }
  void abort() noexcept override { session_.abort(); }

  // The watchdog's timeout comes first, because the watchdog can name the missing ranks.
  static double bound(double timeout_s) { return timeout_s + 15.0; }

 private:
  nccl::Session session_;
};

}  // namespace

std::unique_ptr<DeviceCarrier> make_nccl_carrier(const DeviceCarrierParts& parts,
                                                 Communicator& world,
                                                 const std::vector<std::string>& hosts) {
  Own own;
  std::shared_ptr<nccl::Library> library;
  std::unique_ptr<nccl::TunerTable> tuner;
  const std::string& plugin = parts.tuning.plugin;
  try {
    const cuda::DeviceProperties gpu = parts.cuda->properties(parts.device);
    put(own.gpu, gpu.uuid);
    put(own.gpu_name, gpu.name);
    library = nccl::load_library();
    own.version = library->version();
    nccl::check_version(own.version, library->path());
    const char* order = std::getenv(nccl::kLaunchOrder);
    put(own.launch_order, order == nullptr ? "" : order);
    put(own.tuning, library->why_not(parts.tuning));
    if (!plugin.empty()) put(own.tuner, try_tuner(plugin, own.version, tuner));
  } catch (const Error& error) {
    put(own.problem, error.what());
  }
  const std::vector<Own> all = gather(world, own);
  check_versions(all, hosts);
  check_gpus(all, hosts);
  check_tuning(all, hosts);
  if (!all_can_tune(all, hosts, world.rank() == 0)) tuner = nullptr;
  DeviceCarrierParts bounded = parts;
  bounded.timeout_s = NcclCarrier::bound(parts.timeout_s);
  return std::make_unique<NcclCarrier>(std::move(library), bounded, std::move(tuner));
}

}  // namespace trireme
