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
            "local rank 1 sees no GPU, because CUDA_VISIBLE_DEVICES is '': unset it, or name one");
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
