// The findings of doctor about a node's GPUs.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>

#include "trireme/base/text.h"

#include "doctor/doctor_checks.h"

namespace trireme {

bool runs_on(const std::string& architectures, int major, int minor) {
  for (const std::string& entry : split_list(architectures)) {
    const char* first = entry.data() + std::min(entry.find_first_not_of(' '), entry.size());
    const char* end = entry.data() + entry.size();
    int number = 0;
    const char* rest = std::from_chars(first, end, number).ptr;
    const std::string kind(rest, end);
    const int here = 10 * major + minor;
    if (kind == "a" && here == number) return true;
    if (kind.empty() && number / 10 == major && number % 10 <= minor) return true;
    if (kind == " PTX" && here >= number) return true;
  }
  return false;
}

namespace doctor {
namespace {

// Lists the GPUs for which `holds` is true: "cuda:0, cuda:2".
std::string gpus_where(const NodeFacts& facts, const std::function<bool(const GpuFacts&)>& holds) {
  std::string names;
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    if (holds(facts.gpus[i])) names += fmt::format("{}cuda:{}", names.empty() ? "" : ", ", i);
  }
  return names;
}

// With drivers of an older CUDA, NCCL's implicit order of launches serialises a graph.
constexpr int kOrdersLaunches = 12090;

// Returns false if there is nothing further to check.
bool check_driver(const NodeFacts& facts, std::vector<Finding>& findings) {
  const auto add = [&](Verdict verdict, std::string what, std::string remedy) {
    findings.push_back({verdict, "GPU driver", std::move(what), std::move(remedy)});
  };
  if (facts.pci_gpus == 0 && facts.devices.count == 0 && facts.driver_module.empty()) {
    findings.push_back({Verdict::kNotHere, "GPUs", "no GPU of NVIDIA", ""});
    return false;
  }
  if (facts.build.toolkit.empty()) {
    findings.push_back(
        {Verdict::kWarning, "GPUs",
         fmt::format("{} here, but this program was built without CUDA",
                     facts.pci_gpus == 1 ? "one is" : fmt::format("{} are", facts.pci_gpus)),
         "build with TRIREME_CUDA=ON to use them"});
    return false;
  }
  const std::string toolkit = cuda::version_text(facts.runtime_cuda);
  const std::string driver = cuda::version_text(facts.driver_cuda);
  if (facts.driver_cuda == 0) {
    add(Verdict::kProblem, "there is a GPU, but no driver that CUDA can open",
        "have NVIDIA's driver installed and loaded; in a container, pass it through");
    return false;
  }
  const std::string both =
      fmt::format("it knows CUDA {}, this program was built with {}", driver, toolkit);
  if (facts.driver_cuda / 1000 < facts.runtime_cuda / 1000) {
    add(Verdict::kProblem, both, "have a newer driver installed, or build with an older toolkit");
    return false;
  }
  if (facts.driver_cuda < facts.runtime_cuda) {
    add(Verdict::kWarning, both,
        "kernels that come as PTX do not run: have a newer driver installed");
    return true;
  }
  if (facts.driver_cuda < kOrdersLaunches) {
    add(Verdict::kWarning, both,
        "in captured steps (cuda.graphs) of several GPUs nothing is sent while something computes: "
        "have a driver for CUDA 12.9 or a newer one installed");
  } else {
    add(Verdict::kOk, both, "");
  }
  return true;
}

VisibleDevices visible_devices_of(const NodeFacts& facts) {
  return read_visible_devices(facts.gpu_environment.cuda_visible_devices);
}

// CUDA names an instance as "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
bool is_mig(const GpuFacts& gpu) {
  return gpu.properties.name.find(" MIG ") != std::string::npos;
}

bool check_devices(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (facts.devices.count == 0) {
    const std::string words = words_on(visible_devices_of(facts));
    findings.push_back({Verdict::kProblem, "GPUs", "none can be used: " + facts.devices.why_none,
                        !words.empty()
                            ? words + ": unset it, or ask Slurm for GPUs with --gpus-per-node"
                            : "ask Slurm for GPUs with --gpus-per-node; see what nvidia-smi says"});
    return false;
  }
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    const cuda::DeviceProperties& gpu = facts.gpus[i].properties;
    const std::string what =
        fmt::format("{}, {:.0f} GiB, compute capability {}.{}", gpu.name,
                    static_cast<double>(gpu.memory) / 1073741824.0, gpu.major, gpu.minor);
    const std::string subject = fmt::format("cuda:{}", i);
    if (!runs_on(facts.build.architectures, gpu.major, gpu.minor)) {
      findings.push_back(
          {Verdict::kProblem, subject,
           fmt::format("{}; this program has code for {}", what, facts.build.architectures),
           fmt::format("build with TRIREME_CUDA_ARCHITECTURES={}{}", gpu.major, gpu.minor)});
    } else if (!gpu.memory_pools) {
      findings.push_back({Verdict::kProblem, subject, what + "; it has no memory pools",
                          "use a GPU, or a virtual GPU's profile, with cudaMallocAsync"});
    } else {
      findings.push_back({Verdict::kOk, subject, what, ""});
    }
  }
  return true;
}

// A rank cannot reach GPUs that are hidden from it, so NCCL sets up no direct links to them.
void check_visibility(const NodeFacts& facts, std::vector<Finding>& findings) {
  const auto& environment = facts.gpu_environment;
  const VisibleDevices visible = visible_devices_of(facts);
  if (!visible.ignored.empty()) {
    findings.push_back({Verdict::kWarning, "visible GPUs", words_on(visible),
                        "write numbers alone, or unique ids alone, with commas between them"});
  } else if (visible.kind != VisibleDevices::Kind::kAll) {
    findings.push_back({Verdict::kOk, "visible GPUs", words_on(visible), ""});
  }
  const bool instances = std::ranges::any_of(facts.gpus, is_mig);
  if (instances) {
    findings.push_back({Verdict::kOk, "MIG",
                        "cuda:0 is a part of a GPU: CUDA shows a process one instance, and "
                        "instances reach each other through the host",
                        ""});
  }
  const int on_node = std::atoi(environment.slurm_gpus_on_node.c_str());
  if (instances || facts.devices.count >= on_node) return;
  findings.push_back(
      {Verdict::kWarning, "GPUs of the job",
       fmt::format("this task sees {} of the {} that the job has here: NCCL cannot link GPUs that "
                   "are hidden from each other",
                   facts.devices.count, on_node),
       fmt::format("ask Slurm for the node's GPUs (--gpus-per-node={}) without --gpus-per-task or "
                   "--gpu-bind{}; each rank takes a GPU of its own",
                   on_node,
                   environment.slurm_gpu_bind.empty()
                       ? std::string()
                       : fmt::format(" (here {})", environment.slurm_gpu_bind))});
}

void check_links(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (facts.gpus.size() < 2) return;
  std::string pairs;
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    for (const int peer : facts.gpus[i].unreachable) {
      pairs += fmt::format("{}{}-{}", pairs.empty() ? "" : ", ", i, peer);
    }
  }
  findings.push_back(
      pairs.empty()
          ? Finding{Verdict::kOk, "peer access", "every GPU reaches every other", ""}
          : Finding{Verdict::kWarning, "peer access", "not between GPUs " + pairs,
                    "their traffic goes through the host: have the IOMMU and PCI's access control "
                    "(ACS) off"});
  const bool told = std::any_of(facts.gpus.begin(), facts.gpus.end(),
                                [](const GpuFacts& gpu) { return gpu.health.has_value(); });
  if (!told) return;
  const std::string without =
      gpus_where(facts, [](const GpuFacts& gpu) { return gpu.health && gpu.health->nvlinks == 0; });
  const std::string with =
      gpus_where(facts, [](const GpuFacts& gpu) { return gpu.health && gpu.health->nvlinks > 0; });
  if (with.empty()) {
    findings.push_back({Verdict::kNotHere, "NVLink", "no link is up", ""});
  } else if (!without.empty()) {
    findings.push_back({Verdict::kWarning, "NVLink", "no link is up on " + without,
                        "others have some: have the GPU and the fabric manager looked at"});
  } else {
    findings.push_back({Verdict::kOk, "NVLink",
                        fmt::format("{} links up on cuda:0", facts.gpus[0].health->nvlinks), ""});
  }
}

