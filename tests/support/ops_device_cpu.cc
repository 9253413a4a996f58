#include <cstring>

#include "support/ops_device.h"

namespace trireme::testing {

ops::Context make_test_context() {
  return ops::make_cpu_context(2);
}

void draw_order(std::uint64_t) {}

void upload(ops::Context&, const void* from, const Tensor& to) {
  if (to.bytes() != 0) std::memcpy(to.raw(), from, to.bytes());
}
void download(const Tensor& from, void* to) {
  if (from.bytes() != 0) std::memcpy(to, from.raw(), from.bytes());
}

}  // namespace trireme::testing
