// What doctor makes of facts, and the facts that it gathers from a made-up root folder.
#include "trireme/doctor/doctor.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"

#include "support/doctor_nodes.h"
#include "support/fake_cuda.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::good_node;
using testing::summary;

// The finding on a subject; an empty one where there is none.
Finding on(const NodeFacts& facts, const std::string& subject) {
  for (const Finding& finding : diagnose(facts)) {
    if (finding.subject == subject) return finding;
  }
  return {Verdict::kNotHere, "", "", ""};
}

void expect(const NodeFacts& facts, const std::string& subject, Verdict verdict,
            const std::string& words) {
  const Finding found = on(facts, subject);
  EXPECT_EQ(found.subject, subject);
  EXPECT_EQ(name_of(found.verdict), name_of(verdict)) << subject << ": " << found.what;
  EXPECT_NE((found.what + "; " + found.remedy).find(words), std::string::npos)
      << subject << ": " << found.what << "; " << found.remedy;
}

TEST(Doctor, AGoodNodeIsWell) {
  for (const Finding& finding : diagnose(good_node())) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.subject << ": " << finding.what;
    EXPECT_EQ(finding.remedy, "") << finding.subject;
  }
  const std::string text = doctor_text("n1", diagnose(good_node()));
  EXPECT_NE(text.find("ok        launch          MPICH 4.0.2; 4 tasks by srun\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n\n16 ok, 0 warnings, 0 problems, 0 not here\n"), std::string::npos)
      << text;
}

TEST(Doctor, ATaskThatSeesAllGpusOfItsJobIsWell) {
  NodeFacts facts = good_node();
  facts.gpu_environment.slurm_gpus_on_node = "2";
  EXPECT_EQ(on(facts, "GPUs of the job").subject, "");
}

TEST(Doctor, ANodeWithoutGpusIsWellToo) {
  NodeFacts facts = good_node();
  facts.pci_gpus = facts.devices.count = facts.driver_cuda = 0;
  facts.driver_module.clear();
  facts.gpus.clear();
  expect(facts, "GPUs", Verdict::kNotHere, "no GPU of NVIDIA");
  EXPECT_EQ(on(facts, "GPU driver").subject, "");
  facts.rdma_devices.clear();
  expect(facts, "RDMA network", Verdict::kNotHere, "no InfiniBand");
}

// What a good node has become, and what is then said of it.
struct Case {
  void (*change)(NodeFacts&);
  const char* subject;
  Verdict verdict;
  const char* words;
};
void expect_each(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    NodeFacts facts = good_node();
    each.change(facts);
    expect(facts, each.subject, each.verdict, each.words);
  }
}

TEST(Doctor, WhatIsWrongWithANodeHasARemedy) {
  using enum Verdict;
  expect_each({
      {[](NodeFacts& f) { f.process_manager = false; }, "launch", kProblem, "srun --mpi=pmi2"},
      {[](NodeFacts& f) { f.launched = {}; }, "launch", kOk, "started alone"},
      {[](NodeFacts& f) { f.hdf5_thread_safe = true; }, "HDF5", kOk, "1.10.8, thread-safe"},
      {[](NodeFacts& f) { f.open_files = 256; }, "open files", kWarning, "ulimit -n"},
      {[](NodeFacts& f) { f.own_cpus = {3}; }, "processors", kWarning, "--cpus-per-task"},
      {[](NodeFacts& f) { f.instructions = "baseline"; }, "processors", kWarning, "AVX2"},
      {[](NodeFacts& f) { f.memory_available = 1 << 20; }, "memory", kWarning, "--mem"},
      {[](NodeFacts& f) { f.memory_limit = 512 << 20; }, "memory", kWarning, "limit is 512 MiB"},
      {[](NodeFacts& f) { f.processor_quota = 1.5; }, "processors", kOk, "quota is 1.5"},
      {[](NodeFacts& f) { f.shared_memory = 64 << 20; }, "shared memory", kWarning, "--shm-size"},
      {[](NodeFacts& f) { f.shared_memory = 0; }, "shared memory", kWarning, "no /dev/shm"},
      {[](NodeFacts& f) { f.lockable_memory = 8 << 20; }, "RDMA network", kWarning, "ulimit -l"},
  });
}