void check_health(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (!facts.health_why_not.empty()) {
    findings.push_back({Verdict::kWarning, "GPU state", "not known: " + facts.health_why_not,
                        "have libnvidia-ml.so.1 of the driver installed"});
    return;
  }
  using Health = cuda::GpuHealth;
  const auto where = [&](const std::function<bool(const Health&)>& holds) {
    return gpus_where(facts, [&](const GpuFacts& gpu) { return gpu.health && holds(*gpu.health); });
  };
  const auto check = [&](const char* subject, Verdict verdict, const std::string& gpus,
                         const std::string& what, const std::string& remedy,
                         const std::string& fine) {
    findings.push_back(gpus.empty() ? Finding{Verdict::kOk, subject, fine, ""}
                                    : Finding{verdict, subject, what + gpus, remedy});
  };
  check("persistence", Verdict::kWarning,
        where([](const Health& gpu) { return gpu.persistence == false; }), "off on ",
        "starting takes seconds longer: have nvidia-persistenced started", "on");
  const std::string damaged =
      where([](const Health& gpu) { return gpu.uncorrected_errors.value_or(0) > 0; });
  if (!damaged.empty()) {
    findings.push_back({Verdict::kProblem, "ECC", "memory errors beyond repair on " + damaged,
                        "have the node drained and the GPU reset or replaced"});
  } else {
    check("ECC", Verdict::kWarning, where([](const Health& gpu) { return gpu.ecc == false; }),
          "off on ", "flipped bits go unseen: have it switched on", "on, no errors");
  }
  const std::string hot = where([](const Health& gpu) { return gpu.slowed_by_heat; });
  check("clocks", Verdict::kWarning,
        hot.empty() ? where([](const Health& gpu) { return gpu.slowed_by_power; }) : hot,
        hot.empty() ? "held down by the power supply on " : "held down by heat on ",
        "have cooling and power looked at", "not held down");
}

