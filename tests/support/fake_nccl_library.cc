// Replaces nccl/nccl_library.cc in a program that makes its NCCL itself.
#include <cstdlib>

#include "trireme/base/error.h"

#include "support/fake_nccl.h"

namespace trireme::nccl {

std::shared_ptr<Library> load_library() {
  testing::FakeNccl* fake = testing::current_fake_nccl();
  setenv(kLaunchOrder, "1", /*overwrite=*/0);  // as the real one does
  if (fake == nullptr || !fake->found) throw NcclError("no NCCL is here");
  return {std::shared_ptr<Library>(), fake};
}

}  // namespace trireme::nccl
