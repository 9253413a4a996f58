#include "support/fake_cublaslt.h"

#include <algorithm>
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

bool aligned(const void* pointer, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

float read(const void* data, int type, std::uint64_t at, bool tf32) {
  if (type == CUDA_R_32F) {
    const float value = static_cast<const float*>(data)[at];
    return tf32 ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000u) : value;
  }
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const Half*>(data)[at]);
  if (type == CUDA_R_8F_E4M3) return static_cast<float>(static_cast<const E4M3*>(data)[at]);
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

// Scales of e4m3: of 128 elements along k, or of 128 x 128.
constexpr std::int32_t kOfRows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr std::int32_t kOfTiles = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
bool has_known_scales(const FakeCublasLt::Operation& operation) {
  const auto [a, b] = operation.scale_modes;
  return (a == kOfRows && (b == kOfRows || b == kOfTiles)) || (a == kOfTiles && b == kOfRows);
}

// One product, as requested.
struct Product {
  FakeCublasLt::Operation operation;
  FakeCublasLt::Layout layout_a, layout_b, layout_d;
  float alpha, beta;
  const void *a, *b, *c;
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
           dense(layout_d) && scales_fit(m, n, k) &&
           (!has(operation, kAuxiliary) ||
            (operation.auxiliary_leading % 8 == 0 &&
             operation.auxiliary_leading >= static_cast<std::int64_t>(layout_d.rows)));
  }

  // Block scales want A transposed and B not.
  bool scales_fit(std::uint64_t m, std::uint64_t n, std::uint64_t k) const {
    const auto [scales_a, scales_b] = operation.scales;
    if (layout_a.type != CUDA_R_8F_E4M3) return scales_a == nullptr && scales_b == nullptr;
    return has_known_scales(operation) && operation.transpose_a == CUBLAS_OP_T &&
           operation.transpose_b == CUBLAS_OP_N && m % 4 == 0 && n % 4 == 0 && k % 16 == 0 &&
           scales_a != nullptr && scales_b != nullptr && aligned(scales_a, 16) &&
           aligned(scales_b, 16);
  }

  // The scale of an element of A (operand 0) or B (1): of row i of A, or column i of B, at place l
  // along k. `extent` is the number of those rows or columns.
  double scale(std::size_t operand, std::uint64_t i, std::uint64_t l, std::uint64_t extent) const {
    const float* scales = operation.scales[operand];
    if (operation.scale_modes[operand] == kOfRows) return double{scales[i + l / 128 * extent]};
    const std::uint64_t blocks = (terms() + 127) / 128;
    return double{scales[l / 128 + i / 128 * ((blocks + 3) / 4 * 4)]};
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
    const bool scaled = layout_a.type == CUDA_R_8F_E4M3;
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
          double term = element(a, layout_a, ta ? l : i, ta ? i : l) *
                        element(b, layout_b, tb ? j : l, tb ? l : j);
          if (scaled) term *= scale(0, i, l, layout_d.rows) * scale(1, j, l, layout_d.columns);
          sum += term;
        }
        double value = double{alpha} * sum;
        const std::uint64_t at = i + j * static_cast<std::uint64_t>(layout_d.leading);
        if (beta != 0.0f) value += double{beta} * double{read(c, layout_d.type, at, false)};
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
    if ((attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE ||
         attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) &&
        current->block_scales == BlockScales::kUnknown) {
      return kInvalid;
    }
    return store({{CUBLASLT_MATMUL_DESC_TRANSA, &to.transpose_a, 4},
                  {CUBLASLT_MATMUL_DESC_TRANSB, &to.transpose_b, 4},
                  {CUBLASLT_MATMUL_DESC_EPILOGUE, &to.epilogue, 4},
                  {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &to.bias_type, 4},
                  {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &to.multiprocessors, 4},
                  {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &to.scale_modes[0], 4},
                  {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &to.scale_modes[1], 4},
                  {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &to.scales[0], 8},
                  {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &to.scales[1], 8},
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
    const Query& query = current->queries_.back();
    if (query.layouts[0].type == CUDA_R_8F_E4M3 &&
        (current->block_scales != BlockScales::kHas || !has_known_scales(query.operation) ||
         has(query.operation, kGelu | kGeluSlope | kBiasGradient))) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *found = current->has_algorithm ? std::min(wanted, current->proposals) : 0;
    for (int i = 0; i < *found; ++i) {
      results[i] = {};
      begin_algorithm(results[i].algo, current->queries_.size(), kFirstId + i);
      attribute(results[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID) = tile_of(kFirstId + i);
      results[i].workspaceSize = current->workspace;
      results[i].state = kOk;
    }
    return kOk;
  }

  // An algorithm: the number of its query, or 0 where it was made by its attributes; then these.
  static constexpr int kAttributes = CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID + 1;
  static std::uint32_t& attribute(cublasLtMatmulAlgo_t& algorithm, int which) {
    static_assert(sizeof(algorithm) >= 8 + 4 * kAttributes);
    return reinterpret_cast<std::uint32_t*>(algorithm.data + 1)[which];
  }
  static std::uint32_t attribute(const cublasLtMatmulAlgo_t& algorithm, int which) {
    return attribute(const_cast<cublasLtMatmulAlgo_t&>(algorithm), which);
  }
  static std::uint32_t tile_of(int id) { return static_cast<std::uint32_t>(id - 40); }
  static void begin_algorithm(cublasLtMatmulAlgo_t& algorithm, std::size_t query, int id) {
    algorithm = {};
    algorithm.data[0] = query;
    attribute(algorithm, CUBLASLT_ALGO_CONFIG_ID) = static_cast<std::uint32_t>(id);
    attribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) = 1;
  }
  static std::size_t bytes_of(int which) {
    return which >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
  }

  static cublasStatus_t algorithm_init(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t,
                                       cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
                                       cudaDataType_t d, int id, cublasLtMatmulAlgo_t* made) {
    if (current->fails()) return kScripted;
    if (id < kFirstId || id >= kFirstId + current->proposals) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a != b || c != d) return kInvalid;
    begin_algorithm(*made, 0, id);
    return kOk;
  }
  static cublasStatus_t algorithm_set(cublasLtMatmulAlgo_t* algorithm,
                                      cublasLtMatmulAlgoConfigAttributes_t which, const void* value,
                                      std::size_t bytes) {
    if (current->fails()) return kScripted;
    if (which == CUBLASLT_ALGO_CONFIG_ID || bytes != bytes_of(which)) return kInvalid;
    std::uint32_t& to = attribute(*algorithm, which);
    to = 0;
    std::memcpy(&to, value, bytes);
    return kOk;
  }
  static cublasStatus_t algorithm_get(const cublasLtMatmulAlgo_t* algorithm,
                                      cublasLtMatmulAlgoConfigAttributes_t which, void* value,
                                      std::size_t bytes, std::size_t* written) {
    if (current->fails()) return kScripted;
    if (bytes != bytes_of(which)) return kInvalid;
    const std::uint32_t from = attribute(*algorithm, which);
    std::memcpy(value, &from, bytes);
    *written = bytes;
    return kOk;
  }
  static cublasStatus_t algorithm_check(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                        const cublasLtMatmulAlgo_t* algorithm,
                                        cublasLtMatmulHeuristicResult_t* result) {
    if (current->fails()) return kScripted;
    const auto id = static_cast<int>(attribute(*algorithm, CUBLASLT_ALGO_CONFIG_ID));
    if (attribute(*algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID) != tile_of(id)) return kInvalid;
    const auto& layouts = current->layouts_;
    Preference nothing_promised;
    nothing_promised.alignment = {1, 1, 1, 1};
    current->checks_.push_back({*algorithm,
                                {current->operations_.at(operation),
                                 {layouts.at(a), layouts.at(b), layouts.at(c), layouts.at(d)},
                                 nothing_promised}});
    result->workspaceSize = current->workspace;
    result->state = kOk;
    return kOk;
  }

  // What the algorithm was proposed or checked for; null: nothing of these layouts.
  static const Query* query_of(const cublasLtMatmulAlgo_t& algorithm,
                               const std::array<Layout, 4>& layouts) {
    if (algorithm.data[0] != 0) {
      const Query& query = current->queries_.at(algorithm.data[0] - 1);
      return query.layouts == layouts ? &query : nullptr;
    }
    for (const auto& [checked, query] : current->checks_) {
      const bool same = std::memcmp(&checked, &algorithm, sizeof(algorithm)) == 0;
      if (same && query.layouts == layouts) return &query;
    }
    return nullptr;
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
    const Operation& operation = current->operations_.at(operation_handle);
    const auto& known = current->layouts_;
    const std::array<Layout, 4> layouts = {known.at(a_layout), known.at(b_layout),
                                           known.at(c_layout), known.at(d_layout)};
    const Query* const query = query_of(*algorithm, layouts);
    const Product product = {operation,
                             layouts[0],
                             layouts[1],
                             layouts[3],
                             *static_cast<const float*>(alpha),
                             *static_cast<const float*>(beta),
                             a,
                             b,
                             c,
                             d};
    const bool enough =
        workspace_bytes >= current->workspace && (current->workspace == 0 || workspace != nullptr);
    if (query == nullptr || layouts[2] != layouts[3] || !enough ||
        !as_promised(*query, {a, b, c, d}, operation) || !product.fits()) {
      return kInvalid;
    }
    ++current->products_;
    current->last_algorithm = static_cast<int>(attribute(*algorithm, CUBLASLT_ALGO_CONFIG_ID));
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
  return {F::get_version,       F::status_name,      F::create,
          F::destroy,           F::operation_create, F::operation_set,
          F::operation_destroy, F::layout_create,    F::layout_destroy,
          F::preference_create, F::preference_set,   F::preference_destroy,
          F::heuristic,         F::algorithm_init,   F::algorithm_set,
          F::algorithm_get,     F::algorithm_check,  F::matmul};
}

}  // namespace trireme::testing
