#include "comm/nccl/guarded_communicator.h"

#include <utility>

#include <fmt/format.h>

#include "comm/device/device_staging.h"
#include "comm/nccl/device_operation.h"

namespace trireme::nccl {

bool GuardedCommunicator::all_on_host(const Stream& ready,
                                      std::vector<std::reference_wrapper<Tensor>> tensors) {
  std::vector<trireme::Part> parts;
  for (Tensor& tensor : tensors) parts.push_back({tensor, trireme::Part::Use::kBoth});
  return !on_one_device(ready, parts);
}

// A fault that is known is told before anything is on its way into the caller's memory, and so is
// an order that would hang.
template <class Start>
Work GuardedCommunicator::by_mpi(const char* what, const Start& start) const {
  const std::string name_of_it = fmt::format("{} of {}", what, name());
  session_.check();
  session_.guard().before_waiting(name_of_it);
  return make_host_work(session_, name_of_it, start());
}

Work GuardedCommunicator::all_reduce(const Stream& ready, Tensor data, ReduceOp op) {
  return by_mpi("all_reduce", [&] { return host_->all_reduce(ready, std::move(data), op); });
}

Work GuardedCommunicator::reduce_scatter(const Stream& ready, Tensor input, Tensor output,
                                         ReduceOp op) {
  return by_mpi("reduce_scatter", [&] {
    return host_->reduce_scatter(ready, std::move(input), std::move(output), op);
  });
}

Work GuardedCommunicator::all_gather(const Stream& ready, Tensor input, Tensor output) {
  return by_mpi("all_gather",
                [&] { return host_->all_gather(ready, std::move(input), std::move(output)); });
}

Work GuardedCommunicator::broadcast(const Stream& ready, Tensor data, int root) {
  return by_mpi("broadcast", [&] { return host_->broadcast(ready, std::move(data), root); });
}

Work GuardedCommunicator::all_to_all(const Stream& ready, Tensor input, Tensor output) {
  return by_mpi("all_to_all",
                [&] { return host_->all_to_all(ready, std::move(input), std::move(output)); });
}

Work GuardedCommunicator::exchange(const Stream& ready, std::vector<Transfer> transfers) {
  return by_mpi("exchange", [&] { return host_->exchange(ready, std::move(transfers)); });
}

Work GuardedCommunicator::barrier() {
  return by_mpi("barrier", [&] { return host_->barrier(); });
}

}  // namespace trireme::nccl
