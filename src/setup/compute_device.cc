#include "trireme/setup/compute_device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "trireme/base/kernel_files.h"
#include "trireme/base/usual_threads.h"
#include "trireme/comm/device_choice.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/ops/block_scaled.h"
#include "trireme/setup/nccl_keys.h"
#include "trireme/tensor/cuda.h"

namespace trireme {
namespace {

// Collective over the world. Returns the unique ids of the GPUs that CUDA shows to each rank of
// this node.
std::vector<std::vector<std::string>> visible_on_node(Runtime& runtime, cuda::Runtime& cuda,
                                                      int count) {
  std::vector<std::string> mine = {std::to_string(runtime.node())};
  for (int i = 0; i < count; ++i) mine.push_back(cuda.properties(i).uuid);
  std::vector<std::vector<std::string>> visible;
  for (std::vector<std::string>& lines : gather_lines(runtime.world(), mine)) {
    if (lines.front() != mine.front()) continue;
    lines.erase(lines.begin());
    visible.push_back(std::move(lines));
  }
  return visible;
}

// Collective over the world. Compares the ranks of all nodes, because several nodes of a launcher
// may be one machine.
bool any_gpu_is_shared(Runtime& runtime, const std::string& uuid) {
  std::set<std::string> taken;
  for (const auto& lines : gather_lines(runtime.world(), {uuid})) taken.insert(lines.front());
  return static_cast<int>(taken.size()) < runtime.size();
}

// Writes a list of processors as sysfs does: "0-3,8".
std::string list_of(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return text;
}

// Binds all threads that this process has now. Later threads inherit the binding.
void keep_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<unsigned>(cpu), &set);
  for (const std::string& name : kernel_names("/proc/self/task")) {
    int id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    // A thread may have ended; binding only affects speed.
    sched_setaffinity(id, sizeof set, &set);
  }
}

// Binds the process to the processors next to the GPU. Returns a text about it for the user, or an
// empty one if nothing was done.
std::string bind_next_to(const std::string& pci_bus_id) {
  const auto cpus =
      cpus_to_bind(own_cpus(), online_cpus("/sys"), place_of_device("/sys", pci_bus_id));
  if (!cpus) return "";
  keep_to(*cpus);
  return "; kept to processors " + list_of(*cpus);
}

DeviceBackend backend_of(const DeviceRequest& request, int ranks, bool shared) {
  const bool nccl = nccl_carries(request, ranks) && (!shared || request.backend == "nccl");
  return nccl ? DeviceBackend::kNccl : DeviceBackend::kMpi;
}

std::string nccl_name() {
  for (const cuda::LibraryInfo& library : cuda::find_libraries()) {
    if (library.name == "NCCL") return "NCCL " + library.version;
  }
  return "NCCL";
}

void check_fp8(ops::Context& context, const std::string& name) {
  try {
    ops::check_scaled_products(context);
  } catch (const CudaError& error) {
    throw CudaError(fmt::format("run.precision is fp8, but on {} {}; give run.precision bf16", name,
                                error.what()));
  }
}