TEST(Doctor, WhatIsWrongWithGpusHasARemedy) {
  using enum Verdict;
  expect_each({
      {[](NodeFacts& f) { f.build = {}; }, "GPUs", kWarning, "2 are here, but this program was"},
      {[](NodeFacts& f) { f.driver_cuda = 0; }, "GPU driver", kProblem, "driver installed"},
      // bad input: `doctor` on a node with a fault | problem   GPU driver      it knows CUDA 12.8,
      // this program was built with 13.0; have ... | 71
      {[](NodeFacts& f) { f.driver_cuda = 12080; }, "GPU driver", kProblem, "knows CUDA 12.8"},
      {[](NodeFacts& f) { f.driver_cuda = f.runtime_cuda = 12080; }, "GPU driver", kWarning,
       "knows CUDA 12.8"},
      {[](NodeFacts& f) { f.runtime_cuda = 13010; }, "GPU driver", kWarning, "PTX"},
      {[](NodeFacts& f) {
         f.devices = {0, "no device"};
       },
       "GPUs", kProblem, "--gpus-per-node"},
      {[](NodeFacts& f) {
         f.devices = {0, "no device"};
         f.gpu_environment.cuda_visible_devices = "";
       },
       "GPUs", kProblem, "CUDA_VISIBLE_DEVICES is '', which hides all GPUs: unset it"},
      {[](NodeFacts& f) {
         f.devices = {0, "no device"};
         f.gpu_environment.cuda_visible_devices = "NoDevFiles";
       },
       "GPUs", kProblem, "by which Slurm hides all GPUs from a task that was granted none"},
      {[](NodeFacts& f) { f.gpu_environment.cuda_visible_devices = "GPU-1,GPU-2"; }, "visible GPUs",
       kOk, "'GPU-1,GPU-2', unique ids of GPUs"},
      {[](NodeFacts& f) { f.gpu_environment.cuda_visible_devices = "0,GPU-2"; }, "visible GPUs",
       kWarning, "CUDA ignores it from 'GPU-2' on; write numbers alone"},
      {[](NodeFacts& f) {
         f.gpus[0].properties.name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
         f.gpu_environment.cuda_visible_devices = "MIG-a";
       },
       "MIG", kOk, "cuda:0 is a part of a GPU"},
      {[](NodeFacts& f) { f.gpus[1].properties.major = 7; }, "cuda:1", kProblem,
       "TRIREME_CUDA_ARCHITECTURES=70"},
      {[](NodeFacts& f) { f.gpus[1].properties.memory_pools = false; }, "cuda:1", kProblem,
       "pools"},
      {[](NodeFacts& f) { f.gpu_environment.slurm_gpus_on_node = "4"; }, "GPUs of the job",
       kWarning,
       "sees 2 of the 4 that the job has here: NCCL cannot link GPUs that are hidden from each "
       "other; ask Slurm for the node's GPUs (--gpus-per-node=4) without --gpus-per-task or "
       "--gpu-bind; each rank"},
      {[](NodeFacts& f) {
         f.gpu_environment.slurm_gpus_on_node = "4";
         f.gpu_environment.slurm_gpu_bind = "single:1";
       },
       "GPUs of the job", kWarning, "--gpu-bind (here single:1); each rank"},
      {[](NodeFacts& f) { f.gpus[1].unreachable = {0}; }, "peer access", kWarning, "GPUs 1-0"},
      {[](NodeFacts& f) { f.gpus[1].health->nvlinks = 0; }, "NVLink", kWarning, "on cuda:1"},
      {[](NodeFacts& f) {
         for (GpuFacts& gpu : f.gpus) gpu.health->nvlinks = 0;
       },
       "NVLink", kNotHere, "no link"},
      {[](NodeFacts& f) { f.health_why_not = "no NVML"; }, "GPU state", kWarning, "no NVML"},
      {[](NodeFacts& f) { f.gpus[0].health->persistence = false; }, "persistence", kWarning,
       "off on cuda:0; starting takes seconds longer: have nvidia-persistenced"},
      {[](NodeFacts& f) { f.gpus[0].health->ecc = false; }, "ECC", kWarning, "off on cuda:0"},
      {[](NodeFacts& f) { f.gpus[1].health->uncorrected_errors = 1; }, "ECC", kProblem, "drained"},
      {[](NodeFacts& f) { f.gpus[1].health->slowed_by_heat = true; }, "clocks", kWarning, "heat"},
      {[](NodeFacts& f) { f.gpus[1].health->slowed_by_power = true; }, "clocks", kWarning, "power"},
      {[](NodeFacts& f) {
         f.libraries[0] = {"cuBLASLt", "", "no file"};
       },
       "cuBLASLt", kProblem, "no file; load"},
      {[](NodeFacts& f) {
         f.libraries.push_back({"NCCL", "2.25.1", "/lib/libnccl.so.2", "2.26.0"});
       },
       "NCCL", kProblem,
       "2.25.1, /lib/libnccl.so.2: 2.26.0 or newer is needed; load a newer module of it, or set "
       "LD_LIBRARY_PATH, or use --comm.backend mpi"},
      {[](NodeFacts& f) { f.gpu_environment.nccl_launch_order = "0"; }, "NCCL order", kProblem,
       "NCCL_LAUNCH_ORDER_IMPLICIT=0 is in the environment; unset it"},
      {[](NodeFacts& f) { f.peer_memory_module = false; }, "GPUDirect RDMA", kWarning,
       "have nvidia_peermem loaded"},
      {[](NodeFacts& f) {
         f.peer_memory_module = false;
         f.driver_module = "NVIDIA UNIX Open Kernel Module for x86_64";
       },
       "GPUDirect RDMA", kOk, "DMA-BUF"},
      {[](NodeFacts& f) { f.nccl_plugin = false; }, "NCCL network", kNotHere, "no plugin"},
      {[](NodeFacts& f) { f.gpus[1].place.cpus = {7}; }, "GPU affinity", kWarning, "cuda:1"},
  });
}

