// cuBLASLt behind ops::matmul. Only in builds with CUDA.
#pragma once

#include <string>
#include <vector>

#include <cublasLt.h>

#include "ops/matmul_engine.h"

namespace trireme::ops {

// The functions of cuBLASLt that we use. Tests pass their own.
struct CublasLt {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) operation_create;
  decltype(&cublasLtMatmulDescSetAttribute) operation_set;
  decltype(&cublasLtMatmulDescDestroy) operation_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoInit) algorithm_init;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algorithm_set;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&cublasLtMatmul) matmul;
};

// Loads the functions from the first of `names` (sonames or paths) that opens. Throws CudaError if
// none does.
CublasLt load_cublaslt(const std::vector<std::string>& names);

struct ProductSettings {
  bool tf32 = false;        // fp32 products round their operands to TF32
  int multiprocessors = 0;  // for which algorithms are chosen; 0: all that the GPU has
};
inline ProductSettings product_settings(const cuda::DeviceProperties& device,
                                        const GpuSettings& settings) {
  return {settings.tf32, settings.spared == 0 ? 0 : device.multiprocessors - settings.spared};
}

// `workspace`: the most bytes of workspace that an algorithm may use. The device is the calling
// thread's.
std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const CublasLt& library, std::size_t workspace,
                                                   const ProductSettings& settings = {});

}  // namespace trireme::ops