ComputeDevice on_gpu(Runtime& runtime, const std::shared_ptr<cuda::Runtime>& cuda, int count,
                     const DeviceRequest& request) {
  const auto visible = visible_on_node(runtime, *cuda, count);
  const std::vector<int> chosen =
      choose_devices(visible, request.backend != "nccl", gpu_environment());
  const int device = chosen[static_cast<std::size_t>(runtime.local_rank())];
  const cuda::DeviceProperties properties = cuda->properties(device);
  const bool shared = any_gpu_is_shared(runtime, properties.uuid);
  const std::string bound = bind_next_to(properties.pci_bus_id);
  const DeviceBackend backend = backend_of(request, runtime.size(), shared);
  NcclTuning tuning;
  if (backend == DeviceBackend::kNccl) tuning = nccl_tuning(runtime, request.nccl, request.network);
  const auto tables = std::make_shared<std::map<std::string, std::string>>();
  tuning.told = [tables](const std::string& name, const std::string& text) {
    (*tables)[name] = text;
  };
  runtime.use_device(cuda, device, backend, tuning);
  const std::string carrier = backend == DeviceBackend::kNccl ? nccl_name() : "mpi";
  ops::Context context =
      ops::make_cuda_context(cuda, device, {.tf32 = request.tf32, .spared = request.spared});
  if (request.fp8) check_fp8(context, properties.name);
  context.any_order = request.any_order;
  context.host_threads = request.threads.value_or(usual_threads(runtime.cores()));
  context.gpu_memory = runtime.world().all_reduce_host(context.gpu_memory, ReduceOp::kMin);
  return {
      .context = std::move(context),
      .name = properties.name,
      .carrier = carrier,
      .description = fmt::format("{} (cuda:{}), {:.0f} GiB{}{}{}", properties.name, device,
                                 static_cast<double>(properties.memory) / 1073741824.0,
                                 shared ? ", shared with other ranks" : "",
                                 runtime.size() > 1 ? "; tensors travel by " + carrier : "", bound),
      .nccl_tables = tables,
      .use = std::make_unique<Runtime::DeviceUse>(runtime)};
}

}  // namespace

DeviceRequest device_request(const Config& config) {
  // NCCL's sums have no order that other layouts share.
  const bool by_mpi = config.run.same_bits && config.comm.backend == "auto";
  return {config.run.device,
          by_mpi ? "mpi" : config.comm.backend,
          config.run.threads,
          config.run.precision == "tf32",
          config.nccl,
          config.comm.network,
          config.cuda.spare,
          !config.attention.deterministic,
          config.run.precision == "fp8"};
}

void check_backends(const DeviceRequest& request) {
  if (request.device == "cuda" && cuda::build_info().toolkit.empty()) {
    throw ConfigError(
        "run.device is cuda, but this program was built without CUDA: use cpu or auto");
  }
  if (request.backend == "nccl" && cuda::build_info().nccl.empty()) {
    throw ConfigError(
        "comm.backend is nccl, but this program was built without NCCL: use mpi or auto");
  }
}

bool nccl_carries(const DeviceRequest& request, int ranks) {
  if (request.backend == "nccl") return true;
  return request.backend == "auto" && !cuda::build_info().nccl.empty() && ranks > 1;
}

ComputeDevice choose_compute_device(Runtime& runtime, const DeviceRequest& request) {
  check_backends(request);
  std::string description;
  if (request.device != "cpu" && !cuda::build_info().toolkit.empty()) {
    const auto cuda = cuda::make_runtime();
    const cuda::Devices found = cuda->devices();
    Communicator& world = runtime.world();
    // The lowest rank that sees no GPU, and the lowest that sees one; the number of ranks if there
    // is no such rank.
    const bool sees = found.count > 0;
    std::array<int, 2> lowest{sees ? world.size() : world.rank(),
                              sees ? world.rank() : world.size()};
    world.all_reduce_host(std::span<int>(lowest), ReduceOp::kMin);
    const auto [blind, seeing] = lowest;
    const std::string words =
        words_on(read_visible_devices(gpu_environment().cuda_visible_devices));
    const std::string why_none = found.why_none + (words.empty() ? "" : "; " + words);
    if (blind == world.size()) return on_gpu(runtime, cuda, found.count, request);
    if (request.device == "cuda") {
      throw ConfigError(fmt::format(
          "run.device is cuda, but rank {} sees no GPU ({}): use cpu or auto, or ask the launcher "
          "for GPUs (Slurm: --gpus-per-node)",
          blind, world.broadcast_text(why_none, blind)));
    }
    if (seeing < world.size()) {
      description = fmt::format("cpu, for rank {} sees no GPU and others do", blind);
    } else if (!gpu_environment().slurm_gpus_on_node.empty()) {
      description = "cpu, though Slurm granted GPUs: " + why_none;
    }
  }
  return {
      .context = ops::make_cpu_context(request.threads.value_or(usual_threads(runtime.cores()))),
      .name = "cpu",
      .description = description};
}

}  // namespace trireme