TEST(Doctor, EveryProblemAndWarningHasARemedy) {
  NodeFacts facts = good_node();
  facts.rdma_devices.clear();
  expect(facts, "GPUDirect RDMA", Verdict::kNotHere, "no InfiniBand");
  facts = {};
  facts.pci_gpus = 1;
  facts.launched = {2, 0, "srun"};
  for (const Finding& finding : diagnose(facts)) {
    const bool bad = finding.verdict == Verdict::kWarning || finding.verdict == Verdict::kProblem;
    EXPECT_EQ(bad, !finding.remedy.empty()) << finding.subject;
  }
}

TEST(Doctor, KnowsWhichCodeRunsWhere) {
  EXPECT_TRUE(runs_on("80", 8, 0));
  EXPECT_TRUE(runs_on("80", 8, 9));
  EXPECT_FALSE(runs_on("86", 8, 0));
  EXPECT_FALSE(runs_on("80", 9, 0));
  EXPECT_TRUE(runs_on("80, 90a", 9, 0));
  EXPECT_FALSE(runs_on("90a", 10, 0));
  EXPECT_TRUE(runs_on("80, 90a, 100, 120", 10, 3));
  EXPECT_TRUE(runs_on("120, 120 PTX", 13, 0));
  EXPECT_FALSE(runs_on("120 PTX", 10, 0));
  EXPECT_FALSE(runs_on("", 9, 0));
}

