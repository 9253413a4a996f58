// Stands in for NCCL in a build without it.
#include "trireme/base/error.h"

#include "comm/nccl/nccl_library.h"

namespace trireme::nccl {

std::shared_ptr<Library> load_library() {
  throw NcclError("this program was built without NCCL: use --comm.backend mpi");
}

}  // namespace trireme::nccl
