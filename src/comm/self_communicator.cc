#include "comm/self_communicator.h"

#include <cstring>
#include <utility>

#include <mpi.h>

#include "trireme/tensor/copy.h"

#include "comm/device/device_staging.h"
#include "comm/device/device_work.h"

namespace trireme {
namespace {

// Copies device tensors on the device, in the order of `stream`.
void copy_message(const Tensor& from, const Tensor& to, const Stream& stream) {
  TRIREME_CHECK(from.bytes() == to.bytes(), "a message and its receiver differ in size");
  if (from.bytes() == 0 || from.raw() == to.raw()) return;
  if (from.device().kind == DeviceKind::kCpu) {
    std::memmove(to.raw(), from.raw(), from.bytes());
  } else {
    copy(from, to, stream);
  }
}

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(GroupLabel label, int world_rank, int lane, bool host_only)
      : label_(std::move(label)), world_rank_(world_rank), lane_(lane), host_only_(host_only) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const GroupLabel& label() const override { return label_; }
  int world_rank(int /*member*/) const override { return world_rank_; }
  int lane_id() const override { return lane_; }
  bool fixes_order_of_sums(DeviceKind /*device*/) const override { return true; }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp /*op*/) override {
    return stay(ready, std::move(data));
  }
  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp /*op*/) override {
    return move(ready, {std::move(input)}, {std::move(output)});
  }
  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    return move(ready, {std::move(input)}, {std::move(output)});
  }
  Work broadcast(const Stream& ready, Tensor data, int /*root*/) override {
    return stay(ready, std::move(data));
  }
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    return move(ready, {std::move(input)}, {std::move(output)});
  }
  // Matches the first send with the first receive, the second with the second, and so on.
  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    Tensors sent;
    Tensors received;
    for (Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      (sends ? sent : received).push_back(std::move(transfer.tensor));
    }
    TRIREME_CHECK(sent.size() == received.size(),
                  "an exchange of a rank with itself holds as many sends as receives");
    return move(ready, std::move(sent), std::move(received));
  }
  Work barrier() override { return {}; }
  const void* native_mpi() const override { return &native_; }

 private:
  bool on_device(const Stream& ready, const std::vector<Part>& parts) const {
    if (!on_one_device(ready, parts)) return false;
    check_may_carry_devices(!host_only_, label_.name);
    return true;
  }
  Work stay(const Stream& ready, Tensor data) const {
    if (on_device(ready, {{data, Part::Use::kBoth}})) return mark_device_work(ready);
    ready.synchronize();
    return {};
  }
  Work move(const Stream& ready, Tensors from, Tensors to) const {
    std::vector<Part> parts;
    for (Tensor& tensor : from) parts.push_back({tensor, Part::Use::kRead});
    for (Tensor& tensor : to) parts.push_back({tensor, Part::Use::kWrite});
    const bool queued = on_device(ready, parts);
    if (!queued) ready.synchronize();
    for (std::size_t i = 0; i < from.size(); ++i) copy_message(from[i], to[i], ready);
    return queued ? mark_device_work(ready) : Work();
  }

  GroupLabel label_;
  int world_rank_;
  int lane_;
  bool host_only_;
  MPI_Comm native_ = MPI_COMM_SELF;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(GroupLabel label, int world_rank, int lane,
                                                     bool host_only) {
  return std::make_unique<SelfCommunicator>(std::move(label), world_rank, lane, host_only);
}

}  // namespace trireme