TEST(Doctor, GathersFactsFromTheSystemsFiles) {
  const testing::TemporaryFolder root;
  const auto write = [&](const std::string& file, const std::string& text) {
    const std::filesystem::path path = root.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  };
  write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB");
  write("proc/self/cgroup", "0::/slurm/job_7/step_0");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max");
  write("sys/fs/cgroup/slurm/job_7/memory.max", "1073741824");
  write("sys/fs/cgroup/slurm/memory.max", "2147483648");
  write("sys/fs/cgroup/slurm/cpu.max", "150000 100000");
  write("sys/devices/system/cpu/online", "0-3");
  write("sys/class/infiniband/mlx5_1/x", "");
  write("sys/class/infiniband/mlx5_0/x", "");
  write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x10de");
  write("sys/bus/pci/devices/0000:00:00.0/class", "0x030200");
  write("sys/bus/pci/devices/0000:00:00.0/local_cpulist", "2-3");
  write("sys/bus/pci/devices/0000:00:00.0/numa_node", "1");
  write("sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de");
  write("sys/bus/pci/devices/0000:00:01.0/class", "0x040300");  // its sound
  write("sys/module/nvidia_peermem/refcnt", "0");
  write("proc/driver/nvidia/version", "NVRM version: 580");
  testing::FakeCuda cuda;
  const NodeFacts facts = gather_node_facts(cuda, root.path());
  EXPECT_EQ(facts.memory, std::int64_t{8} << 30);
  EXPECT_EQ(facts.memory_available, std::int64_t{4} << 30);
  EXPECT_EQ(facts.memory_limit, std::int64_t{1} << 30);
  EXPECT_EQ(facts.processor_quota, 1.5);
  EXPECT_EQ(facts.online_cpus.size(), 4u);
  EXPECT_EQ(facts.rdma_devices, (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(facts.shared_memory, 0);
  EXPECT_EQ(facts.pci_gpus, 1);
  EXPECT_TRUE(facts.peer_memory_module);
  EXPECT_EQ(facts.driver_module, "NVRM version: 580");
  EXPECT_EQ(facts.libraries.empty(), facts.build.toolkit.empty());
  for (const cuda::LibraryInfo& library : facts.libraries) {
    EXPECT_FALSE(library.path.empty()) << library.name;  // the file, or why there is none
    EXPECT_EQ(library.version.find("unknown"), std::string::npos) << library.name;
  }
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.gpus[0].place.numa_node, 1);
  EXPECT_EQ(facts.gpus[0].place.cpus, (std::vector{2, 3}));

  cuda.fail_all(true);  // a GPU that does not answer is a finding, no end
  const NodeFacts broken = gather_node_facts(cuda, root.path());
  EXPECT_EQ(broken.devices.count, 0);
  EXPECT_EQ(broken.devices.why_none, "properties: scripted failure");
}

TEST(GpuHealth, IsAskedOfNvml) {
  const cuda::HealthReport report = cuda::gpu_health({TRIREME_FAKE_NVML});
  EXPECT_EQ(report.why_not, "");
  EXPECT_EQ(report.driver, "580.65.06");
  ASSERT_EQ(report.gpus.size(), 2u);
  const cuda::GpuHealth& well = report.gpus[0];
  EXPECT_EQ(well.name, "NVIDIA H200");
  EXPECT_EQ(well.pci_bus_id, "0000:19:00.0");
  EXPECT_EQ(well.persistence, true);
  EXPECT_EQ(well.ecc, true);
  EXPECT_EQ(well.uncorrected_errors, 2u);
  EXPECT_EQ(well.clock, 345u);
  EXPECT_EQ(well.max_clock, 1980u);
  EXPECT_DOUBLE_EQ(well.power.value_or(0.0), 642.5);
  EXPECT_FALSE(well.slowed_by_heat || well.slowed_by_power);
  EXPECT_EQ(well.nvlinks, 3);
  const cuda::GpuHealth& ill = report.gpus[1];
  EXPECT_EQ(ill.pci_bus_id, "0000:cb:00.0");
  EXPECT_EQ(ill.persistence, false);
  EXPECT_EQ(ill.ecc, false);
  EXPECT_FALSE(ill.uncorrected_errors.has_value());
  EXPECT_FALSE(ill.power.has_value());
  EXPECT_TRUE(ill.slowed_by_heat && ill.slowed_by_power);
  EXPECT_EQ(ill.nvlinks, 0);
  EXPECT_NE(cuda::gpu_health({"libnot_there.so"}).why_not, "");
}

TEST(GpuHealth, LinksBetweenGpus) {
  const cuda::GpuLinks links = cuda::gpu_links({TRIREME_FAKE_NVML});
  EXPECT_EQ(links.gpus, (std::vector<std::string>{"0000:19:00.0", "0000:cb:00.0"}));
  // The third link of the first GPU leads to a switch, and the second GPU has none there.
  EXPECT_EQ(links.nvlinks, (std::vector<std::vector<int>>{{0, 2}, {0, 0}}));
  EXPECT_TRUE(cuda::gpu_links({"libnot_there.so"}).gpus.empty());
}

NodeFindings found_on(const std::string& node, void (*change)(NodeFacts&)) {
  NodeFacts facts = good_node();
  facts.node = node;
  change(facts);
  return {node, diagnose(facts)};
}

TEST(Doctor, OfAlikeNodesEachFindingIsToldOnce) {
  const auto same = [](NodeFacts&) {};
  const std::string text =
      summary({found_on("n1", same), found_on("n2", same), found_on("n3", same)});
  EXPECT_TRUE(text.starts_with("3 nodes: n[1-3]\n\nthe same on all 3 nodes\nok        launch"))
      << text;
  EXPECT_TRUE(text.ends_with("\n\nnothing differs between the nodes\n\nno problems; no warnings\n"))
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 + 16 + 4) << text;
}

