#include "ops/matmul_cublaslt.h"

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "trireme/base/dynamic_library.h"

namespace trireme::ops {
namespace {

// No kernel needs more alignment: a vector load and a bulk copy take 16 bytes. So all blocks of an
// allocator count as equally aligned, and the algorithm, and with it the bits, do not depend on
// where a block is.
constexpr std::uintptr_t kMostAlignment = 16;

template <class Opaque>
using Owned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;
using Handle = Owned<std::remove_pointer_t<cublasLtHandle_t>>;
using Operation = Owned<cublasLtMatmulDescOpaque_t>;
using Layout = Owned<cublasLtMatrixLayoutOpaque_t>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t>;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      throw InternalError(fmt::format("cuBLASLt was asked for products of {}", name_of(dtype)));
  }
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t lowest = address & (~address + 1);
  return static_cast<std::uint32_t>(
      std::min(address == 0 ? kMostAlignment : lowest, kMostAlignment));
}

// The call for the user: "(3, 4)^T by (3, 5) in bf16 into fp32".
std::string text_of(const MatmulCall& call) {
  const auto operand = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? fmt::format("({}, {})^T", columns, rows)
                      : fmt::format("({}, {})", rows, columns);
  };
  const char* then = call.epilogue == Epilogue::kGelu           ? ", then GELU"
                     : call.epilogue == Epilogue::kGeluBackward ? ", then GELU's gradient"
                                                                : "";
  return fmt::format("{} by {} in {} into {}{}{}", operand(call.m, call.k, call.transpose_a),
                     operand(call.k, call.n, call.transpose_b), name_of(call.dtype),
                     name_of(call.c_dtype), call.bias == nullptr ? "" : " with a bias", then);
}

cublasLtEpilogue_t epilogue_of(const MatmulCall& call) {
  switch (call.epilogue) {
    case Epilogue::kGelu:
      return call.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluBackward:
      return call.bias_gradient == nullptr ? CUBLASLT_EPILOGUE_DGELU
                                           : CUBLASLT_EPILOGUE_DGELU_BGRAD;
    default:
      return call.bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
  }
}

// cuBLASLt has one pointer for a bias that it reads and for the gradient of a bias that it writes.
const void* bias_of(const MatmulCall& call) {
  return call.bias_gradient == nullptr ? call.bias : call.bias_gradient;
}

// cuBLASLt's matrices are column-major: a row-major x is x^T to it. So we call c = op(a) op(b) as
// c^T = op(b)^T op(a)^T: its A is our b, its B is our a, and the transpose flags stay as they are.
// In cuBLASLt a bias has an element for each row (our column), and the gradient of a bias is a sum
// over columns (our rows). Its GELU is the tanh form, like ours.
class CublasLtMatmul : public MatmulEngine {
 public:
  CublasLtMatmul(const CublasLt& library, std::size_t workspace, const ProductSettings& settings)
      : library_(library),
        workspace_(workspace),
        settings_(settings),
        handle_(nullptr, library.destroy) {
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = library_.create(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw CudaError(fmt::format("cublasLtCreate: {}", library_.status_name(status)));
    }
    handle_.reset(handle);
    const std::size_t version = library_.get_version();  // 130100 is 13.1.0
    description_ =
        fmt::format("cuBLASLt {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
    fp32_description_ = description_ + (settings.tf32 ? " (TF32)" : "");
  }

  void run(Context& ctx, const MatmulCall& call) override {
    const std::lock_guard lock(mutex_);
    const std::optional<Plan>& found = plan_for(call);
    if (!found) check("cublasLtMatmulAlgoGetHeuristic", call, CUBLAS_STATUS_NOT_SUPPORTED);
    const Plan& plan = *found;
    set_pointers(plan.operation, call);
    Buffer workspace;
    if (plan.workspace != 0) {
      workspace = ctx.allocator->allocate(plan.workspace, MemoryUse::kWorkspace, ctx.stream);
    }
    const float alpha = 1.0f;
    const float beta = call.accumulate ? 1.0f : 0.0f;
    check("cublasLtMatmul", call,
          library_.matmul(handle_.get(), plan.operation.get(), &alpha, call.b, plan.b.get(), call.a,
                          plan.a.get(), &beta, call.c, plan.c.get(), call.c, plan.c.get(),
                          &plan.algorithm, workspace.get(), plan.workspace,
                          static_cast<cudaStream_t>(ctx.stream.native())));
  }

  // The library itself decides the rest.
  bool fuses(const MatmulCall& call) override {
    if (!cublaslt_may_fuse(call)) return false;
    const std::lock_guard lock(mutex_);
    return plan_for(call).has_value();
  }

  std::string_view description(DType dtype) const override {
    return dtype == DType::kF32 ? fp32_description_ : description_;
  }

 private:
  // Everything that determines the choice of an algorithm.
  struct Key {
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
    DType dtype, c_dtype;
    cublasLtEpilogue_t epilogue;
    std::array<std::uint32_t, 5> alignment;  // a, b, c, bias, auxiliary
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    Operation operation;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace;  // bytes
  };

  // Returns nothing if the library has no algorithm; it is asked only once in that case, too.
  const std::optional<Plan>& plan_for(const MatmulCall& call) {
    const Key key = {call.m,
                     call.n,
                     call.k,
                     call.transpose_a,
                     call.transpose_b,
                     call.accumulate,
                     call.dtype,
                     call.c_dtype,
                     epilogue_of(call),
                     {alignment_of(call.a), alignment_of(call.b), alignment_of(call.c),
                      alignment_of(bias_of(call)), alignment_of(call.auxiliary)}};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, make_plan(call)).first->second;
  }

