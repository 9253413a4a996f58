#include "trireme/comm/dry_rank.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/captured_communication.h"
#include "trireme/comm/checked_arguments.h"
#include "trireme/comm/reduce.h"

#include "comm/faults/recorder_impl.h"
#include "comm/group_communicator.h"

namespace trireme {
namespace {

// On the host, and not dry.
bool is_real(const Tensor& tensor) {
  return tensor.bytes() > 0 && !is_dry(tensor.raw()) && tensor.device().kind == DeviceKind::kCpu;
}

std::byte* bytes_at(const Tensor& tensor, std::size_t offset) {
  return static_cast<std::byte*>(tensor.raw()) + offset;
}

// The handle of what stream a log knows; nullptr for the host.
const void* logged(const Stream& stream) {
  return stream.device().kind == DeviceKind::kCpu ? nullptr : stream.native();
}

// Tells a log who waits for communication.
class LoggedWaits {
 public:
  LoggedWaits(std::shared_ptr<ProgramLog> log, std::vector<PostedCommunication> posted)
      : log_(std::move(log)), posted_(std::move(posted)) {}

  void wait(const void* stream) const {
    for (const PostedCommunication& posted : posted_) log_->wait(stream, posted);
  }

 private:
  std::shared_ptr<ProgramLog> log_;  // null: nothing was posted
  std::vector<PostedCommunication> posted_;
};

// A collective is done at once.
class DryCollective final : public Work::State {
 public:
  explicit DryCollective(LoggedWaits waits) : waits_(std::move(waits)) {}

  bool done() override { return true; }
  void wait_host() override { waits_.wait(nullptr); }
  void wait_on(const Stream& stream) override { waits_.wait(logged(stream)); }

 private:
  const LoggedWaits waits_;
};

// An exchange is done when it is looked at for the second time, or waited for. Until then it owns
// its tensors: a message takes as long as the work up to the next exchange.
class DryExchange final : public Work::State {
 public:
  DryExchange(std::vector<Transfer> transfers, LoggedWaits waits)
      : transfers_(std::move(transfers)), waits_(std::move(waits)) {}

  bool done() override {
    if (std::exchange(looked_at_, true)) transfers_.clear();
    return transfers_.empty();
  }
  void wait_host() override {
    waits_.wait(nullptr);
    transfers_.clear();
  }
  void wait_on(const Stream& stream) override {
    waits_.wait(logged(stream));
    transfers_.clear();
  }

 private:
  std::vector<Transfer> transfers_;
  const LoggedWaits waits_;
  bool looked_at_ = false;
};

}  // namespace

class DryRank::Impl {
 public:
  explicit Impl(const DryRankOptions& given)
      : options(given), host(fmt::format("n{}", given.rank / given.ranks_of_node)) {
    TRIREME_CHECK(
        0 <= given.rank && given.rank < given.size && given.ranks_of_node >= 1,
        fmt::format("rank {} of {}, {} a node", given.rank, given.size, given.ranks_of_node));
  }

  // Returns what the log, if there is one, calls it. `ready` is the stream that it starts behind,
  // `together` a message of the same exchange.
  PostedCommunication record(int lane, const GroupLabel& group, std::string_view operation,
                             std::size_t bytes, const std::vector<int>& ranks, const Stream& ready,
                             bool to_peer = false, const PostedCommunication& together = {}) {
    const int peer = to_peer ? ranks.front() : -1;
    recorder.end(recorder.begin(lane, peer, operation == "send", operation, bytes));
    const auto sum = traffic
                         .try_emplace({lane, std::string(operation), peer},
                                      DryTraffic{group, std::string(operation), ranks})
                         .first;
    ++sum->second.calls;
    sum->second.bytes += bytes;
    sum->second.lane = lane;
    sum->second.on_gpu = sum->second.on_gpu || ready.device().kind != DeviceKind::kCpu;
    if (!options.log) return {};
    return options.log->post(logged(ready), operation, lane, peer, bytes, together);
  }

  const DryRankOptions options;
  const std::string host;
  FlightRecorder recorder;
  int lanes = 0;  // made so far; each has the next number
  std::map<std::tuple<int, std::string, int>, DryTraffic> traffic;
  std::map<int, DryLane> communicators;  // by lane
  std::unique_ptr<Communicator> world;
};

namespace {

class DryCommunicator final : public GroupCommunicator {
 public:
  DryCommunicator(DryRank::Impl& impl, const GroupLabel& label, const std::vector<int>& members,
                  int lane)
      : GroupCommunicator(label, members, index_of(impl.options.rank, label.name, members), lane),
        impl_(impl) {
    impl.recorder.impl().add_lane(lane, {label, members});
    impl.communicators.try_emplace(lane, DryLane{label, members});
  }

  bool fixes_order_of_sums(DeviceKind device) const override {
    const bool library = device != DeviceKind::kCpu && impl_.options.nccl;
    return size() == 1 || (impl_.options.keeps_order && !library);
  }

