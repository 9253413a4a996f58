// Communicators that carry tensors of a device over MPI: the same bits as those of the host,
// whatever the delays of the streams.
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/process_grid.h"
#include "trireme/tensor/copy.h"

#include "support/comm_device.h"
#include "support/comm_site.h"
#include "support/comm_values.h"
#include "support/message_of.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::all_reduced;
using testing::kSettings;
using testing::on_every_setting;
using testing::runtime;
using testing::same_bits;
using testing::Site;
using testing::values;
using Direction = Transfer::Direction;

const std::vector<std::int64_t> kCounts = {0, 1, 1000, 20011};

template <class T>
class DeviceCollectives : public ::testing::Test {};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(DeviceCollectives, Types);

TYPED_TEST(DeviceCollectives, AllReduce) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (const std::int64_t count : kCounts) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        if (what.starts_with("library") && op == ReduceOp::kSum) continue;  // its order is its own
        const Tensor data = site.upload(values<TypeParam>(world.rank(), count));
        site.expect(world.all_reduce(site.compute(), data, op), data,
                    all_reduced<TypeParam>(world.size(), count, op), what);
      }
    }
  });
}

TYPED_TEST(DeviceCollectives, ReduceScatter) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (const std::int64_t count : kCounts) {
      const Tensor input = site.upload(values<TypeParam>(world.rank(), count * world.size()));
      const Tensor output = site.empty<TypeParam>(count);
      // MPI's own order of a sum is its own.
      const ReduceOp op = what.starts_with("library") ? ReduceOp::kMax : ReduceOp::kSum;
      site.expect(world.reduce_scatter(site.compute(), input, output, op), output,
                  all_reduced<TypeParam>(world.size(), count, op, count * world.rank()), what);
    }
  });
}

TYPED_TEST(DeviceCollectives, AllGather) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (const std::int64_t count : kCounts) {
      std::vector<TypeParam> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        const auto part = values<TypeParam>(rank, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const auto own = values<TypeParam>(world.rank(), count);
      const Tensor output = site.empty<TypeParam>(count * world.size());
      site.expect(world.all_gather(site.compute(), site.upload(own), output), output, expected,
                  what);

      std::vector<TypeParam> whole(expected.size());
      std::ranges::copy(own, whole.begin() + count * world.rank());
      const Tensor in_place = site.upload(whole);
      const Tensor part = in_place.flat_range(count * world.rank(), count * (world.rank() + 1));
      site.expect(world.all_gather(site.compute(), part, in_place), in_place, expected, what);
    }
  });
}

TYPED_TEST(DeviceCollectives, Broadcast) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (const std::int64_t count : kCounts) {
      for (int root = 0; root < world.size(); ++root) {
        const Tensor data = site.upload(values<TypeParam>(world.rank(), count));
        site.expect(world.broadcast(site.compute(), data, root), data,
                    values<TypeParam>(root, count), what);
      }
    }
  });
}

TYPED_TEST(DeviceCollectives, AllToAll) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (const std::int64_t count : kCounts) {
      const Tensor input = site.upload(values<TypeParam>(world.rank(), count * world.size()));
      const Tensor output = site.empty<TypeParam>(count * world.size());
      std::vector<TypeParam> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        const auto part = values<TypeParam>(rank, count, count * world.rank());
        expected.insert(expected.end(), part.begin(), part.end());
      }
      site.expect(world.all_to_all(site.compute(), input, output), output, expected, what);
    }
  });
}

TEST(DeviceComm, ACommunicatorForTheHostRefusesTensorsOfADevice) {
  Site site(kSettings.front());
  const auto comm = site.group(78, /*host_only=*/true);
  const Tensor data = site.upload(values<float>(comm->rank(), 100));
  const auto fault = testing::message_of<InternalError>(
      [&] { comm->all_reduce(site.compute(), data, ReduceOp::kSum); });
  EXPECT_NE(fault.find("communicator site was given a tensor of a GPU"), std::string::npos)
      << fault;
  EXPECT_EQ(comm->all_reduce_host(1, ReduceOp::kSum), comm->size());
}

TEST(DeviceComm, ExchangeInARing) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    for (const std::int64_t count : kCounts) {
      const Tensor right = site.upload(values<float>(world.rank(), count));
      const Tensor left = site.upload(values<float>(world.rank() + 100, count + 1));
      const Tensor from_left = site.empty<float>(count);
      const Tensor from_right = site.empty<float>(count + 1);
      const Work first = world.exchange(
          site.compute(),
          {{Direction::kSend, next, right}, {Direction::kReceive, previous, from_left}});
      const Work second = world.exchange(site.compute(), {{Direction::kSend, previous, left},
                                                          {Direction::kReceive, next, from_right}});
      site.expect(second, from_right, values<float>(next + 100, count + 1), what);
      site.expect(first, from_left, values<float>(previous, count), what);
    }
  });
}

