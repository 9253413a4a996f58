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

// CUBLASLT_MATMUL_DESC_A_SCALE_MODE and _B_SCALE_MODE, and CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
// and _BLK128x128_32F, which headers before CUDA 12.9 lack.
constexpr auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeOfB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr std::int32_t kScaledRows = 4, kScaledTiles = 5;

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
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
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

cublasLtEpilogue_t epilogue_of(const Product& product) {
  switch (product.epilogue) {
    case Epilogue::kGelu:
      return product.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluBackward:
      return product.sums_bias ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
    default:
      return product.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// cuBLASLt has one pointer for a bias that it reads and for the gradient of a bias that it writes.
const void* bias_of(const MatmulCall& call) {
  return call.bias_gradient == nullptr ? call.bias : call.bias_gradient;
}

// What is added to the product; c is given even where nothing is.
const void* addend_of(const MatmulCall& call) {
  return call.addend == nullptr ? call.c : call.addend;
}

Product product_of(const MatmulCall& call) {
  return {.m = call.m,
          .n = call.n,
          .k = call.k,
          .transpose_a = call.transpose_a,
          .transpose_b = call.transpose_b,
          .dtype = call.dtype,
          .result = call.c_dtype,
          .accumulates = call.accumulate,
          .adds = call.addend != nullptr,
          .has_bias = call.bias != nullptr,
          .sums_bias = call.bias_gradient != nullptr,
          .epilogue = call.epilogue,
          .a_blocks = call.a_scales.blocks,
          .b_blocks = call.b_scales.blocks,
          .alignment = {alignment_of(call.a), alignment_of(call.b), alignment_of(addend_of(call)),
                        alignment_of(call.c), alignment_of(bias_of(call)),
                        alignment_of(call.auxiliary)}};
}

// Parts of a sum may be kept only in fp32 in the workspace, where a second kernel adds them in
// order. Parts in the result itself are added in any order, and parts of the result's type are
// rounded twice.
constexpr std::uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// The bytes of an attribute, by its place in kAlgorithmAttributes.
constexpr std::size_t bytes_of_attribute(std::size_t place) {
  return place >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
}
static_assert(CUBLASLT_ALGO_CONFIG_ID == 0 && CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME == 3 &&
              CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID == 7 &&
              CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID + 1 == kAlgorithmAttributes.size());

// cuBLASLt's matrices are column-major: a row-major x is x^T to it. So we call c = op(a) op(b) as
// c^T = op(b)^T op(a)^T: its A is our b, its B is our a, and the transpose flags stay as they are.
// In cuBLASLt a bias has an element for each row (our column), and the gradient of a bias is a sum
// over columns (our rows). Its GELU is the tanh form, like ours.
class CublasLtMatmul : public MatmulEngine, public ProductAlgorithms {
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
    std::optional<Plan>& found = plan_for(call);
    if (!found) check("cublasLtMatmulAlgoGetHeuristic", call, CUBLAS_STATUS_NOT_SUPPORTED);
    Plan& plan = *found;
    set_pointers(plan.operation, call);
    Buffer workspace;
    if (plan.workspace != 0) {
      workspace = ctx.allocator->allocate(plan.workspace, MemoryUse::kWorkspace, ctx.stream);
    }
    const float alpha = 1.0f;
    const float beta = call.accumulate || call.addend != nullptr ? 1.0f : 0.0f;
    check("cublasLtMatmul", call,
          library_.matmul(handle_.get(), plan.operation.get(), &alpha, call.b, plan.b.get(), call.a,
                          plan.a.get(), &beta, addend_of(call), plan.c.get(), call.c, plan.c.get(),
                          &plan.algorithm, workspace.get(), plan.workspace,
                          static_cast<cudaStream_t>(ctx.stream.native())));
    ++plan.runs;
  }

  // The library itself decides the rest.
  bool fuses(const MatmulCall& call) override {
    if (!cublaslt_may_fuse(call)) return false;
    const std::lock_guard lock(mutex_);
    return plan_for(call).has_value();
  }

  ProductAlgorithms* algorithms() override { return this; }

  std::string_view description(DType dtype) const override {
    return dtype == DType::kF32 ? fp32_description_ : description_;
  }

  ProductMachine machine() const override {
    return {.gpu = "",
            .library = fp32_description_,  // with what else decides about fp32
            .workspace = workspace_,
            .multiprocessors = settings_.multiprocessors};
  }

  std::map<Product, std::int64_t> made() const override {
    const std::lock_guard lock(mutex_);
    std::map<Product, std::int64_t> all;
    for (const auto& [product, plan] : plans_) {
      if (plan && plan->runs > 0 && product.dtype != DType::kE4M3) all.emplace(product, plan->runs);
    }
    return all;
  }

  std::vector<ProductAlgorithm> proposed(const Product& product, int most) override {
    const std::lock_guard lock(mutex_);
    const MatmulCall call = made_up_call(product);
    const Plan plan = plan_without_algorithm(call);
    std::vector<ProductAlgorithm> all;
    for (const cublasLtMatmulHeuristicResult_t& one : proposals(call, plan, most)) {
      all.push_back(attributes_of(call, one.algo));
    }
    return all;
  }

  bool fits(const Product& product, const ProductAlgorithm& algorithm) override {
    const std::lock_guard lock(mutex_);
    Plan plan = plan_without_algorithm(made_up_call(product));
    return take(product, algorithm, plan);
  }

  void use(std::span<const ProductChoice> choices) override {
    const std::lock_guard lock(mutex_);
    plans_.clear();
    chosen_.clear();
    for (const ProductChoice& choice : choices) {
      chosen_.emplace(choice.product, choice.algorithm);
    }
  }

 private:
  struct Plan {
    Operation operation;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algorithm = {};
    std::size_t workspace = 0;  // bytes
    std::int64_t runs = 0;
  };

  // A call whose addresses are aligned as the product's, and which is never made.
  static MatmulCall made_up_call(const Product& product) {
    std::array<void*, 6> operands{};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      constexpr std::uintptr_t kBegin = 4096;
      operands[i] = reinterpret_cast<void*>(kBegin + product.alignment[i]);
    }
    return call_of(product, operands);
  }

  // Returns nothing if the library has no algorithm; it is asked only once in that case, too.
  std::optional<Plan>& plan_for(const MatmulCall& call) {
    const Product product = product_of(call);
    const auto found = plans_.find(product);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(product, make_plan(call, product)).first->second;
  }

  std::optional<Plan> make_plan(const MatmulCall& call, const Product& product) const {
    Plan plan = plan_without_algorithm(call);
    if (call.dtype == DType::kE4M3 && !set_scale_modes(plan.operation, call)) return std::nullopt;
    const auto chosen = chosen_.find(product);
    if (chosen != chosen_.end() && take(product, chosen->second, plan)) return plan;
    const std::vector<cublasLtMatmulHeuristicResult_t> best = proposals(call, plan, 1);
    if (best.empty()) return std::nullopt;
    plan.algorithm = best.front().algo;
    plan.workspace = best.front().workspaceSize;
    return plan;
  }

  Plan plan_without_algorithm(const MatmulCall& call) const {
    return {make_operation(call), make_layout(call, call.m, call.k, call.transpose_a, call.dtype),
            make_layout(call, call.k, call.n, call.transpose_b, call.dtype),
            make_layout(call, call.m, call.n, false, call.c_dtype)};
  }

  // Empty if the library has no algorithm.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(const MatmulCall& call, const Plan& plan,
                                                         int most) const {
    const Preference preference = make_preference(call);
    std::vector<cublasLtMatmulHeuristicResult_t> all(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        library_.heuristic(handle_.get(), plan.operation.get(), plan.b.get(), plan.a.get(),
                           plan.c.get(), plan.c.get(), preference.get(), most, all.data(), &count);
    // An epilogue that a type does not have may also be reported as an impossible configuration,
    // and so may block scales that a GPU does not have.
    const bool impossible = status == CUBLAS_STATUS_INVALID_VALUE &&
                            (call.epilogue != Epilogue::kNone || call.dtype == DType::kE4M3);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || impossible) return {};
    check("cublasLtMatmulAlgoGetHeuristic", call, status);
    all.resize(static_cast<std::size_t>(count));
    std::erase_if(all, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
    return all;
  }

  ProductAlgorithm attributes_of(const MatmulCall& call,
                                 const cublasLtMatmulAlgo_t& algorithm) const {
    ProductAlgorithm made;
    for (std::size_t i = 0; i < made.attributes.size(); ++i) {
      std::uint32_t wide = 0;
      std::uint16_t narrow = 0;
      const std::size_t bytes = bytes_of_attribute(i);
      void* const to = bytes == sizeof(narrow) ? static_cast<void*>(&narrow) : &wide;
      std::size_t written = 0;
      check("cublasLtMatmulAlgoConfigGetAttribute", call,
            library_.algorithm_get(&algorithm, static_cast<cublasLtMatmulAlgoConfigAttributes_t>(i),
                                   to, bytes, &written));
      made.attributes[i] = bytes == sizeof(narrow) ? narrow : wide;
    }
    return made;
  }

  // Gives the plan that algorithm. Returns false where it does not fit.
  bool take(const Product& product, const ProductAlgorithm& algorithm, Plan& plan) const {
    const std::uint32_t reduction = algorithm.attributes[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME];
    if ((reduction & ~kReductions) != 0) return false;
    const cudaDataType_t type = type_of(product.dtype), result = type_of(product.result);
    cublasLtMatmulAlgo_t made = {};
    const auto id = static_cast<int>(algorithm.attributes[CUBLASLT_ALGO_CONFIG_ID]);
    bool done =
        library_.algorithm_init(handle_.get(), compute_type(product.dtype), CUDA_R_32F, type, type,
                                result, result, id, &made) == CUBLAS_STATUS_SUCCESS;
    for (std::size_t i = CUBLASLT_ALGO_CONFIG_ID + 1; i < algorithm.attributes.size(); ++i) {
      const std::uint32_t wide = algorithm.attributes[i];
      const auto narrow = static_cast<std::uint16_t>(wide);
      const std::size_t bytes = bytes_of_attribute(i);
      const void* const from = bytes == sizeof(narrow) ? static_cast<const void*>(&narrow) : &wide;
      done = done && (bytes == sizeof(wide) || narrow == wide) &&
             library_.algorithm_set(&made, static_cast<cublasLtMatmulAlgoConfigAttributes_t>(i),
                                    from, bytes) == CUBLAS_STATUS_SUCCESS;
    }
    cublasLtMatmulHeuristicResult_t checked = {};
    done = done && library_.algorithm_check(handle_.get(), plan.operation.get(), plan.b.get(),
                                            plan.a.get(), plan.c.get(), plan.c.get(), &made,
                                            &checked) == CUBLAS_STATUS_SUCCESS;
    if (!done || checked.workspaceSize > workspace_) return false;
    plan.algorithm = made;
    plan.workspace = checked.workspaceSize;
    return true;
  }

  cublasComputeType_t compute_type(DType dtype) const {
    const bool fast = settings_.tf32 && dtype == DType::kF32;
    return fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }

  Operation make_operation(const MatmulCall& call) const {
    cublasLtMatmulDesc_t made = nullptr;
    check("cublasLtMatmulDescCreate", call,
          library_.operation_create(&made, compute_type(call.dtype), CUDA_R_32F));
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
    const cublasLtEpilogue_t epilogue = epilogue_of(product_of(call));
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue));
    }
    if (bias_of(call) != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(call.c_dtype)));
    }
    if (call.auxiliary != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.n);
    set_pointers(operation, call);  // the heuristic takes their alignment into account
    return operation;
  }

  // Returns whether the library knows block scales: those before 12.9 do not.
  bool set_scale_modes(const Operation& operation, const MatmulCall& call) const {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, ScaledBlocks blocks) {
      const std::int32_t mode = blocks == ScaledBlocks::kTiles ? kScaledTiles : kScaledRows;
      const cublasStatus_t status =
          library_.operation_set(operation.get(), attribute, &mode, sizeof(mode));
      if (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED) {
        return false;
      }
      check("cublasLtMatmulDescSetAttribute", call, status);
      return true;
    };
    return set(kScaleModeOfA, call.b_scales.blocks) && set(kScaleModeOfB, call.a_scales.blocks);
  }

  void set_pointers(const Operation& operation, const MatmulCall& call) const {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
      if (pointer == nullptr) return;
      check("cublasLtMatmulDescSetAttribute", call,
            library_.operation_set(operation.get(), attribute, &pointer, sizeof(pointer)));
    };
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_of(call));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.auxiliary);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.b_scales.scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.a_scales.scales);
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

  Preference make_preference(const MatmulCall& call) const {
    cublasLtMatmulPreference_t made = nullptr;
    check("cublasLtMatmulPreferenceCreate", call, library_.preference_create(&made));
    Preference preference(made, library_.preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check("cublasLtMatmulPreferenceSetAttribute", call,
            library_.preference_set(made, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(addend_of(call)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c));
    return preference;
  }

  void check(const char* function, const MatmulCall& call, cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw CudaError(fmt::format("{}: {}, multiplying {}", function, library_.status_name(status),
                                text_of(product_of(call))));
  }

  const CublasLt library_;
  const std::size_t workspace_;
  const ProductSettings settings_;
  std::string description_, fp32_description_;
  mutable std::mutex mutex_;
  Handle handle_;
  std::map<Product, std::optional<Plan>> plans_;
  std::map<Product, ProductAlgorithm> chosen_;
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
  load(found.algorithm_init, "cublasLtMatmulAlgoInit");
  load(found.algorithm_set, "cublasLtMatmulAlgoConfigSetAttribute");
  load(found.algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute");
  load(found.algorithm_check, "cublasLtMatmulAlgoCheck");
  load(found.matmul, "cublasLtMatmul");
  return found;
}

std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const CublasLt& library, std::size_t workspace,
                                                   const ProductSettings& settings) {
  return std::make_unique<CublasLtMatmul>(library, workspace, settings);
}

}  // namespace trireme::ops