  bool exchanges_in_order(DeviceKind device) const override {
    return device != DeviceKind::kCpu && impl_.options.nccl;
  }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp /*op*/) override {
    check_reducible(data.dtype());
    return record("all_reduce", data.bytes(), ready);
  }
  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp /*op*/) override {
    check_reducible(input.dtype());
    check_parts(*this, "reduce_scatter", input, output);
    if (is_real(output)) move(bytes_at(output, 0), input, own_offset(output), output.bytes());
    return record("reduce_scatter", input.bytes(), ready);
  }
  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    check_parts(*this, "all_gather", output, input);
    if (is_real(output)) {
      // The input may be a part of the output.
      move(bytes_at(output, own_offset(input)), input, 0, input.bytes());
      for (int part = 0; part < size(); ++part) {
        const std::size_t offset = static_cast<std::size_t>(part) * input.bytes();
        move(bytes_at(output, offset), output, own_offset(input), input.bytes());
      }
    }
    return record("all_gather", output.bytes(), ready);
  }
  Work broadcast(const Stream& ready, Tensor data, int root) override {
    check_member(*this, root);
    return record("broadcast", data.bytes(), ready);
  }
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    check_all_to_all(*this, input, output);
    if (is_real(output)) move(bytes_at(output, 0), input, 0, output.bytes());
    return record("all_to_all", input.bytes(), ready);
  }
  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    std::vector<PostedCommunication> posted;
    for (const Transfer& transfer : transfers) {
      check_member(*this, transfer.peer);
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      if (!sends && is_real(transfer.tensor)) {
        std::memset(transfer.tensor.raw(), 0, transfer.tensor.bytes());
      }
      if (size() == 1) continue;
      posted.push_back(impl_.record(lane_id(), label(), sends ? "send" : "receive",
                                    transfer.tensor.bytes(), {world_rank(transfer.peer)}, ready,
                                    /*to_peer=*/true,
                                    posted.empty() ? PostedCommunication() : posted.front()));
    }
    return Work(std::make_shared<DryExchange>(std::move(transfers), waits_for(std::move(posted))));
  }
  Work barrier() override { return record("barrier", 0, Stream()); }

  const void* native_mpi() const override {
    throw InternalError("communicator " + name() + " is of a dry run: it has no MPI_Comm");
  }

 private:
  static int index_of(int rank, const std::string& name, const std::vector<int>& members) {
    const auto own = std::ranges::find(members, rank);
    TRIREME_CHECK(own != members.end(), fmt::format("rank {} is not in the group {}", rank, name));
    return static_cast<int>(own - members.begin());
  }
  Work record(std::string_view operation, std::size_t bytes, const Stream& ready) {
    if (size() == 1) return {};
    const auto posted = impl_.record(lane_id(), label(), operation, bytes, members(), ready);
    if (!impl_.options.log) return {};
    return Work(std::make_shared<DryCollective>(waits_for({posted})));
  }
  LoggedWaits waits_for(std::vector<PostedCommunication> posted) const {
    if (!impl_.options.log) posted.clear();
    return {impl_.options.log, std::move(posted)};
  }
  std::size_t own_offset(const Tensor& part) const {
    return static_cast<std::size_t>(rank()) * part.bytes();
  }
  static void move(std::byte* to, const Tensor& from, std::size_t offset, std::size_t bytes) {
    if (is_real(from)) std::memmove(to, bytes_at(from, offset), bytes);
  }

  DryRank::Impl& impl_;
};

}  // namespace

DryRank::DryRank(const DryRankOptions& options) : impl_(std::make_unique<Impl>(options)) {
  std::vector<int> all(static_cast<std::size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  impl_->world = group("world", all);
}

DryRank::~DryRank() = default;

Communicator& DryRank::world() {
  return *impl_->world;
}
int DryRank::rank() const {
  return impl_->options.rank;
}
int DryRank::size() const {
  return impl_->options.size;
}
int DryRank::node() const {
  return rank() / impl_->options.ranks_of_node;
}
int DryRank::nodes() const {
  return (size() + impl_->options.ranks_of_node - 1) / impl_->options.ranks_of_node;
}
int DryRank::local_rank() const {
  return rank() % impl_->options.ranks_of_node;
}
int DryRank::local_size() const {
  return std::min(impl_->options.ranks_of_node, size() - (rank() - local_rank()));
}
const std::string& DryRank::host() const {
  return impl_->host;
}
FlightRecorder& DryRank::recorder() {
  return impl_->recorder;
}

std::unique_ptr<Communicator> DryRank::group(const GroupLabel& label,
                                             const std::vector<int>& ranks) {
  return std::make_unique<DryCommunicator>(*impl_, label, ranks, impl_->lanes++);
}

std::unique_ptr<Communicator> DryRank::host_group(const GroupLabel& label,
                                                  const std::vector<int>& ranks) {
  return group(label, ranks);
}

std::string DryRank::why_no_capture() const {
  const bool by_host = impl_->options.size > 1 && !impl_->options.nccl;
  return by_host ? "MPI carries tensors of the GPU by way of the host" : "";
}

std::unique_ptr<CapturedCommunication> DryRank::capture(const Stream& /*stream*/,
                                                        const std::int64_t* /*number*/) {
  return std::make_unique<CapturedCommunication>();
}

const std::map<int, DryLane>& DryRank::lanes() const {
  return impl_->communicators;
}

std::vector<DryTraffic> DryRank::take_traffic() {
  std::vector<DryTraffic> taken;
  for (auto& [key, sum] : std::exchange(impl_->traffic, {})) taken.push_back(std::move(sum));
  return taken;
}

}  // namespace trireme