// Chunks are as long as in training: six of them, and the last one short.
TEST(DeviceComm, LargeTensorsTravelInChunks) {
  Site site;
  Communicator& world = site.world();
  const auto count = static_cast<std::int64_t>(kChunkBytes / sizeof(float) * 5 + 77);
  const Tensor data = site.upload(values<float>(world.rank(), count));
  site.expect(world.all_reduce(site.compute(), data, ReduceOp::kSum), data,
              all_reduced<float>(world.size(), count, ReduceOp::kSum), "large");
  site.check();
}

// A work that only the host waits for is done on the device too, and what was sent may be
// overwritten.
TEST(DeviceComm, TheHostWaitsForTheDevice) {
  on_every_setting([](Site& site, const std::string& what) {
    Communicator& world = site.world();
    for (int round = 0; round < 5; ++round) {
      const Tensor data = site.upload(values<float>(world.rank() + round, 1000));
      Work work = world.all_reduce(site.compute(), data, ReduceOp::kMax);
      work.wait_host();
      EXPECT_TRUE(work.done());
      const Stream& other = site.other();
      std::vector<float> got(1000);
      copy(data, Tensor::wrap(std::span(got)), other);  // waits for nothing else
      std::vector<float> expected(1000);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = testing::value_of<float>(round, static_cast<std::int64_t>(i));
        for (int rank = 1; rank < world.size(); ++rank) {
          expected[i] = std::max(
              expected[i], testing::value_of<float>(rank + round, static_cast<std::int64_t>(i)));
        }
      }
      EXPECT_TRUE(same_bits(got, expected)) << what;
      other.synchronize();
    }
  });
}

// One rank starts everything before the others begin: that holds up no host.
TEST(DeviceComm, StartingHoldsUpNoHost) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Site site(kSettings[0], seed);
    Communicator& world = site.world();
    const bool first = world.rank() == 0;
    if (!first) runtime().world().barrier().wait_host();
    const std::size_t waits = site.host_waits();
    std::vector<std::pair<Tensor, Work>> sums;
    for (int round = 0; round < 10; ++round) {
      const Tensor data = site.upload(values<float>(world.rank() + round, 3000));
      sums.emplace_back(data, world.all_reduce(site.compute(), data, ReduceOp::kMax));
    }
    EXPECT_EQ(site.host_waits(), waits);
    if (first) runtime().world().barrier().wait_host();
    for (int round = 0; round < 10; ++round) {
      std::vector<float> expected(3000);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (int rank = 0; rank < world.size(); ++rank) {
          const auto x = testing::value_of<float>(rank + round, static_cast<std::int64_t>(i));
          expected[i] = rank == 0 ? x : std::max(expected[i], x);
        }
      }
      const auto& [data, sum] = sums[static_cast<std::size_t>(round)];
      site.expect(sum, data, expected, "seed " + std::to_string(seed));
    }
    site.check();
  }
}

// A stream that does not wait for a work is not held up by it.
TEST(DeviceComm, OtherStreamsGoOn) {
  if (runtime().size() < 2) GTEST_SKIP() << "one rank has nothing to wait for";
  Site site;
  const bool first = runtime().rank() == 0;
  if (!first) runtime().world().barrier().wait_host();
  const Tensor data = site.upload(values<float>(runtime().rank(), 1000));
  const Work work = site.world().all_reduce(site.compute(), data, ReduceOp::kMax);
  if (first) {
    site.compute().synchronize();  // the work is under way until the others come
    EXPECT_FALSE(work.done());
    runtime().world().barrier().wait_host();
  }
  site.expect(work, data, all_reduced<float>(runtime().size(), 1000, ReduceOp::kMax), "");
  site.check();
}

