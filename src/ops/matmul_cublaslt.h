// cuBLASLt behind ops::matmul; only in a build with CUDA.
#pragma once

#include <string>
#include <vector>

#include <cublasLt.h>

#include "ops/matmul_engine.h"

namespace trireme::ops {

// The functions of cuBLASLt that are used; a test brings its own.
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
  decltype(&cublasLtMatmul) matmul;
};

// Those of the first of `names` (sonames or paths) that opens; CudaError where none does.
CublasLt load_cublaslt(const std::vector<std::string>& names);

// `workspace`: the most bytes that an algorithm may ask for. The device is the calling thread's.
std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const CublasLt& library, std::size_t workspace,
                                                   bool tf32);

}  // namespace trireme::ops
