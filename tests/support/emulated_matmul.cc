#include "support/fake_cublaslt.h"
#include "support/ops_device.h"

namespace trireme::testing {

std::shared_ptr<ops::MatmulEngine> make_emulated_matmul() {
  static FakeCublasLt library;
  library.workspace = 4096;
  return ops::make_cublaslt_matmul(library.table(), std::size_t{1} << 20);
}

}  // namespace trireme::testing
