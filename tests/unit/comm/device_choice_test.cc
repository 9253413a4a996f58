// Which GPU a rank takes, and the processors next to it.
#include "trireme/comm/device_choice.h"

#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::message_of;
using Uuids = std::vector<std::string>;

TEST(ChooseDevices, RanksThatSeeAllGpusTakeOneEach) {
  const Uuids all{"a", "b", "c", "d"};
  EXPECT_EQ(choose_devices({all, all, all, all}, false, {}), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(choose_devices({all, all}, false, {}), (std::vector{0, 1}));
}

TEST(ChooseDevices, RanksThatTheLauncherHasBoundTakeTheirOwn) {
  EXPECT_EQ(choose_devices({{"a"}, {"b"}, {"c"}}, false, {}), (std::vector{0, 0, 0}));
  EXPECT_EQ(choose_devices({{"a", "b"}, {"c", "d"}}, false, {}), (std::vector{0, 0}));
  // --gpu-bind=closest: by socket.
  EXPECT_EQ(choose_devices({{"a", "b"}, {"a", "b"}, {"c", "d"}, {"c", "d"}}, false, {}),
            (std::vector{0, 1, 0, 1}));
  // Each in an order of its own, as CUDA_VISIBLE_DEVICES may have it.
  EXPECT_EQ(choose_devices({{"a", "b"}, {"b", "a"}}, false, {}), (std::vector{0, 0}));
  EXPECT_EQ(choose_devices({{"a", "b"}, {"a"}}, false, {}), (std::vector{1, 0}));
}

TEST(ChooseDevices, RanksMayShareOnRequestAlone) {
  const Uuids all{"a", "b"};
  EXPECT_EQ(choose_devices({all, all, all, all, all}, true, {}), (std::vector{0, 1, 0, 1, 0}));
  EXPECT_EQ(message_of([&] {
              choose_devices({all, all, all, all}, false, {});
            }),
            "4 ranks on this node see 2 GPUs, and each needs its own: ask Slurm for "
            "--gpus-per-node=4, start 2 here, or let them share with --comm.backend mpi");
  GpuEnvironment slurm;
  slurm.slurm_job = "7";
  slurm.slurm_gpus_on_node = "4";
  slurm.slurm_gpu_bind = "single:4";
  EXPECT_EQ(message_of([&] {
              choose_devices({{"a"}, {"a"}, {"a"}, {"a"}}, false, slurm);
            }),
            "4 ranks on this node see 1 GPU, and each needs its own: the job has 4 here, so leave "
            "out what hides them (--gpu-bind=single:4)");
  slurm.slurm_gpus_on_node = "2";
  EXPECT_NE(message_of([&] {
              choose_devices({{"a"}, {"a"}, {"a"}}, false, slurm);
            }).find("--gpus-per-node=3"),
            std::string::npos);
}

TEST(ChooseDevices, SaysWhyARankSeesNone) {
  GpuEnvironment given;
  const auto refusal = [&] {
    return message_of([&] { choose_devices({{"a"}, {}}, true, given); });
  };
  EXPECT_EQ(refusal(), "local rank 1 sees no GPU: `trireme doctor` says why");
  given.slurm_job = "7";
  EXPECT_EQ(refusal(),
            "local rank 1 sees no GPU: ask Slurm for the node's GPUs with --gpus-per-node");
  given.cuda_visible_devices = "";
  EXPECT_EQ(refusal(),
            "local rank 1 sees no GPU: CUDA_VISIBLE_DEVICES is '', which hides all GPUs: unset it, "
            "or name one");
}

TEST(VisibleDevices, AreToldAsCudaTakesThem) {
  using enum VisibleDevices::Kind;
  const auto expect = [](const char* text, VisibleDevices::Kind kind, int count,
                         const std::string& words) {
    const VisibleDevices devices = read_visible_devices(text);
    EXPECT_EQ(devices.kind, kind) << text;
    EXPECT_EQ(devices.count, count) << text;
    EXPECT_EQ(words_on(devices), std::string("CUDA_VISIBLE_DEVICES is '") + text + "'" + words);
  };
  EXPECT_EQ(read_visible_devices({}).kind, kAll);
  EXPECT_EQ(words_on(read_visible_devices({})), "");
  for (const char* text : {"", "-1", "none", ",0"})
    expect(text, kNone, 0, ", which hides all GPUs");
  expect("NoDevFiles", kNone, 0,
         ", by which Slurm hides all GPUs from a task that was granted none");
  expect("0,12", kIndices, 2, ", numbers of GPUs");
  expect("0, 1,-1,2", kIndices, 2, ", numbers of GPUs; CUDA ignores it from '-1' on");
  expect("GPU-8932f937,GPU-46b38561", kUuids, 2, ", unique ids of GPUs");
  expect("GPU-8932f937,1", kUuids, 1, ", unique ids of GPUs; CUDA ignores it from '1' on");
  expect("MIG-a5bd3b12", kMig, 1, ", 1 MIG instance");
  expect("MIG-a5bd3b12,MIG-GPU-46b38561/1/0", kMig, 2,
         ", 2 MIG instances, of which CUDA shows a process the first alone");
}

TEST(ChooseDevices, RanksDoNotSeeTheInstancesOfOthers) {
  GpuEnvironment given;
  given.cuda_visible_devices = "MIG-a,MIG-b";
  EXPECT_EQ(message_of([&] {
              choose_devices({{"a"}, {"a"}}, false, given);
            }),
            "2 ranks on this node see 1 GPU, and each needs its own: CUDA_VISIBLE_DEVICES is "
            "'MIG-a,MIG-b', 2 MIG instances, of which CUDA shows a process the first alone: give "
            "each rank an instance of its own (Slurm: --gpus-per-task=1), or let them share with "
            "--comm.backend mpi");
}

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (std::vector{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector{5});
  for (const char* text : {"", "x", "3-1", "1-", "-1", "0-999999999", "1,,2", "1 2"}) {
    EXPECT_EQ(parse_cpu_list(text), std::vector<int>()) << text;
  }
}

TEST(DevicePlace, IsReadFromSysfs) {
  const testing::TemporaryFolder root;
  const auto write = [&](const std::string& file, const std::string& text) {
    const std::filesystem::path path = root.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  };
  write("bus/pci/devices/0000:19:00.0/numa_node", "1");
  write("bus/pci/devices/0000:19:00.0/local_cpulist", "4-7");
  write("bus/pci/devices/0000:3b:00.0/numa_node", "-1");
  write("devices/system/cpu/online", "0-7");
  const DevicePlace place = place_of_device(root.path(), "0000:19:00.0");
  EXPECT_EQ(place.numa_node, 1);
  EXPECT_EQ(place.cpus, (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(place_of_device(root.path(), "0000:3b:00.0").numa_node, -1);
  EXPECT_TRUE(place_of_device(root.path(), "0000:ff:00.0").cpus.empty());

  const std::vector<int> all = online_cpus(root.path());
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(cpus_to_bind(all, all, place), (std::vector{4, 5, 6, 7}));
  EXPECT_FALSE(cpus_to_bind({0, 1}, all, place));  // the launcher has bound it
  EXPECT_FALSE(cpus_to_bind(all, all, {}));        // nothing is known
  EXPECT_FALSE(cpus_to_bind(all, all, {0, all}));  // nothing to choose
  EXPECT_FALSE(own_cpus().empty());
}

}  // namespace
}  // namespace trireme
