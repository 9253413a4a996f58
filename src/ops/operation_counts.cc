#include "trireme/ops/operation_counts.h"

namespace trireme::ops {
namespace {

void add_to(OperationCount& sum, const OperationCount& more) {
  sum.calls += more.calls;
  sum.flops += more.flops;
  sum.bytes += more.bytes;
}

}  // namespace

void OperationCounts::add(std::string_view operation, const OperationCount& more) {
  auto found = counts_.find(operation);
  if (found == counts_.end()) found = counts_.try_emplace(std::string(operation)).first;
  add_to(found->second, more);
}

OperationCount OperationCounts::total() const {
  OperationCount sum;
  for (const auto& [name, count] : counts_) add_to(sum, count);
  return sum;
}

}  // namespace trireme::ops
