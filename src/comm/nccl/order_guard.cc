#include "comm/nccl/order_guard.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::nccl {

OrderGuard::Entry::Entry(OrderGuard& guard, std::string what) : guard_(guard) {
  const std::lock_guard lock(guard_.mutex_);
  TRIREME_CHECK(!guard_.unsettled_, fmt::format("NCCL was asked for {} while {} had not settled",
                                                what, guard_.unsettled_->what));
  guard_.unsettled_ = {std::move(what), std::this_thread::get_id()};
}

OrderGuard::Entry::~Entry() {
  const std::lock_guard lock(guard_.mutex_);
  guard_.unsettled_.reset();
}

void OrderGuard::before_waiting(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  const bool own = unsettled_ && unsettled_->thread == std::this_thread::get_id();
  TRIREME_CHECK(!own, fmt::format("the host was about to wait for MPI ({}) while {} of NCCL had "
                                  "not settled, which can deadlock",
                                  what, unsettled_->what));
}

}  // namespace trireme::nccl
