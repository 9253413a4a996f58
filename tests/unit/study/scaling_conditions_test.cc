// What a study's points ran on: how it is found, kept and told.
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/comm/version.h"
#include "trireme/study/conditions.h"

#include "study/scaling_files.h"
#include "support/temporary_folder.h"

namespace trireme::scaling {
namespace {

namespace fs = std::filesystem;

Conditions conditions(const std::string& job, std::vector<std::string> hosts) {
  return {.program = "trireme 1.0.0",
          .processor = "EPYC, 2 logical processors",
          .device = "cpu",
          .mpi = "MPICH 4.0.2",
          .network = kNotKnown,
          .launcher = "srun",
          .job = job,
          .hosts = std::move(hosts),
          .processors = 1.5};
}

PointResult run(int nodes, std::optional<Conditions> ran_on) {
  return {{Mode::kStrong, nodes, nodes, {nodes, 1, 1}, 1},
          {.units_per_second = 1.0, .step_seconds = 1.0, .steps = 1},
          std::move(ran_on)};
}

std::string fact(const Facts& facts, const std::string& name) {
  for (const auto& [key, value] : facts) {
    if (key == name) return value;
  }
  return "(no such fact)";
}

TEST(ScalingConditions, TheProcessorsModel) {
  EXPECT_EQ(processor_in("processor\t: 0\nmodel\t\t: 207\nmodel name\t: AMD EPYC 9654\n"),
            "AMD EPYC 9654");
  EXPECT_EQ(processor_in("processor\t: 0\ncpu\t\t: POWER9\nclock\t: 3.8\n"), "POWER9");
  EXPECT_EQ(processor_in("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n"),
            "CPU implementer 0x41, part 0xd40");
  EXPECT_EQ(processor_in("model name\t:"), kNotKnown);
  EXPECT_EQ(processor_in(""), kNotKnown);
}

TEST(ScalingConditions, TheDeviceOfAnMpi) {
  EXPECT_EQ(mpi_device_in("MPICH Version:\t4.0.2\nMPICH Device:    \tch4:ofi\nMPICH CC:\tgcc\n"),
            "ch4:ofi");
  EXPECT_EQ(mpi_device_in("Open MPI v4.1.4, package: Debian\n"), "");
}

TEST(ScalingConditions, TheNetworkOfANode) {
  const testing::TemporaryFolder folder;
  const fs::path& root = folder.path();
  const auto write = [&](const char* path, const char* text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  ::unsetenv("FI_PROVIDER");
  ::setenv("UCX_TLS", "tcp,self", 1);
  write("sys/class/net/veth0/operstate", "up");
  EXPECT_EQ(gather_network_facts(root).interfaces, std::vector<std::string>{"veth0"});
  write("sys/class/net/lo/operstate", "unknown");
  write("sys/class/net/eth0/operstate", "up");
  write("sys/class/net/eth0/speed", "10000");
  write("sys/class/net/eth0/device/vendor", "0x15b3");
  write("sys/class/net/eth1/operstate", "down");
  write("sys/class/net/eth1/device/vendor", "0x15b3");
  write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  write("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  const NetworkFacts facts = gather_network_facts(root);
  EXPECT_EQ(facts.interfaces, (std::vector<std::string>{"mlx5_0 (InfiniBand, 200 Gb/sec (4X HDR))",
                                                        "eth0 (10000 Mb/s)"}));
  EXPECT_EQ(facts.settings.at(0), "UCX_TLS=tcp,self");
  EXPECT_EQ(network_text({"ch4:ucx", {"UCX_TLS=tcp", "NCCL_NET=IB"}, {"eth0", "eth1"}}),
            "MPI device ch4:ucx; UCX_TLS=tcp NCCL_NET=IB; node with eth0, eth1; the interface that "
            "was used is not known");
  EXPECT_EQ(network_text({}), "not known");
}

TEST(ScalingConditions, ProcessorsOfAllNodes) {
  EXPECT_EQ(processors_of({}), 0.0);
  const NodeProcessors one{"m", 2.0, 1.0}, half{"m", 2.0, 0.5}, other{"k", 8.0, 4.0};
  EXPECT_EQ(processors_of(std::vector{one}), 1.0);
  EXPECT_EQ(processors_of(std::vector(4, one)), 2.0);  // of one machine
  EXPECT_EQ(processors_of(std::vector(4, half)), 2.0);
  EXPECT_EQ(processors_of(std::vector{one, other}), 5.0);
  EXPECT_EQ(processors_of(std::vector{one, NodeProcessors{"k", 0.0, 4.0}}), 0.0);
  // Nodes whose machines are not known may share one.
  const NodeProcessors unknown{"", 2.0, 1.0};
  EXPECT_EQ(processors_of(std::vector{unknown}), 1.0);
  EXPECT_EQ(processors_of(std::vector(2, unknown)), 0.0);
}

TEST(ScalingConditions, NodesShareTheQuotaOfAGroupAboveThem) {
  const auto node = [](const char* machine, double usable, std::vector<GroupLimit> quotas) {
    return NodeProcessors{machine, 16.0, usable, std::move(quotas)};
  };
  // Four nodes in one group, or each in one of its own below it.
  EXPECT_EQ(processors_of(std::vector(4, node("m", 1.0, {{"job", 2.0}}))), 2.0);
  EXPECT_EQ(processors_of(std::vector{node("m", 1.0, {{"a", 1.0}, {"job", 1.5}}),
                                      node("m", 1.0, {{"b", 1.0}, {"job", 1.5}})}),
            1.5);
  // Two in a group of 0.5, both of which the group above has room for besides a third.
  EXPECT_EQ(processors_of(std::vector{node("m", 0.5, {{"a", 0.5}, {"job", 2.0}}),
                                      node("m", 0.5, {{"a", 0.5}, {"job", 2.0}}),
                                      node("m", 1.0, {{"job", 2.0}})}),
            1.5);
  // On another machine it is another group.
  EXPECT_EQ(
      processors_of(std::vector{node("m", 1.0, {{"job", 1.0}}), node("k", 1.0, {{"job", 1.0}})}),
      2.0);
}

TEST(ScalingConditions, HostsAsRanges) {
  EXPECT_EQ(host_ranges({}), "");
  EXPECT_EQ(host_ranges({"vm"}), "vm");
  EXPECT_EQ(host_ranges({"n1"}), "n1");
  EXPECT_EQ(host_ranges({"login", "n08", "n09", "n10", "n12", "n08", "n9"}),
            "login, n[08-10,12,9]");
  EXPECT_EQ(host_ranges({"n1", "gpu2", "gpu3"}), "n1, gpu[2-3]");
  EXPECT_EQ(host_ranges({"n", "n1"}), "n, n1");
  EXPECT_EQ(host_ranges({"r12345678901"}), "r12345678901");
}

TEST(ScalingConditions, AResultKeepsThem) {
  const testing::TemporaryFolder folder;
  const std::string path = fs::path(folder.path()) / "result.json";
  const PointResult before = run(2, conditions("12", {"n1", "n2"}));
  std::ofstream(path) << result_text(before.measured, *before.conditions);
  const auto read = read_result(path, before.point);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->point, before.point);
  EXPECT_EQ(read->measured, before.measured);
  EXPECT_EQ(read->conditions, before.conditions);
  // One result is of an earlier version, and one measured nothing.
  const std::string old =
      R"("step_s": 1, "comm_s": 0, "wait_data_s": 0, "checkpoint_s": 0, "memory_bytes_per_s": 1, "steps": 3})";
  std::ofstream(path) << R"({"tokens_per_s": 5, )" << old;
  ASSERT_TRUE(read_result(path, before.point).has_value());
  EXPECT_FALSE(read_result(path, before.point)->conditions.has_value());
  std::ofstream(path) << R"({"tokens_per_s": 0, )" << old;
  EXPECT_FALSE(read_result(path, before.point).has_value());
}

// A point without a result is measured, one whose result cannot be read is not measured again.
TEST(ScalingConditions, AbsentAndUnreadableResultsDiffer) {
  const testing::TemporaryFolder folder;
  const PointResult result = run(2, conditions("12", {"n1", "n2"}));
  const std::string point = fs::path(folder.path()) / "point", path = point + "/result.json";
  EXPECT_FALSE(read_result(path, result.point).has_value());
  fs::create_directories(path);
  try {
    read_result(path, result.point);
    FAIL();
  } catch (const RunFolderError& error) {
    EXPECT_EQ(error.what(), path + ": cannot be read: Is a directory");
    EXPECT_TRUE(error.unreadable());
  }
}

TEST(ScalingConditions, FactsOfAStudy) {
  EXPECT_TRUE(facts_of({}).empty());
  const std::vector<PointResult> results = {run(1, conditions("12", {"n1"})),
                                            run(2, conditions("13", {"n1", "n2"}))};
  const Facts facts = facts_of(results);
  EXPECT_EQ(fact(facts, "program"), "trireme 1.0.0");
  EXPECT_EQ(fact(facts, "network"), "not known");
  EXPECT_EQ(fact(facts, "run by"), "srun");
  EXPECT_EQ(fact(facts, "hosts"), "n[1-2]");
  EXPECT_EQ(fact(facts, "jobs"), "12, 13");
  EXPECT_TRUE(differences_of(results).empty());

  std::vector<PointResult> mixed = {run(1, {}), results[0], run(2, conditions("", {"vm"}))};
  mixed[2].conditions->launcher = "mpiexec";
  mixed[2].conditions->mpi = "MPICH 4.3.0";
  const Facts many = facts_of(mixed);
  EXPECT_EQ(fact(many, "program"), "not recorded | trireme 1.0.0");
  EXPECT_EQ(fact(many, "run by"),
            "not recorded | srun | mpiexec on vm alone, whose processors stand for all nodes");
  EXPECT_EQ(fact(many, "jobs"), "not recorded, 12, none");
  EXPECT_EQ(fact(many, "hosts"), "n1, vm | not recorded");
  EXPECT_EQ(differences_of(mixed),
            std::vector<std::string>{"the runs differ in MPI, so compare them with care: "
                                     "MPICH 4.0.2 | MPICH 4.3.0"});
  EXPECT_EQ(fact(facts_of(std::vector{run(1, {})}), "hosts"), "not recorded");
}

}  // namespace
}  // namespace trireme::scaling