// Lanes are as independent as they are for tensors of the host: a receive that is queued first
// holds up neither a sum, in whatever order the ranks start two of them, nor the send that feeds on
// it and is what the receive waits for.
TEST(DeviceComm, LanesAreIndependent) {
  if (runtime().size() < 2) GTEST_SKIP() << "one rank has one lane";
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Site site(kSettings[0], seed);
    Communicator& world = site.world();
    const std::unique_ptr<Communicator> other = site.group(78);
    const int peer = world.rank() ^ 1;
    const Tensor a = site.upload(values<float>(world.rank(), 2000));
    const Tensor b = site.upload(values<double>(world.rank(), 2000));
    const Tensor received = site.empty<float>(2000), sent = site.empty<float>(2000);
    const Work receive = world.exchange(site.compute(), {{Direction::kReceive, peer, received}});
    Work work_a, work_b;
    const auto start_a = [&] { work_a = world.all_reduce(site.compute(), a, ReduceOp::kMax); };
    const auto start_b = [&] { work_b = other->all_reduce(site.compute(), b, ReduceOp::kMax); };
    const bool swap = world.rank() % 2 == 1;
    swap ? start_b() : start_a();
    swap ? start_a() : start_b();
    work_a.wait_on(site.compute());
    copy(a, sent, site.compute());
    const Work send = world.exchange(site.compute(), {{Direction::kSend, peer, sent}});
    const auto what = "seed " + std::to_string(seed);
    site.expect(work_b, b, all_reduced<double>(world.size(), 2000, ReduceOp::kMax), what);
    site.expect(receive, received, all_reduced<float>(world.size(), 2000, ReduceOp::kMax), what);
    site.check();
    send.wait_host();
  }
}

TEST(DeviceComm, AnOperationIsOnOneDevice) {
  Site site;
  Communicator& world = site.world();
  std::vector<float> on_host(8);
  const auto n = static_cast<std::int64_t>(on_host.size()) * world.size();
  std::vector<float> whole_on_host(static_cast<std::size_t>(n));
  const Tensor host = testing::wrap(on_host), whole_host = testing::wrap(whole_on_host);
  const Tensor part = site.empty<float>(8), whole = site.empty<float>(n);
  const Stream& compute = site.compute();
  EXPECT_THROW(world.reduce_scatter(compute, whole, host, ReduceOp::kSum), InternalError);
  EXPECT_THROW(world.all_gather(compute, host, whole), InternalError);
  EXPECT_THROW(world.all_to_all(compute, whole_host, whole), InternalError);
  EXPECT_THROW(
      world.exchange(compute, {{Direction::kSend, 0, part}, {Direction::kReceive, 0, host}}),
      InternalError);
  EXPECT_THROW(world.all_reduce(Stream(), part, ReduceOp::kSum), InternalError);
}

TEST(DeviceComm, ARuntimeWithoutADeviceRefuses) {
  if (runtime().size() < 2) GTEST_SKIP() << "one rank needs no backend";
  Site site;
  EXPECT_THROW(runtime()
                   .group("without",
                          [] {
                            std::vector<int> all(static_cast<std::size_t>(runtime().size()));
                            std::iota(all.begin(), all.end(), 0);
                            return all;
                          }())
                   ->all_reduce(site.compute(), site.empty<float>(8), ReduceOp::kSum),
               InternalError);
}

// The last one: there is no way back.
TEST(DeviceCommRuntime, CarriesTensorsOfItsDevice) {
  const testing::CommDevice device =
      testing::make_comm_device(static_cast<unsigned>(runtime().rank()) + 1);
  const ProcessGrid before(runtime(), {runtime().size(), 1, 1});
  runtime().use_device(device.cuda, 0, DeviceBackend::kMpi);
  const ProcessGrid grid(runtime(), {1, 1, runtime().size()});
  const cuda::OwnedStream compute(device.cuda, 0);
  const auto memory = cuda::make_device_allocator(device.cuda, 0);
  const Runtime::DeviceUse use(runtime());
  for (Communicator* comm :
       {&before.comm(kDataAxes), &grid.comm(Axis::kTensor), &grid.comm(kDataAxes)}) {
    const auto own = values<float>(comm->rank(), 500);
    std::vector<float> got(500);
    const Tensor data =
        Tensor::allocate(*memory, compute.get(), {500}, DType::kF32, MemoryUse::kActivations);
    copy(Tensor::wrap(std::span(const_cast<float*>(own.data()), own.size())), data, compute.get());
    comm->all_reduce(compute.get(), data, ReduceOp::kSum).wait_on(compute.get());
    copy(data, Tensor::wrap(std::span(got)), compute.get());
    EXPECT_TRUE(same_bits(got, all_reduced<float>(comm->size(), 500, ReduceOp::kSum)));
    EXPECT_EQ(comm->all_reduce_host(1, ReduceOp::kSum), comm->size());
  }
  EXPECT_TRUE(runtime().world().agree(true));
  const Tensor data =
      Tensor::allocate(*memory, compute.get(), {8}, DType::kF32, MemoryUse::kActivations);
  for (Communicator* comm : {&runtime().world(), &before.world(), &grid.world()}) {
    EXPECT_THROW(comm->all_reduce(compute.get(), data, ReduceOp::kSum), InternalError)
        << comm->name();
  }
}

}  // namespace
}  // namespace trireme
