// What is inside of a host, as hwloc tells it.
#include "trireme/topology/machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "topology/fabric/child_process.h"

namespace trireme {
namespace {

using testing::message_of;

// Two sockets with a GPU each; an adapter of InfiniBand is behind the PCIe switch of the first GPU.
const std::string kXml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="1073741824"/>
   <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4">
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/>
   </object>
   <object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[00-20]">
    <object type="Bridge" gp_index="7" bridge_type="1-1" depth="1" bridge_pci="0000:[17-19]" pci_busid="0000:00:01.0" pci_type="0604 [8086:2030] [0000:0000] 04" pci_link_speed="15.75">
     <object type="PCIDev" gp_index="8" pci_busid="0000:18:00.0" pci_type="0207 [15b3:101b] [15b3:0001] 00" pci_link_speed="31.5">
      <object type="OSDev" gp_index="9" name="mlx5_0" osdev_type="3">
       <info name="NodeGUID" value="b859:9f03:00a1:b2c4"/>
      </object>
     </object>
     <object type="PCIDev" gp_index="10" pci_busid="0000:19:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.0"/>
    </object>
    <object type="PCIDev" gp_index="11" pci_busid="0000:20:00.0" pci_type="0200 [8086:1563] [8086:0001] 01" pci_link_speed="3.9">
     <object type="OSDev" gp_index="12" name="eth0" osdev_type="2"/>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="13">
   <object type="NUMANode" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="14" local_memory="1073741824"/>
   <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="15">
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="16"/>
   </object>
   <object type="Bridge" gp_index="17" bridge_type="0-1" depth="0" bridge_pci="0000:[c0-d0]">
    <object type="PCIDev" gp_index="18" pci_busid="0000:cb:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.0"/>
   </object>
  </object>
 </object>
</topology>
)";

TEST(Machine, SocketsAdaptersAndGpus) {
  const Machine machine = read_machine_xml(kXml, "node.xml");
  EXPECT_EQ(machine.sockets, 2);
  EXPECT_EQ(machine.numa_nodes, 2);
  EXPECT_EQ(machine.cores, 2);
  ASSERT_EQ(machine.devices.size(), 4u);
  EXPECT_EQ(machine.devices[0].name, "mlx5_0");
  EXPECT_TRUE(machine.devices[0].is_infiniband);
  EXPECT_EQ(machine.devices[0].guid, 0xb8599f0300a1b2c4u);
  EXPECT_EQ(machine.devices[0].numa_node, 0);
  EXPECT_EQ(machine.devices[3].pci_address, "0000:cb:00.0");
  EXPECT_EQ(machine.devices[3].numa_node, 1);
  using enum DeviceDistance;
  EXPECT_EQ(machine.distances[0],
            (std::vector{kSameCard, kHostBridge, kPciSwitch, kSystem}));  // adapter, eth0, two GPUs
  cuda::GpuLinks links;
  links.gpus = {"0000:19:00.0", "0000:cb:00.0"};
  links.nvlinks = {{0, 18}, {18, 0}};
  EXPECT_EQ(
      lines_of(machine, links),
      (std::vector<std::string>{
          "machine: 2 sockets, 2 NUMA nodes, 2 cores, 2 threads",
          "  InfiniBand mlx5_0: NUMA node 0, nearest GPUs 0000:19:00.0 (one PCIe switch)",
          "  network eth0: NUMA node 0, nearest GPUs 0000:19:00.0 (one PCIe root)",
          ("  GPU 0000:19:00.0: NUMA node 0, nearest adapters mlx5_0 (one PCIe switch), NVLink 18 "
           "to 0000:cb:00.0"),
          ("  GPU 0000:cb:00.0: NUMA node 1, nearest adapters mlx5_0 (across sockets), NVLink 18 "
           "to "
           "0000:19:00.0")}));
  const Json json = json_of(machine, links);
  EXPECT_EQ(json.at("devices").at(std::size_t{0}).at("kind").text(), "infiniband");
  EXPECT_EQ(json.at("distances").at(std::size_t{0}).at(std::size_t{2}).text(), "one PCIe switch");
  EXPECT_EQ(json.at("nvlinks").items().size(), 2u);
}

// NVML tells the GPUs by their PCI addresses, hwloc's tree which adapters are near them.
TEST(Machine, GpusOfNvmlAreThoseOfTheTree) {
  const cuda::GpuLinks links = cuda::gpu_links({TRIREME_FAKE_NVML});
  const Machine machine = read_machine_xml(kXml, "node.xml");
  ASSERT_EQ(links.gpus.size(), 2u);
  for (const std::string& gpu : links.gpus) {
    const auto own = std::ranges::find(machine.devices, gpu, &MachineDevice::pci_address);
    ASSERT_NE(own, machine.devices.end()) << gpu;
    EXPECT_TRUE(own->is_gpu);
    EXPECT_EQ(machine.distances[0][static_cast<std::size_t>(own - machine.devices.begin())],
              gpu == "0000:19:00.0" ? DeviceDistance::kPciSwitch : DeviceDistance::kSystem);
  }
  EXPECT_EQ(lines_of(machine, links)[3],
            "  GPU 0000:19:00.0: NUMA node 0, nearest adapters mlx5_0 (one PCIe switch), NVLink 2 "
            "to 0000:cb:00.0");
}

TEST(Machine, MadeUpAndThisOne) {
  const Machine machine = make_machine("package:2 numa:2 core:4 pu:2");
  EXPECT_EQ(machine.sockets, 2);
  EXPECT_EQ(machine.numa_nodes, 4);
  EXPECT_EQ(machine.cores, 16);
  EXPECT_EQ(machine.threads, 32);
  EXPECT_GE(read_this_machine().threads, 1);
}

TEST(ChildProcess, CrashesAlone) {
  EXPECT_EQ(in_child_process([] { return std::string(100'000, 'x'); }), std::string(100'000, 'x'));
  EXPECT_EQ(in_child_process([]() -> std::string { std::abort(); }), std::nullopt);
  EXPECT_EQ(in_child_process([]() -> std::string { throw ConfigError("no"); }), std::nullopt);
}

TEST(Machine, RefusesWhatIsNone) {
  // bad input: `topo show --hwloc`: a file that is no XML of hwloc's | node.xml: no XML of hwloc's,
  // as lstopo --of xml writes it | 2
  EXPECT_EQ(message_of([] { read_machine_xml("no XML", "node.xml"); }),
            "node.xml: no XML of hwloc's, as lstopo --of xml writes it");
  // bad input: `topo show --hwloc`: XML that is too long, or damaged so that hwloc crashes |
  // node.xml: 4194305 bytes, and lstopo --of xml writes at most 4194304; node.xml: hwloc breaks
  // down over this XML | 2
  EXPECT_EQ(message_of([] { read_machine_xml(std::string((4 << 20) + 1, ' '), "node.xml"); }),
            "node.xml: 4194305 bytes, and lstopo --of xml writes at most 4194304");
  // hwloc 2.9 crashes over this.
  const std::string said = message_of([] {
    read_machine_xml(
        "<?xml \n<topologyversion=\"2.0><object "
        "=\"\"=\"\"=\"\"cpuset=\"\"=\"\"nodeset=\"\"><object "
        "type=\"NUMAN\"=\"\"cpuset=\"\"nodeset=\"\"><object >",
        "node.xml");
  });
  EXPECT_TRUE(said == "node.xml: hwloc breaks down over this XML" ||
              said == "node.xml: no XML of hwloc's, as lstopo --of xml writes it")
      << said;
  EXPECT_EQ(message_of([] { make_machine("core:x"); }),
            "'core:x': no machine for hwloc, such as 'package:2 core:4 pu:2'");
}

}  // namespace
}  // namespace trireme
