#include "self_communicator.h"

#include <cstring>
#include <utility>

#include <mpi.h>

namespace trireme {
namespace {

void copy(const Tensor& from, const Tensor& to) {
  TRIREME_CHECK(from.bytes() == to.bytes(), "a message and its receiver differ in size");
  if (from.bytes() > 0 && from.raw() != to.raw()) std::memmove(to.raw(), from.raw(), from.bytes());
}

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, int world_rank, int lane)
      : name_(std::move(name)), world_rank_(world_rank), lane_(lane) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  int world_rank(int /*member*/) const override { return world_rank_; }
  int lane_id() const override { return lane_; }

  Work all_reduce(const Stream& /*ready*/, Tensor /*data*/, ReduceOp /*op*/) override { return {}; }
  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp /*op*/) override {
    ready.synchronize();
    copy(input, output);
    return {};
  }
  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    ready.synchronize();
    copy(input, output);
    return {};
  }
  Work broadcast(const Stream& /*ready*/, Tensor /*data*/, int /*root*/) override { return {}; }
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    ready.synchronize();
    copy(input, output);
    return {};
  }
  // The first send goes to the first receive, and so on.
  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    ready.synchronize();
    std::vector<Tensor> sent;
    std::vector<Tensor> received;
    for (Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      (sends ? sent : received).push_back(std::move(transfer.tensor));
    }
    TRIREME_CHECK(sent.size() == received.size(),
                  "an exchange of a rank with itself holds as many sends as receives");
    for (std::size_t i = 0; i < sent.size(); ++i) copy(sent[i], received[i]);
    return {};
  }
  Work barrier() override { return {}; }
  const void* native_mpi() const override { return &native_; }

 private:
  std::string name_;
  int world_rank_;
  int lane_;
  MPI_Comm native_ = MPI_COMM_SELF;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name, int world_rank, int lane) {
  return std::make_unique<SelfCommunicator>(std::move(name), world_rank, lane);
}

}  // namespace trireme