void check_libraries(const NodeFacts& facts, std::vector<Finding>& findings) {
  for (const cuda::LibraryInfo& library : facts.libraries) {
    const bool old = !library.oldest.empty();
    if (!library.version.empty() && !old) {
      findings.push_back({Verdict::kOk, library.name, library.version + ", " + library.path, ""});
      continue;
    }
    const bool needed = library.name == "cuBLASLt" || facts.devices.count > 1;
    const Verdict verdict = needed ? Verdict::kProblem : Verdict::kWarning;
    if (old) {
      findings.push_back(
          {verdict, library.name,
           fmt::format("{}, {}: {} or newer is needed", library.version, library.path,
                       library.oldest),
           "load a newer module of it, or set LD_LIBRARY_PATH, or use --comm.backend "
           "mpi"});
    } else {
      findings.push_back({verdict, library.name, library.path,
                          "load the site's module of CUDA, or set LD_LIBRARY_PATH or CUDA_HOME"});
    }
  }
}

// Checks NCCL_LAUNCH_ORDER_IMPLICIT. The program sets it to 1 if it is not set, and refuses other
// values.
void check_launch_order(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::string& order = facts.gpu_environment.nccl_launch_order;
  if (order.empty() || order == "1") return;
  findings.push_back({facts.devices.count > 1 ? Verdict::kProblem : Verdict::kWarning, "NCCL order",
                      "NCCL_LAUNCH_ORDER_IMPLICIT=" + order + " is in the environment",
                      "unset it: a run with NCCL ends with status 2 otherwise"});
}

// Checks GPUDirect RDMA, with which the network reads and writes GPU memory by itself.
void check_gpu_network(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (facts.rdma_devices.empty()) {
    findings.push_back({Verdict::kNotHere, "GPUDirect RDMA", "no InfiniBand or RoCE device", ""});
  } else if (facts.peer_memory_module) {
    findings.push_back({Verdict::kOk, "GPUDirect RDMA", "nvidia_peermem is loaded", ""});
  } else if (facts.driver_module.find("Open Kernel Module") != std::string::npos) {
    findings.push_back({Verdict::kOk, "GPUDirect RDMA", "by DMA-BUF, with the open driver", ""});
  } else {
    findings.push_back({Verdict::kWarning, "GPUDirect RDMA", "no kernel module for it",
                        "messages take a detour through the host: have nvidia_peermem loaded"});
  }
  findings.push_back(facts.nccl_plugin
                         ? Finding{Verdict::kOk, "NCCL network", "libnccl-net.so is here", ""}
                         : Finding{Verdict::kNotHere, "NCCL network",
                                   "no plugin: NCCL itself serves InfiniBand and sockets", ""});
}

void check_places(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::string far = gpus_where(facts, [&](const GpuFacts& gpu) {
    const std::vector<int>& near = gpu.place.cpus;
    return !near.empty() && std::none_of(near.begin(), near.end(), [&](int cpu) {
      return std::find(facts.own_cpus.begin(), facts.own_cpus.end(), cpu) != facts.own_cpus.end();
    });
  });
  if (far.empty()) return;
  findings.push_back({Verdict::kWarning, "GPU affinity",
                      "this process may run on no processor next to " + far,
                      "ask Slurm for more of the node's processors: --cpus-per-task, --exclusive"});
}

}  // namespace

void check_gpus(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (!check_driver(facts, findings) || !check_devices(facts, findings)) return;
  check_visibility(facts, findings);
  check_links(facts, findings);
  check_health(facts, findings);
  check_libraries(facts, findings);
  check_launch_order(facts, findings);
  check_gpu_network(facts, findings);
  check_places(facts, findings);
}

}  // namespace doctor
}  // namespace trireme
