#include "trireme/topology/machine.h"

#include <algorithm>
#include <charconv>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

#include "topology/fabric/child_process.h"

namespace trireme {
namespace {

constexpr std::size_t kMostXmlBytes = std::size_t{4} << 20;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Topology new_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw InternalError("hwloc does not start");
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  return Topology(topology);
}

// The PCI device that an object is or belongs to.
hwloc_obj_t pci_device_of(hwloc_obj_t object) {
  while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

std::string pci_address_of(hwloc_obj_t device) {
  if (device == nullptr) return "";
  const auto& pci = device->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, unsigned{pci.bus}, unsigned{pci.dev},
                     unsigned{pci.func});
}

int numa_node_of(hwloc_topology_t topology, hwloc_obj_t object) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, object);
  if (near == nullptr || near->nodeset == nullptr) return -1;
  return hwloc_bitmap_weight(near->nodeset) == 1 ? hwloc_bitmap_first(near->nodeset) : -1;
}

// "b859:9f03:00a1:b2c4".
std::uint64_t guid_of(hwloc_obj_t device) {
  const char* text = hwloc_obj_get_info_by_name(device, "NodeGUID");
  std::string digits(text == nullptr ? "" : text);
  std::erase(digits, ':');
  std::uint64_t guid = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), guid, 16);
  return guid;
}

// hwloc's own function is for objects that are no devices.
hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b) {
  for (; a != nullptr; a = a->parent) {
    for (hwloc_obj_t other = b; other != nullptr; other = other->parent) {
      if (other == a) return a;
    }
  }
  return nullptr;
}

DeviceDistance distance_between(hwloc_topology_t topology, hwloc_obj_t a, hwloc_obj_t b) {
  if (pci_device_of(a) != nullptr && pci_device_of(a) == pci_device_of(b)) {
    return DeviceDistance::kSameCard;
  }
  const hwloc_obj_t common = common_ancestor(a, b);
  if (common != nullptr && common->type == HWLOC_OBJ_BRIDGE) {
    return common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? DeviceDistance::kPciSwitch
                                                                      : DeviceDistance::kHostBridge;
  }
  const int near_a = numa_node_of(topology, a), near_b = numa_node_of(topology, b);
  return near_a >= 0 && near_a == near_b ? DeviceDistance::kNumaNode : DeviceDistance::kSystem;
}

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // the upper byte of the class of graphics and 3D controllers
constexpr std::size_t kMostDevices = 256;

Machine machine_of(hwloc_topology_t topology) {
  Machine machine;
  const auto count = [&](hwloc_obj_type_t type) {
    return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
  };
  machine.sockets = count(HWLOC_OBJ_PACKAGE);
  machine.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  machine.cores = count(HWLOC_OBJ_CORE);
  machine.threads = count(HWLOC_OBJ_PU);
  std::vector<hwloc_obj_t> objects;
  const auto add = [&](hwloc_obj_t object, MachineDevice device) {
    if (objects.size() == kMostDevices) return;
    device.pci_address = pci_address_of(pci_device_of(object));
    device.numa_node = numa_node_of(topology, object);
    if (device.name.empty()) device.name = device.pci_address;
    objects.push_back(object);
    machine.devices.push_back(std::move(device));
  };
  for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_osdev(topology, at)) != nullptr;) {
    const bool infiniband = at->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    if (!infiniband && at->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK) continue;
    MachineDevice device;
    device.name = at->name == nullptr ? "" : at->name;
    device.is_infiniband = infiniband;
    if (infiniband) device.guid = guid_of(at);
    add(at, std::move(device));
  }
  for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_pcidev(topology, at)) != nullptr;) {
    const auto& pci = at->attr->pcidev;
    if (pci.vendor_id != kNvidia || pci.class_id >> 8 != kDisplay) continue;
    MachineDevice device;
    device.is_gpu = true;
    add(at, std::move(device));
  }
  for (const hwloc_obj_t a : objects) {
    auto& row = machine.distances.emplace_back();
    for (const hwloc_obj_t b : objects) row.push_back(distance_between(topology, a, b));
  }
  return machine;
}

// `accepted`: whether hwloc took what was given to it so far.
Machine load(const Topology& topology, bool accepted, const std::string& message) {
  if (!accepted || hwloc_topology_load(topology.get()) != 0) throw ConfigError(message);
  return machine_of(topology.get());
}

Json packed(const Machine& machine) {
  Json devices = Json::array(), distances = Json::array();
  for (const MachineDevice& device : machine.devices) {
    devices.push_back(Json::array({device.name, device.pci_address, device.is_gpu,
                                   device.is_infiniband, device.guid, device.numa_node}));
  }
  for (const auto& from : machine.distances) {
    Json row = Json::array();
    for (const DeviceDistance distance : from) row.push_back(static_cast<int>(distance));
    distances.push_back(std::move(row));
  }
  return Json::array({machine.sockets, machine.numa_nodes, machine.cores, machine.threads,
                      std::move(devices), std::move(distances)});
}

Machine unpacked(const Json& json) {
  const auto number = [&](std::size_t at) { return json.at(at).small_integer(); };
  Machine machine{
      .sockets = number(0), .numa_nodes = number(1), .cores = number(2), .threads = number(3)};
  for (const Json& device : json.at(4).items()) {
    machine.devices.push_back({.name = device.at(std::size_t{0}).text(),
                               .pci_address = device.at(1).text(),
                               .is_gpu = device.at(2).boolean(),
                               .is_infiniband = device.at(3).boolean(),
                               .guid = device.at(4).unsigned_integer(),
                               .numa_node = device.at(5).small_integer()});
  }
  for (const Json& from : json.at(5).items()) {
    auto& row = machine.distances.emplace_back();
    for (const Json& distance : from.items()) {
      row.push_back(static_cast<DeviceDistance>(distance.small_integer()));
    }
  }
  return machine;
}

