// A communicator over MPI next to NCCL: the host side of every group of ranks with a GPU each.
//
// Each operation first reports a fault that NCCL has found, and an order of NCCL and MPI that would
// hang (order_guard.h). It carries tensors of the host alone; a tensor of a GPU is an
// InternalError. NcclCommunicator adds those of the GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

#include "comm/nccl/nccl_connection.h"

namespace trireme::nccl {

class GuardedCommunicator : public Communicator {
 public:
  // The session outlives the communicator.
  GuardedCommunicator(Session& session, std::unique_ptr<Communicator> host)
      : session_(session), host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const GroupLabel& label() const override { return host_->label(); }
  int world_rank(int member) const override { return host_->world_rank(member); }
  int lane_id() const override { return host_->lane_id(); }
  bool fixes_order_of_sums(DeviceKind device) const override {
    return host_->fixes_order_of_sums(device);
  }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) override;
  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) override;
  Work all_gather(const Stream& ready, Tensor input, Tensor output) override;
  Work broadcast(const Stream& ready, Tensor data, int root) override;
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override;
  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override;
  Work barrier() override;
  const void* native_mpi() const override { return host_->native_mpi(); }

 protected:
  // Whether an operation is one of the host. Throws if its tensors, or `ready`, are not all of one
  // device.
  static bool all_on_host(const Stream& ready, std::vector<std::reference_wrapper<Tensor>> tensors);

  Session& session_;
  const std::unique_ptr<Communicator> host_;

 private:
  template <class Start>
  Work by_mpi(const char* what, const Start& start) const;
};

}  // namespace trireme::nccl