  std::optional<Plan> make_plan(const MatmulCall& call) const {
    Plan plan = {make_operation(call),
                 make_layout(call, call.m, call.k, call.transpose_a, call.dtype),
                 make_layout(call, call.k, call.n, call.transpose_b, call.dtype),
                 make_layout(call, call.m, call.n, false, call.c_dtype),
                 {},
                 0};
    const Preference preference = make_preference(call);
    cublasLtMatmulHeuristicResult_t best = {};
    int count = 0;
    cublasStatus_t status =
        library_.heuristic(handle_.get(), plan.operation.get(), plan.b.get(), plan.a.get(),
                           plan.c.get(), plan.c.get(), preference.get(), 1, &best, &count);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : best.state;
    }
    // An epilogue that a type does not have may also be reported as an impossible configuration.
    const bool impossible =
        status == CUBLAS_STATUS_INVALID_VALUE && call.epilogue != Epilogue::kNone;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || impossible) return std::nullopt;
    check("cublasLtMatmulAlgoGetHeuristic", call, status);
    plan.algorithm = best.algo;
    plan.workspace = best.workspaceSize;
    return plan;
  }

  Operation make_operation(const MatmulCall& call) const {
    const bool fast = settings_.tf32 && call.dtype == DType::kF32;
    cublasLtMatmulDesc_t made = nullptr;
    check("cublasLtMatmulDescCreate", call,
          library_.operation_create(&made, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                    CUDA_R_32F));
    Operation operation(made, library_.operation_destroy);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      check("cublasLtMatmulDescSetAttribute", call,
            library_.operation_set(made, attribute, &value, sizeof(value)));
    };
    const auto transposed = [](bool yes) {
      return static_cast<std::int32_t>(yes ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(call.transpose_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(call.transpose_a));
    if (settings_.multiprocessors > 0) {
      set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{settings_.multiprocessors});
    }
    if (epilogue_of(call) != CUBLASLT_EPILOGUE_DEFAULT) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue_of(call)));
    }
    if (bias_of(call) != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(call.c_dtype)));
    }
    if (call.auxiliary != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.n);
    set_pointers(operation, call);  // the heuristic takes their alignment into account
    return operation;
  }

  void set_pointers(const Operation& operation, const MatmulCall& call) const {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
      if (pointer == nullptr) return;
      check("cublasLtMatmulDescSetAttribute", call,
            library_.operation_set(operation.get(), attribute, &pointer, sizeof(pointer)));
    };
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_of(call));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.auxiliary);
  }

  // The layout of a matrix that is (rows, columns) after the transposition, if `transposed`.
  Layout make_layout(const MatmulCall& call, std::int64_t rows, std::int64_t columns,
                     bool transposed, DType dtype) const {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    check("cublasLtMatrixLayoutCreate", call,
          library_.layout_create(&made, type_of(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns));
    return {made, library_.layout_destroy};
  }

  // Parts of a sum may be kept only in fp32 in the workspace, where a second kernel adds them in
  // order. Parts in the result itself are added in any order, and parts of the result's type are
  // rounded twice.
  Preference make_preference(const MatmulCall& call) const {
    cublasLtMatmulPreference_t made = nullptr;
    check("cublasLtMatmulPreferenceCreate", call, library_.preference_create(&made));
    Preference preference(made, library_.preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check("cublasLtMatmulPreferenceSetAttribute", call,
            library_.preference_set(made, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(call.c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c));
    return preference;
  }

  void check(const char* function, const MatmulCall& call, cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw CudaError(fmt::format("{}: {}, multiplying {}", function, library_.status_name(status),
                                text_of(call)));
  }

  const CublasLt library_;
  const std::size_t workspace_;
  const ProductSettings settings_;
  std::string description_, fp32_description_;
  std::mutex mutex_;
  Handle handle_;
  std::map<Key, std::optional<Plan>> plans_;
};

}  // namespace

CublasLt load_cublaslt(const std::vector<std::string>& names) {
  const DynamicLibrary library(names);
  if (!library.found()) {
    throw CudaError(
        fmt::format("cuBLASLt, which multiplies matrices on a GPU, is not here: {} "
                    "(tried {})",
                    library.why_not(), fmt::join(names, ", ")));
  }
  CublasLt found = {};
  const auto load = [&](auto& function, const char* symbol) {
    using Pointer = std::remove_reference_t<decltype(function)>;
    function = library.required<std::remove_pointer_t<Pointer>>(symbol);
  };
  load(found.get_version, "cublasLtGetVersion");
  load(found.status_name, "cublasLtGetStatusName");
  load(found.create, "cublasLtCreate");
  load(found.destroy, "cublasLtDestroy");
  load(found.operation_create, "cublasLtMatmulDescCreate");
  load(found.operation_set, "cublasLtMatmulDescSetAttribute");
  load(found.operation_destroy, "cublasLtMatmulDescDestroy");
  load(found.layout_create, "cublasLtMatrixLayoutCreate");
  load(found.layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(found.preference_create, "cublasLtMatmulPreferenceCreate");
  load(found.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(found.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(found.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(found.matmul, "cublasLtMatmul");
  return found;
}

std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const CublasLt& library, std::size_t workspace,
                                                   const ProductSettings& settings) {
  return std::make_unique<CublasLtMatmul>(library, workspace, settings);
}

}  // namespace trireme::ops
