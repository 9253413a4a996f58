// A cuBLASLt for tests without a GPU: it multiplies on the host exactly what it is told,
// column-major like the real one, so that a wrong layout, order or transposition gives wrong
// numbers. e4m3 it multiplies with block scales alone, by the rules and layouts of NVIDIA's cuBLAS
// documentation, section "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types". It
// returns CUBLAS_STATUS_INVALID_VALUE for an unknown descriptor, an attribute of the wrong size, or
// a pointer less aligned than promised.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/matmul_cublaslt.h"

namespace trireme::testing {

class FakeCublasLt {
 public:
  struct Operation {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    std::int32_t bias_type = -1;
    std::int32_t multiprocessors = 0;  // 0: all
    void* bias = nullptr;              // or a bias's gradient
    std::int64_t auxiliary_leading = 0;
    void* auxiliary = nullptr;
    // The kind of scales of a and b, and where they are.
    std::array<std::int32_t, 2> scale_modes = {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                                               CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F};
    std::array<const float*, 2> scales = {};
  };
  struct Layout {
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t leading = 0;
    bool operator==(const Layout&) const = default;
  };
  struct Preference {
    std::uint64_t workspace = 0;
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    std::array<std::uint32_t, 4> alignment = {256, 256, 256, 256};  // a, b, c, d
  };
  // A request for an algorithm.
  struct Query {
    Operation operation;
    std::array<Layout, 4> layouts;  // a, b, c, d
    Preference preference;
  };

  FakeCublasLt();  // only one may exist: its functions find it globally
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;

  ops::CublasLt table();

  // Makes the n-th call from now (1: the next) fail; 0: none. Calls that destroy something do not
  // count.
  void fail_call(std::size_t n) { fails_at_ = n == 0 ? 0 : calls_ + n; }
  std::size_t calls() const { return calls_; }
  std::size_t products() const { return products_; }
  std::size_t alive() const;  // handles and descriptors
  const std::vector<Query>& queries() const { return queries_; }

  std::size_t workspace = 0;  // bytes that each algorithm asks for
  bool has_algorithm = true;  // false: no algorithm fits
  // Algorithms that the heuristic knows, with ids from kFirstId on.
  int proposals = 1;
  static constexpr int kFirstId = 60;
  int last_algorithm = 0;  // the id of the last product's
  // Block scales: the GPU and the library have them, the GPU does not, the library knows none.
  enum class BlockScales { kHas, kNotOfGpu, kUnknown };
  BlockScales block_scales = BlockScales::kHas;
  // The heuristic's status for an epilogue with GELU.
  cublasStatus_t gelu_status = CUBLAS_STATUS_SUCCESS;
  // Queues work on a stream; empty: work is done at once.
  std::function<void(cudaStream_t, std::function<void()>)> enqueue;

 private:
  struct Functions;  // those in the table
  friend struct Functions;

  bool fails();

  std::size_t calls_ = 0, fails_at_ = 0, products_ = 0, handles_ = 0;
  std::map<const void*, Operation> operations_;
  std::map<const void*, Layout> layouts_;
  std::map<const void*, Preference> preferences_;
  std::vector<Query> queries_;
  std::vector<std::pair<cublasLtMatmulAlgo_t, Query>> checks_;
};

}  // namespace trireme::testing
