// A rank with a device, for the tests of communicators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/tensor/copy.h"

#include "comm/mpi/mpi_communicator.h"
#include "comm/self_communicator.h"
#include "support/comm_device.h"
#include "support/comm_values.h"
#include "support/mpi_test.h"

namespace trireme::testing {

// How a communicator carries the tensors of a test.
struct Setting {
  std::string name;
  StagingOptions staging;
  bool library = false;      // MPI's own algorithms
  bool synchronous = false;  // rendezvous sends
};
inline const std::vector<Setting> kSettings = {
    {"whole", {}},
    {"direct", {.direct = true, .chunk_bytes = 4096}},
    {"library", {}, true},
    {"rendezvous", {}, false, true},
    {"chunks", {.chunk_bytes = 4096}},
    {"chunks, rendezvous", {.chunk_bytes = 4096}, false, true},
};

inline AlgorithmTable library_table() {
  std::vector<AlgorithmTable::Rule> rules;
  for (const Collective collective : kCollectives) {
    rules.push_back({collective, std::size_t{1} << 40, Algorithm::kLibrary});
  }
  return AlgorithmTable(rules);
}

// A rank's device, its compute stream, and a communicator of all ranks. The destructor checks that
// nothing is left.
class Site {
 public:
  explicit Site(const Setting& setting = kSettings[0], std::uint64_t seed = 1)
      : device_(make_comm_device(seed * 100 + static_cast<unsigned>(runtime().rank()))),
        plan_(std::make_shared<CommunicatorPlan>(
            CommunicatorPlan{setting.library ? library_table() : AlgorithmTable()})),
        synchronous_(setting.synchronous),
        staging_(std::make_shared<DeviceStaging>(device_.cuda, 0, setting.staging)),
        compute_(std::make_unique<cuda::OwnedStream>(device_.cuda, 0)),
        other_(std::make_unique<cuda::OwnedStream>(device_.cuda, 0)),
        memory_(cuda::make_device_allocator(device_.cuda, 0)),
        pinned_(cuda::make_pinned_allocator(device_.cuda, 0)),
        world_(group(77)) {}

  ~Site() {
    EXPECT_TRUE(engine_.drain(60.0));
    engine_.stop();
    world_.reset();
    compute().synchronize();
    EXPECT_EQ(staging_->pinned_memory().total_live, 0u);
    EXPECT_EQ(staging_->shareable_memory().total_live, 0u);
    staging_.reset();
    memory_.reset();
    pinned_.reset();
    compute_.reset();
    other_.reset();
    EXPECT_EQ(leftovers(device_), std::vector<std::string>());
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  std::unique_ptr<Communicator> group(int lane, bool host_only = false) {
    if (runtime().size() == 1) return make_self_communicator("site", 0, lane, host_only);
    std::vector<int> members(static_cast<std::size_t>(runtime().size()));
    std::iota(members.begin(), members.end(), 0);
    return make_mpi_communicator({engine_, *workspace_, synchronous_, &staging_, host_only}, "site",
                                 members, runtime().rank(), lane,
                                 OwnedComm::duplicate(MPI_COMM_WORLD), plan_);
  }
  Communicator& world() { return *world_; }
  const Stream& compute() const { return compute_->get(); }
  const Stream& other() const { return other_->get(); }
  std::size_t host_waits() const { return testing::host_waits(device_); }
  bool can_carry_by(const Setting& setting) const {
    return device_.mpi_reads_it || !setting.staging.direct;
  }

  // Returns device memory. Work on the compute stream fills it with these values.
  template <class T>
  Tensor upload(const std::vector<T>& elements) {
    const auto count = static_cast<std::int64_t>(elements.size());
    const Tensor host =
        Tensor::allocate(*pinned_, Stream(), {count}, dtype_of<T>(), MemoryUse::kWorkspace);
    std::ranges::copy(elements, host.data<T>());
    const Tensor data = empty<T>(count);
    copy(host, data, compute());
    return data;
  }
  template <class T>
  Tensor empty(std::int64_t count) {
    return Tensor::allocate(*memory_, compute(), {count}, dtype_of<T>(), MemoryUse::kGradients);
  }

  // Makes the compute stream wait for the work and read the tensor. check() compares the values.
  template <class T>
  void expect(const Work& work, const Tensor& data, std::vector<T> expected, std::string what) {
    work.wait_on(compute());
    const Tensor host =
        Tensor::allocate(*pinned_, Stream(), data.shape(), data.dtype(), MemoryUse::kWorkspace);
    copy(data, host, compute());
    checks_.push_back([host, expected = std::move(expected), what = std::move(what)] {
      const std::vector<T> got(host.data<T>(), host.data<T>() + host.elements());
      EXPECT_TRUE(same_bits(got, expected)) << what;
    });
  }
  void check() {
    compute().synchronize();
    for (const auto& one : checks_) one();
    checks_.clear();
  }

 private:
  CommDevice device_;
  const std::shared_ptr<const CommunicatorPlan> plan_;
  const bool synchronous_;
  std::shared_ptr<Allocator> workspace_ = make_caching_allocator(Device());
  std::shared_ptr<DeviceStaging> staging_;
  FlightRecorder recorder_;
  ProgressEngine engine_{recorder_};
  std::unique_ptr<cuda::OwnedStream> compute_, other_;
  std::shared_ptr<Allocator> memory_, pinned_;
  std::unique_ptr<Communicator> world_;
  std::vector<std::function<void()>> checks_;
};

inline void on_every_setting(const std::function<void(Site&, const std::string&)>& body) {
  for (const Setting& setting : kSettings) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Site site(setting, seed);
      if (!site.can_carry_by(setting)) continue;
      const std::string what = setting.name + ", seed " + std::to_string(seed);
      body(site, what);
      site.check();
    }
  }
}

}  // namespace trireme::testing
