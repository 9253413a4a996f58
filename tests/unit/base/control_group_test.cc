// Limits of control groups, read from made-up trees of /proc and /sys.
#include "trireme/base/control_group.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/usual_threads.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// A root folder with the files that a test writes.
struct Root {
  testing::TemporaryFolder folder;

  void write(const fs::path& path, const char* text) const {
    fs::create_directories((folder.path() / path).parent_path());
    std::ofstream(folder.path() / path) << text;
  }
  std::vector<GroupLimit> limits(GroupResource resource) const {
    return group_limits(resource, folder.path());
  }
  std::optional<double> least(GroupResource resource) const {
    const auto limit = least_limit(limits(resource));
    return limit ? std::optional(limit->amount) : std::nullopt;
  }
  std::optional<double> processors() const { return least(GroupResource::kProcessors); }
  std::optional<double> memory() const { return least(GroupResource::kMemory); }
};

TEST(ControlGroup, QuotasOfProcessors) {
  const Root root;
  EXPECT_EQ(root.processors(), std::nullopt);
  root.write("proc/self/cgroup", "0::/slurm/job_7\n");
  EXPECT_EQ(root.processors(), std::nullopt);
  root.write("sys/fs/cgroup/slurm/job_7/cpu.max", "max 100000\n");
  EXPECT_EQ(root.processors(), std::nullopt);
  root.write("sys/fs/cgroup/slurm/cpu.max", "150000 100000\n");  // of a group above
  EXPECT_EQ(root.processors(), 1.5);
  root.write("sys/fs/cgroup/slurm/job_7/cpu.max", "5000 10000\n");
  EXPECT_EQ(root.processors(), 0.5);
  root.write("proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/node\n0::/\n");
  EXPECT_EQ(root.processors(), std::nullopt);
  const fs::path group = "sys/fs/cgroup/cpu,cpuacct/node";
  root.write(group / "cpu.cfs_quota_us", "-1\n");
  root.write(group / "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.processors(), std::nullopt);
  root.write(group / "cpu.cfs_quota_us", "25000\n");
  EXPECT_EQ(root.processors(), 0.25);

  // A container without a namespace of groups: /proc has the host's paths, the mount only what is
  // below the container's group.
  root.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/4f/node\n");
  EXPECT_EQ(root.processors(), std::nullopt);
  root.write(
      "proc/self/mountinfo",
      "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
      "32 31 0:29 /docker/4f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  EXPECT_EQ(root.processors(), 0.25);
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const auto inner = root.limits(GroupResource::kProcessors);
  ASSERT_EQ(inner.size(), 2u);
  EXPECT_EQ(inner[0].amount, 0.25);
  EXPECT_EQ(inner[1].amount, 1.5);
  root.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/4f\n");
  const auto outer = root.limits(GroupResource::kProcessors);
  ASSERT_EQ(outer.size(), 1u);
  EXPECT_EQ(outer[0].group, inner[1].group);
  EXPECT_NE(outer[0].group, inner[0].group);
}

TEST(ControlGroup, LimitsOfMemory) {
  const Root now;  // version 2, with Slurm's groups of a step
  now.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_1\n");
  const fs::path scope = "sys/fs/cgroup/system.slice/slurmstepd.scope";
  now.write(scope / "job_7/step_0/user/task_1/memory.max", "max\n");
  EXPECT_EQ(now.memory(), std::nullopt);
  now.write(scope / "job_7/step_0/user/memory.max", "2147483648\n");
  EXPECT_EQ(now.memory(), 2147483648.0);
  now.write(scope / "job_7/memory.max", "1073741824\n");
  const auto least = least_limit(now.limits(GroupResource::kMemory));
  ASSERT_TRUE(least);
  EXPECT_EQ(least->amount, 1073741824.0);
  EXPECT_EQ(least->file, (now.folder.path() / scope / "job_7/memory.max").string());
  EXPECT_EQ(now.processors(), std::nullopt);

  const Root before;  // version 1
  before.write("proc/self/cgroup",
               "9:memory:/slurm/uid_1000/job_7/step_0/task_1\n4:cpu,cpuacct:/\n0::/\n");
  const fs::path user = "sys/fs/cgroup/memory/slurm/uid_1000";
  before.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  before.write(user / "memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(before.memory(), std::nullopt);
  before.write(user / "job_7/memory.limit_in_bytes", "209715200\n");
  before.write(user / "job_7/step_0/memory.limit_in_bytes", "309715200\n");
  EXPECT_EQ(before.memory(), 209715200.0);
}

TEST(ControlGroup, ProcessesShareALimit) {
  using Limits = std::vector<GroupLimit>;
  EXPECT_FALSE(least_share({Limits{}}, 0));
  // Two ranks in groups of their own below that of the job, and one in the job's own.
  const std::vector<Limits> ranks = {
      {{"a", 4.0}, {"job", 6.0}}, {{"b", 1.0}, {"job", 6.0}}, {{"job", 6.0}}, {}};
  EXPECT_EQ(least_share(ranks, 0)->amount, 2.0);
  EXPECT_EQ(least_share(ranks, 0)->processes, 3);
  EXPECT_EQ(least_share(ranks, 0)->limit.group, "job");
  EXPECT_EQ(least_share(ranks, 1)->amount, 1.0);
  EXPECT_EQ(least_share(ranks, 1)->processes, 1);
  EXPECT_EQ(least_share(ranks, 2)->amount, 2.0);
  EXPECT_FALSE(least_share(ranks, 3));
}

TEST(UsualThreads, AreWhatTheQuotaAndOpenmpAllow) {
  EXPECT_EQ(cores_within(4, std::nullopt), 4);
  EXPECT_EQ(cores_within(4, 8.0), 4);
  EXPECT_EQ(cores_within(4, 2.5), 2);
  EXPECT_EQ(cores_within(4, 0.5), 1);
  EXPECT_EQ(cores_within(4, 3.0 * (1.0 / 3.0)), 1);
  const auto threads_with = [](const char* text) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    return usual_threads(4);
  };
  EXPECT_EQ(threads_with("1"), 1);
  EXPECT_EQ(threads_with("3,2"), 3);
  EXPECT_EQ(threads_with("64"), 4);  // no more than there are cores
  for (const char* text : {"", "0", "-1", "two", "2x", "99999999999999"}) {
    EXPECT_EQ(threads_with(text), 4) << text;
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(usual_threads(4), 4);
}

}  // namespace
}  // namespace trireme
