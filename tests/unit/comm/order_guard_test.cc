// The order in which a host may enter NCCL and wait for MPI.
#include "comm/nccl/order_guard.h"

#include <thread>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using nccl::OrderGuard;

TEST(OrderGuard, LetsPassWhatIsInOrder) {
  OrderGuard guard;
  guard.before_waiting("barrier of world");
  { const OrderGuard::Entry entry(guard, "all_reduce of tensor"); }
  guard.before_waiting("barrier of world");
  const OrderGuard::Entry entry(guard, "exchange of pipeline");
}

TEST(OrderGuard, CatchesAWaitForMpiBeforeNcclHasSettled) {
  OrderGuard guard;
  const OrderGuard::Entry entry(guard, "all_reduce of tensor");
  const std::string message =
      testing::message_of<InternalError>([&] { guard.before_waiting("barrier of world"); });
  EXPECT_NE(message.find("all_reduce of tensor"), std::string::npos) << message;
  EXPECT_NE(message.find("barrier of world"), std::string::npos) << message;
}

TEST(OrderGuard, CatchesTwoOperationsAtOnce) {
  OrderGuard guard;
  const OrderGuard::Entry entry(guard, "all_reduce of tensor");
  EXPECT_THROW(OrderGuard::Entry(guard, "all_reduce of data"), InternalError);
  std::thread([&] { EXPECT_THROW(OrderGuard::Entry(guard, "broadcast"), InternalError); }).join();
}

TEST(OrderGuard, IsForTheThreadThatEntered) {
  OrderGuard guard;
  const OrderGuard::Entry entry(guard, "all_reduce of tensor");
  std::thread([&] { EXPECT_NO_THROW(guard.before_waiting("a thread of its own")); }).join();
}

}  // namespace
}  // namespace trireme
