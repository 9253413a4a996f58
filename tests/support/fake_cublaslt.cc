#include "support/fake_cublaslt.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::testing {
namespace {

FakeCublasLt* current = nullptr;

// Where an attribute is stored, and its size.
struct Place {
  int attribute;
  void* to;
  std::size_t bytes;
};

cublasStatus_t store(std::initializer_list<Place> places, int attribute, const void* value,
                     std::size_t bytes) {
  for (const Place& place : places) {
    if (place.attribute != attribute) continue;
    if (place.bytes != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(place.to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

std::size_t size_of(int type) {
  return type == CUDA_R_32F ? 4 : 2;
}
bool aligned(const void* pointer, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

float read(const void* data, int type, std::uint64_t at, bool tf32) {
  if (type == CUDA_R_32F) {
    const float value = static_cast<const float*>(data)[at];
    return tf32 ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000u) : value;
  }
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const Half*>(data)[at]);
  return static_cast<float>(static_cast<const BFloat16*>(data)[at]);
}
void write(void* data, int type, std::uint64_t at, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = rounded;
  } else if (type == CUDA_R_16F) {
    static_cast<Half*>(data)[at] = Half(rounded);
  } else {
    static_cast<BFloat16*>(data)[at] = BFloat16(rounded);
  }
}

// GELU's tanh form and its derivative.
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

// The parts of an epilogue. cuBLASLt's epilogue values are sums of these.
constexpr std::uint32_t kBias = CUBLASLT_EPILOGUE_BIAS, kGelu = CUBLASLT_EPILOGUE_GELU;
constexpr std::uint32_t kGeluSlope = 64, kAuxiliary = 128, kBiasGradient = 16;
bool has(const FakeCublasLt::Operation& operation, std::uint32_t parts) {
  return (operation.epilogue & parts) != 0;
}

// One product, as requested.
struct Product {
  FakeCublasLt::Operation operation;
  FakeCublasLt::Layout layout_a, layout_b, layout_d;
  float alpha, beta;
  const void *a, *b;
  void* d;

  std::uint64_t terms() const {
    return operation.transpose_a == CUBLAS_OP_N ? layout_a.columns : layout_a.rows;
  }

  bool fits() const {
    const auto turned = [](const FakeCublasLt::Layout& layout, std::int32_t transposed) {
      return transposed == CUBLAS_OP_N ? std::pair(layout.rows, layout.columns)
                                       : std::pair(layout.columns, layout.rows);
    };
    const auto [m, k] = turned(layout_a, operation.transpose_a);
    const auto [k_too, n] = turned(layout_b, operation.transpose_b);
    const auto dense = [](const FakeCublasLt::Layout& layout) {
      return layout.leading >= static_cast<std::int64_t>(layout.rows);
    };
    return k == k_too && m == layout_d.rows && n == layout_d.columns &&
           layout_a.type == layout_b.type && dense(layout_a) && dense(layout_b) &&
           dense(layout_d) &&
           (!has(operation, kAuxiliary) ||
            (operation.auxiliary_leading % 8 == 0 &&
             operation.auxiliary_leading >= static_cast<std::int64_t>(layout_d.rows)));
  }

  // Applies the epilogue to one element (i, j) of d.
  double after(double value, std::uint64_t i, std::uint64_t j) const {
    const std::uint64_t at = i + j * static_cast<std::uint64_t>(operation.auxiliary_leading);
    if (has(operation, kBias)) value += double{read(operation.bias, operation.bias_type, i, false)};
    if (has(operation, kGelu)) {
      write(operation.auxiliary, layout_d.type, at, value);
      return gelu(value);
    }
    if (!has(operation, kGeluSlope)) return value;
    return value * gelu_slope(double{read(operation.auxiliary, layout_d.type, at, false)});
  }

  void run() const {
    const bool tf32 = operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto element = [&](const void* data, const FakeCublasLt::Layout& layout,
                             std::uint64_t row, std::uint64_t column) {
      return double{
          read(data, layout.type, row + column * static_cast<std::uint64_t>(layout.leading), tf32)};
    };
    std::vector<double> row_sums(layout_d.rows, 0.0);
    for (std::uint64_t j = 0; j < layout_d.columns; ++j) {
      for (std::uint64_t i = 0; i < layout_d.rows; ++i) {
        double sum = 0.0;
        for (std::uint64_t l = 0; l < terms(); ++l) {
          const bool ta = operation.transpose_a == CUBLAS_OP_T;
          const bool tb = operation.transpose_b == CUBLAS_OP_T;
          sum += element(a, layout_a, ta ? l : i, ta ? i : l) *
                 element(b, layout_b, tb ? j : l, tb ? l : j);
        }
        double value = double{alpha} * sum;
        const std::uint64_t at = i + j * static_cast<std::uint64_t>(layout_d.leading);
        if (beta != 0.0f) value += double{beta} * double{read(d, layout_d.type, at, false)};
        value = after(value, i, j);
        row_sums[i] += value;
        write(d, layout_d.type, at, value);
      }
    }
    for (std::uint64_t i = 0; i < layout_d.rows && has(operation, kBiasGradient); ++i) {
      write(operation.bias, operation.bias_type, i, row_sums[i]);
    }
  }
};

}  // namespace

struct FakeCublasLt::Functions {
  static constexpr cublasStatus_t kOk = CUBLAS_STATUS_SUCCESS;
  static constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;
  static constexpr cublasStatus_t kScripted = CUBLAS_STATUS_INTERNAL_ERROR;

  static std::size_t get_version() { return 130002; }
  static const char* status_name(cublasStatus_t status) {
    switch (status) {
      case kInvalid:
        return "CUBLAS_STATUS_INVALID_VALUE";
      case kScripted:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
      case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
      default:
        return "another status";
    }
  }

  static cublasStatus_t create(cublasLtHandle_t* handle) {
    if (current->fails()) return kScripted;
    ++current->handles_;
    *handle = reinterpret_cast<cublasLtHandle_t>(current);
    return kOk;
  }
  static cublasStatus_t destroy(cublasLtHandle_t) {
    --current->handles_;
    return kOk;
  }

  template <class Opaque, class State>
  static void add(std::map<const void*, State>& all, Opaque** made, const State& state) {
    *made = new Opaque{};
    all.emplace(*made, state);
  }
  template <class Opaque, class State>
  static cublasStatus_t remove(std::map<const void*, State>& all, Opaque* ended) {
    if (all.erase(ended) == 0) throw InternalError("a descriptor was ended twice");
    delete ended;
    return kOk;
  }

  static cublasStatus_t operation_create(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                         cudaDataType_t scale) {
    if (current->fails()) return kScripted;
    add(current->operations_, made, Operation{.compute = compute, .scale = scale});
    return kOk;
  }
  static cublasStatus_t operation_set(cublasLtMatmulDesc_t operation,
                                      cublasLtMatmulDescAttributes_t attribute, const void* value,
                                      std::size_t bytes) {
    if (current->fails()) return kScripted;
    Operation& to = current->operations_.at(operation);
    return store({{CUBLASLT_MATMUL_DESC_TRANSA, &to.transpose_a, 4},
                  {CUBLASLT_MATMUL_DESC_TRANSB, &to.transpose_b, 4},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE, &to.epilogue, 4},
                  {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &to.bias_type, 4},
                  {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &to.multiprocessors, 4},
                  {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &to.bias, 8},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &to.auxiliary_leading, 8},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &to.auxiliary, 8}},
                 attribute, value, bytes);
  }
  static cublasStatus_t operation_destroy(cublasLtMatmulDesc_t operation) {
    return remove(current->operations_, operation);
  }

  static cublasStatus_t layout_create(cublasLtMatrixLayout_t* made, cudaDataType type,
                                      std::uint64_t rows, std::uint64_t columns,
                                      std::int64_t leading) {
    if (current->fails()) return kScripted;
    add(current->layouts_, made, Layout{type, rows, columns, leading});
    return kOk;
  }
  static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) {
    return remove(current->layouts_, layout);
  }

  static cublasStatus_t preference_create(cublasLtMatmulPreference_t* made) {
    if (current->fails()) return kScripted;
    add(current->preferences_, made, Preference{});
    return kOk;
  }
  static cublasStatus_t preference_set(cublasLtMatmulPreference_t preference,
                                       cublasLtMatmulPreferenceAttributes_t attribute,
                                       const void* value, std::size_t bytes) {
    if (current->fails()) return kScripted;
    Preference& to = current->preferences_.at(preference);
    return store({{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &to.workspace, 8},
                  {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &to.reductions, 4},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &to.alignment[0], 4},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &to.alignment[1], 4},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &to.alignment[2], 4},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &to.alignment[3], 4}},
                 attribute, value, bytes);
  }
  static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) {
    return remove(current->preferences_, preference);
  }

  static cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                  cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                  cublasLtMatmulPreference_t preference, int wanted,
                                  cublasLtMatmulHeuristicResult_t results[], int* found) {
    if (current->fails()) return kScripted;
    const auto& layouts = current->layouts_;
    current->queries_.push_back({current->operations_.at(operation),
                                 {layouts.at(a), layouts.at(b), layouts.at(c), layouts.at(d)},
                                 current->preferences_.at(preference)});
    if (has(current->queries_.back().operation, kAuxiliary) && current->gelu_status != kOk) {
      return current->gelu_status;
    }
    *found = current->has_algorithm && wanted > 0 ? 1 : 0;
    results[0] = {};
    results[0].algo.data[0] = current->queries_.size();
    results[0].workspaceSize = current->workspace;
    results[0].state = kOk;
    return kOk;
  }

  static bool as_promised(const Query& query, const std::array<const void*, 4>& pointers,
                          const Operation& operation) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (!aligned(pointers[i], query.preference.alignment[i])) return false;
    }
    // Checks that a pointer is set exactly if the epilogue needs it, and that it is aligned like
    // the one that the heuristic saw.
    const auto fits = [](bool needed, const void* now, const void* then) {
      if (!needed || now == nullptr) return !needed && now == nullptr;
      const auto seen = reinterpret_cast<std::uintptr_t>(then);
      return aligned(now, seen % 16 == 0 ? 16 : static_cast<std::uint32_t>(seen & -seen));
    };
    const bool bias = has(operation, kBias | kBiasGradient);
    return fits(bias, operation.bias, query.operation.bias) &&
           (!bias || operation.bias_type == query.layouts[3].type) &&
           fits(has(operation, kAuxiliary), operation.auxiliary, query.operation.auxiliary);
  }

  static cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle,
                               const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                               const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                               const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                               cublasLtMatrixLayout_t d_layout,
                               const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                               std::size_t workspace_bytes, cudaStream_t stream) {
    if (current->fails()) return kScripted;
    const Query& query = current->queries_.at(algorithm->data[0] - 1);
    const Operation& operation = current->operations_.at(operation_handle);
    const auto& known = current->layouts_;
    const std::array<Layout, 4> layouts = {known.at(a_layout), known.at(b_layout),
                                           known.at(c_layout), known.at(d_layout)};
    const Product product = {operation,
                             layouts[0],
                             layouts[1],
                             layouts[3],
                             *static_cast<const float*>(alpha),
                             *static_cast<const float*>(beta),
                             a,
                             b,
                             d};
    const bool enough =
        workspace_bytes >= current->workspace && (current->workspace == 0 || workspace != nullptr);
    if (layouts != query.layouts || c != d || layouts[2] != layouts[3] || !enough ||
        !as_promised(query, {a, b, c, d}, operation) || !product.fits()) {
      return kInvalid;
    }
    ++current->products_;
    const std::size_t used = current->workspace;
    const auto work = [=] {
      if (used != 0) std::memset(workspace, 0xff, used);
      product.run();
    };
    if (current->enqueue) {
      current->enqueue(stream, work);
    } else {
      work();
    }
    return kOk;
  }
};

FakeCublasLt::FakeCublasLt() {
  TRIREME_CHECK(current == nullptr, "two fakes of cuBLASLt at a time");
  current = this;
}
FakeCublasLt::~FakeCublasLt() {
  current = nullptr;
}

bool FakeCublasLt::fails() {
  return ++calls_ == fails_at_;
}

std::size_t FakeCublasLt::alive() const {
  return handles_ + operations_.size() + layouts_.size() + preferences_.size();
}

ops::CublasLt FakeCublasLt::table() {
  using F = Functions;
  return {F::get_version,
          F::status_name,
          F::create,
          F::destroy,
          F::operation_create,
          F::operation_set,
          F::operation_destroy,
          F::layout_create,
          F::layout_destroy,
          F::preference_create,
          F::preference_set,
          F::preference_destroy,
          F::heuristic,
          F::matmul};
}

}  // namespace trireme::testing