TEST(Doctor, WhatDiffersBetweenNodesNamesThem) {
  std::vector<NodeFindings> nodes;
  for (const char* node : {"n3", "n1", "n12", "n2"}) {
    nodes.push_back(found_on(node, [](NodeFacts& f) {
      if (f.node == "n3") f.driver_cuda = 12080;
      if (f.node == "n12") f.open_files = 256;
      // What is available differs everywhere, and means nothing unless it is too little.
      if (f.node == "n1") f.memory_available = std::int64_t{59} << 30;
      if (f.node == "n2") f.memory_available = std::int64_t{600} << 20;
    }));
  }
  const std::string text = summary(nodes);
  EXPECT_TRUE(text.starts_with("4 nodes: n[1-3,12]\n")) << text;
  const std::string different = text.substr(text.find("\nnot the same on all nodes\n"));
  for (const char* line :
       {"\nok        memory          on 3 nodes, n[1,3,12]: 59.0 to 60.0 of 64.0 GiB available\n",
        "\nwarning   memory          on n2: 0.6 of 64.0 GiB available; ask Slurm",
        "\nwarning   open files      on n12: a process may open 256; raise the limit",
        "\nproblem   GPU driver      on n3: it knows CUDA 12.8, ",
        "\nok        GPU driver      on 3 nodes, n[1-2,12]: it knows CUDA 13.0, ",
        "\nok        cuda:0          on 3 nodes, n[1-2,12]: NVIDIA H200",
        "\n\nproblems on n3; warnings on n[2,12]\n"}) {
    EXPECT_NE(different.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(different.find("launch"), std::string::npos) << text;
  // A subject that only one node tells of has the place that it has there.
  EXPECT_LT(different.find("open files"), different.find("memory")) << text;
}

TEST(Doctor, FindingsTravelAsText) {
  const NodeFindings node = found_on("n1", [](NodeFacts& f) { f.open_files = 256; });
  const NodeFindings back = node_findings_from(to_json(node));
  EXPECT_EQ(doctor_text(back.node, back.findings), doctor_text(node.node, node.findings));
  EXPECT_EQ(summary({back, back}), summary({node, node}));
  EXPECT_THROW(node_findings_from("{}"), InternalError);
}

TEST(NodeNames, AreMatchedUpToTheFirstDot) {
  using Names = std::vector<std::string>;
  using Found = std::vector<int>;
  const Names known{"n1", "n2.site.org", "n3", "n3.site.org"};
  EXPECT_EQ(match_nodes({"n1", "n2", "n1.site.org", "n9"}, known), (Found{0, 1, -1, -1}));
  EXPECT_EQ(match_nodes({"n1.site.org", "n2.site.org", "n2.site.org"}, known), (Found{0, 1, 1}));
  // Two of the known ones, or of those that are asked for, would be equal.
  EXPECT_EQ(match_nodes({"n3", "n3.other.org"}, known), (Found{2, -1}));
  EXPECT_EQ(match_nodes({"n3.other.org"}, known), (Found{-1}));
  EXPECT_EQ(match_nodes({"n1.a.org", "n1.b.org"}, known), (Found{-1, -1}));
  EXPECT_EQ(match_nodes({}, {}), Found{});
}

TEST(NodeList, IsWrittenAsSlurmDoes) {
  EXPECT_EQ(node_list({}), "");
  EXPECT_EQ(node_list({"login"}), "login");
  EXPECT_EQ(node_list({"n3", "n1", "n2", "n7", "n1"}), "n[1-3,7]");
  EXPECT_EQ(node_list({"n9", "n10", "n11"}), "n[9-11]");
  EXPECT_EQ(node_list({"n08", "n09", "n10"}), "n[08-10]");
  EXPECT_EQ(node_list({"gpu2", "n1", "login", "gpu1"}), "gpu[1-2], login, n1");
  EXPECT_EQ(node_list({"rack1-n2", "rack2-n2"}), "rack1-n2, rack2-n2");
  EXPECT_EQ(node_list({"7", "8"}), "[7-8]");
}

}  // namespace
}  // namespace trireme