// The nearest device of the other kind, and how near it is.
std::string nearest(const Machine& machine, std::size_t own, bool gpu) {
  std::vector<std::string> names;
  DeviceDistance best = DeviceDistance::kSystem;
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const MachineDevice& device = machine.devices[i];
    if (i == own || device.is_gpu != gpu || (!gpu && !device.is_infiniband)) continue;
    const DeviceDistance distance = machine.distances[own][i];
    if (distance < best) names.clear();
    best = std::min(best, distance);
    if (distance == best) names.push_back(device.name);
  }
  if (names.empty()) return "";
  return fmt::format(", {} {} ({})", gpu ? "nearest GPUs" : "nearest adapters",
                     fmt::join(names, " "), name_of(best));
}

std::string nvlinks_text(const cuda::GpuLinks& links, const std::string& pci_address) {
  const auto own = std::ranges::find(links.gpus, pci_address);
  if (own == links.gpus.end()) return "";
  const auto& row = links.nvlinks[static_cast<std::size_t>(own - links.gpus.begin())];
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] > 0) texts.push_back(fmt::format("{} to {}", row[i], links.gpus[i]));
  }
  return texts.empty() ? "" : fmt::format(", NVLink {}", fmt::join(texts, ", "));
}

}  // namespace

std::string_view name_of(DeviceDistance distance) {
  switch (distance) {
    case DeviceDistance::kSameCard:
      return "the same card";
    case DeviceDistance::kPciSwitch:
      return "one PCIe switch";
    case DeviceDistance::kHostBridge:
      return "one PCIe root";
    case DeviceDistance::kNumaNode:
      return "one NUMA node";
    case DeviceDistance::kSystem:
      return "across sockets";
  }
  throw InternalError("unknown distance of devices");
}

Machine read_this_machine() {
  return load(new_topology(), true, "hwloc cannot look at this machine");
}

Machine read_machine_xml(const std::string& text, const std::string& origin) {
  if (text.size() > kMostXmlBytes) {
    throw ConfigError(fmt::format("{}: {} bytes, and lstopo --of xml writes at most {}",
                                  shown(origin), text.size(), kMostXmlBytes));
  }
  const auto read = in_child_process([&]() -> std::string {
    const Topology topology = new_topology();
    // hwloc takes the zero byte behind the text, too.
    const bool accepted = hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(),
                                                       static_cast<int>(text.size() + 1)) == 0;
    if (!accepted || hwloc_topology_load(topology.get()) != 0) return "";
    return packed(machine_of(topology.get())).to_cbor();
  });
  if (!read || read->empty()) {
    throw ConfigError(fmt::format("{}: {}", shown(origin),
                                  read ? "no XML of hwloc's, as lstopo --of xml writes it"
                                       : "hwloc breaks down over this XML"));
  }
  return unpacked(Json::from_cbor(*read));
}

Machine make_machine(const std::string& description) {
  const Topology topology = new_topology();
  return load(topology, hwloc_topology_set_synthetic(topology.get(), description.c_str()) == 0,
              fmt::format("'{}': no machine for hwloc, such as 'package:2 core:4 pu:2'",
                          shown(description)));
}

std::vector<std::string> lines_of(const Machine& machine, const cuda::GpuLinks& links) {
  std::vector<std::string> lines{
      fmt::format("machine: {}, {}, {}, {}", counted(machine.sockets, "socket"),
                  counted(machine.numa_nodes, "NUMA node"), counted(machine.cores, "core"),
                  counted(machine.threads, "thread"))};
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const MachineDevice& device = machine.devices[i];
    if (!device.is_gpu && device.pci_address.empty()) continue;  // lo, bridges of software
    lines.push_back(
        fmt::format("  {} {}: {}{}{}",
                    device.is_gpu          ? "GPU"
                    : device.is_infiniband ? "InfiniBand"
                                           : "network",
                    device.name,
                    device.numa_node < 0 ? std::string("no NUMA node known")
                                         : fmt::format("NUMA node {}", device.numa_node),
                    nearest(machine, i, !device.is_gpu), nvlinks_text(links, device.pci_address)));
  }
  return lines;
}

Json json_of(const Machine& machine, const cuda::GpuLinks& links) {
  Json devices = Json::array(), distances = Json::array();
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const MachineDevice& device = machine.devices[i];
    devices.push_back(
        Json::object({{"name", device.name},
                      {"kind", device.is_gpu          ? "gpu"
                               : device.is_infiniband ? "infiniband"
                                                      : "network"},
                      {"pci_address", device.pci_address},
                      {"numa_node", device.numa_node < 0 ? Json() : Json(device.numa_node)}}));
    Json row = Json::array();
    for (const DeviceDistance distance : machine.distances[i]) row.push_back(name_of(distance));
    distances.push_back(row);
  }
  Json json = Json::object({{"sockets", machine.sockets},
                            {"numa_nodes", machine.numa_nodes},
                            {"cores", machine.cores},
                            {"threads", machine.threads},
                            {"devices", devices},
                            {"distances", distances}});
  Json nvlinks = Json::array();
  for (std::size_t i = 0; i < links.gpus.size(); ++i) {
    for (std::size_t j = 0; j < links.gpus.size(); ++j) {
      if (links.nvlinks[i][j] == 0) continue;
      nvlinks.push_back(Json::object(
          {{"from", links.gpus[i]}, {"to", links.gpus[j]}, {"links", links.nvlinks[i][j]}}));
    }
  }
  json["nvlinks"] = nvlinks;
  return json;
}

}  // namespace trireme
