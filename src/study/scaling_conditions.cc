#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <net/if.h>

#include "trireme/base/kernel_files.h"
#include "trireme/base/text.h"
#include "trireme/comm/device_choice.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/comm/launcher.h"
#include "trireme/comm/version.h"
#include "trireme/study/conditions.h"

namespace trireme::scaling {
namespace {

namespace fs = std::filesystem;

// Environment variables that choose the network or transport.
constexpr std::array kSettings = {
    "UCX_TLS",      "UCX_NET_DEVICES", "FI_PROVIDER", "MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL",
    "OMPI_MCA_pml", "OMPI_MCA_btl",    "NCCL_NET",    "NCCL_IB_DISABLE",      "NCCL_SOCKET_IFNAME"};

std::string with_detail(const std::string& name, const std::string& detail) {
  return detail.empty() ? name : fmt::format("{} ({})", name, detail);
}

// Returns the active ports. The kernel writes "4: ACTIVE" for them.
std::vector<std::string> rdma_ports(const fs::path& root) {
  std::vector<std::string> ports;
  const fs::path devices = root / "sys/class/infiniband";
  for (const std::string& device : kernel_names(devices)) {
    for (const std::string& number : kernel_names(devices / device / "ports")) {
      const fs::path port = devices / device / "ports" / number;
      if (first_line_of(port / "state").find("ACTIVE") == std::string::npos) continue;
      const std::string layer = first_line_of(port / "link_layer"),
                        rate = first_line_of(port / "rate");
      ports.push_back(
          with_detail(device, layer + (layer.empty() || rate.empty() ? "" : ", ") + rate));
    }
  }
  return ports;
}

// Physical interfaces have a link to a device. A container may have only virtual ones.
std::vector<std::string> net_interfaces(const fs::path& root, bool physical) {
  std::vector<std::string> interfaces;
  for (const std::string& name : kernel_names(root / "sys/class/net")) {
    const fs::path entry = root / "sys/class/net" / name;
    if (name == "lo" || kernel_names(entry / "device").empty() == physical) continue;
    // Within a network namespace /sys may still show the interfaces of another one.
    if (root == "/" && ::if_nametoindex(name.c_str()) == 0) continue;
    if (first_line_of(entry / "operstate") != "up") continue;
    const std::string speed = first_line_of(entry / "speed");  // empty or -1 where it is not known
    const bool known = !speed.empty() && std::isdigit(static_cast<unsigned char>(speed[0])) != 0;
    interfaces.push_back(with_detail(name, known ? speed + " Mb/s" : ""));
  }
  return interfaces;
}

// Returns the value of the first line "KEY   : value"; empty if there is none.
std::string entry_of(std::string_view text, std::string_view key) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = line.find(':');
    if (colon == line.npos || !line.starts_with(key)) continue;
    if (line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") != line.npos) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == line.npos ? std::string() : std::string(line.substr(value));
  }
  return {};
}

std::string processor_of(const fs::path& root) {
  const std::string model = processor_in(kernel_text(root / "proc/cpuinfo"));
  const std::int64_t count = std::ssize(online_cpus(root / "sys"));
  const auto quota = least_limit(group_limits(GroupResource::kProcessors, root));
  const std::string limited = quota ? fmt::format(", a quota of {:g}", quota->amount) : "";
  if (count == 0) return model + limited;
  return fmt::format("{}, {}{}", model, counted(count, "logical processor"), limited);
}

// "GROUP PROCESSORS GROUP PROCESSORS", to be sent.
std::string quotas_text(const std::vector<GroupLimit>& quotas) {
  std::string text;
  for (const GroupLimit& quota : quotas) text += fmt::format("{} {} ", quota.group, quota.amount);
  return text;
}
std::vector<GroupLimit> read_quotas(const std::string& text) {
  std::vector<GroupLimit> quotas;
  std::istringstream words(text);
  for (GroupLimit quota; words >> quota.group >> quota.amount;) quotas.push_back(quota);
  return quotas;
}

void add_once(std::vector<std::string>& all, const std::string& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace

// On ARM the kernel gives only numbers.
std::string processor_in(std::string_view cpuinfo) {
  for (const char* key : {"model name", "cpu"}) {
    if (std::string found = entry_of(cpuinfo, key); !found.empty()) return found;
  }
  const std::string maker = entry_of(cpuinfo, "CPU implementer"),
                    part = entry_of(cpuinfo, "CPU part");
  if (!maker.empty() && !part.empty()) {
    return fmt::format("CPU implementer {}, part {}", maker, part);
  }
  return kNotKnown;
}

NetworkFacts gather_network_facts(const fs::path& root) {
  NetworkFacts facts;
  facts.mpi_device = mpi_device();
  for (const char* name : kSettings) {
    const char* value = std::getenv(name);
    if (value != nullptr) facts.settings.push_back(fmt::format("{}={}", name, value));
  }
  facts.interfaces = rdma_ports(root);
  std::vector<std::string> others = net_interfaces(root, true);
  if (facts.interfaces.empty() && others.empty()) others = net_interfaces(root, false);
  facts.interfaces.insert(facts.interfaces.end(), others.begin(), others.end());
  return facts;
}

std::string network_text(const NetworkFacts& facts) {
  std::vector<std::string> parts;
  if (!facts.mpi_device.empty()) parts.push_back("MPI device " + facts.mpi_device);
  if (!facts.settings.empty()) parts.push_back(joined(facts.settings, " "));
  if (!facts.interfaces.empty()) {
    parts.push_back(fmt::format("node with {}", joined(facts.interfaces, ", ")));
  }
  if (parts.empty()) return kNotKnown;
  return joined(parts, "; ") + "; the interface that was used is not known";
}

Conditions conditions_of(Runtime& runtime, const ComputeDevice& device, const fs::path& root) {
  // One rank of each node speaks for it.
  std::vector<std::string> mine;
  if (runtime.local_rank() == 0) {
    const double threads = static_cast<double>(device.context.threads) * runtime.local_size();
    const std::vector<GroupLimit> quotas = group_limits(GroupResource::kProcessors, root);
    const auto quota = least_limit(quotas);
    const bool on_cpu = device.context.device.kind == DeviceKind::kCpu;
    mine = {node_name(),
            processor_of(root),
            network_text(gather_network_facts(root)),
            device.name,
            first_line_of(root / "proc/sys/kernel/random/boot_id"),
            std::to_string(on_cpu ? online_cpus(root / "sys").size() : 0),
            fmt::format("{}", std::min(threads, quota ? quota->amount : threads)),
            quotas_text(quotas)};
    for (std::string& line : mine) std::replace(line.begin(), line.end(), '\n', ' ');
  }
  Conditions found;
  std::vector<std::string> processors, networks, devices;
  std::vector<NodeProcessors> usable;
  for (const auto& lines : gather_lines(runtime.world(), mine)) {
    if (lines.size() != 8) continue;
    found.hosts.push_back(lines[0]);
    add_once(processors, lines[1]);
    add_once(networks, lines[2]);
    add_once(devices, lines[3]);
    usable.push_back({lines[4], std::stod(lines[5]), std::stod(lines[6]), read_quotas(lines[7])});
  }
  // In whatever order the nodes come, the same nodes read the same.
  for (auto* each : {&processors, &networks, &devices}) std::sort(each->begin(), each->end());
  const char* job = std::getenv("SLURM_JOB_ID");
  found.processor = joined(processors, " | ");
  found.processors = processors_of(usable);
  found.device = joined(devices, " | ");
  found.mpi = mpi_library_version();
  found.network = joined(networks, " | ");
  // A run of one rank sends nothing, so nothing carries its tensors.
  if (device.carrier != "mpi" && runtime.size() > 1)
    found.network = device.carrier + " for tensors; " + found.network;
  found.job = job == nullptr ? "" : job;
  return found;
}

}  // namespace trireme::scaling
