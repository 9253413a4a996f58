#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "ops/matmul_engine.h"
#include "ops/onednn.h"

namespace trireme::ops {
namespace {

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed, DType dtype) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, onednn::type_of(dtype), strides};
}

std::string_view isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX-512, AMX";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512, bf16";
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2";
    default:
      return "baseline x86-64";
  }
}

[[noreturn]] void throw_failed(const MatmulCall& call, std::string_view what) {
  throw InternalError(fmt::format("oneDNN could not multiply ({}, {}) by ({}, {}) in {}: {}",
                                  call.m, call.k, call.k, call.n, name_of(call.dtype), what));
}

class OneDnnPrimitives : public MatmulEngine {
 public:
  OneDnnPrimitives()
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        description_(onednn_description()),
        fp32_description_(description_ + ", primitives alone") {}

  void run(Context& ctx, const MatmulCall& call) override try {
    if (ctx.dry) return;
    const std::lock_guard lock(mutex_);
    onednn::use_threads(ctx.threads);
    Plan& plan = plan_for(call, ctx.threads);
    plan.a.set_data_handle(const_cast<void*>(call.a));
    plan.b.set_data_handle(const_cast<void*>(call.b));
    plan.c.set_data_handle(call.c);
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, plan.a}, {DNNL_ARG_WEIGHTS, plan.b}, {DNNL_ARG_DST, plan.c}};
    if (call.bias != nullptr) {
      plan.bias.set_data_handle(const_cast<void*>(call.bias));
      arguments.emplace(DNNL_ARG_BIAS, plan.bias);
    }
    plan.product.execute(stream_, arguments);
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw_failed(call, error.what());
  }

  bool fuses(const MatmulCall& call) override {
    return call.epilogue == Epilogue::kNone && call.addend == nullptr &&
           (call.bias_dtype == DType::kF32 || call.bias_dtype == call.dtype);
  }

  std::string_view description(DType dtype) const override {
    return dtype == DType::kF32 ? fp32_description_ : description_;
  }

 private:
  // Each shape is planned (and its code generated) once.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, DType, DType, bool,
                         bool, DType, int>;
  struct Plan {
    dnnl::matmul product;
    dnnl::memory a, b, c, bias;
  };

  Plan& plan_for(const MatmulCall& call, int threads) {
    const bool with_bias = call.bias != nullptr;
    const Key key = {call.m,           call.n,          call.k,       call.transpose_a,
                     call.transpose_b, call.dtype,      call.c_dtype, call.accumulate,
                     with_bias,        call.bias_dtype, threads};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const auto a = matrix(call.m, call.k, call.transpose_a, call.dtype);
    const auto b = matrix(call.k, call.n, call.transpose_b, call.dtype);
    const auto c = matrix(call.m, call.n, false, call.c_dtype);
    dnnl::primitive_attr attributes;
    if (call.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto bias = matrix(1, call.n, false, call.bias_dtype);
    const auto described = with_bias
                               ? onednn::describe<dnnl::matmul>(engine_, attributes, a, b, bias, c)
                               : onednn::describe<dnnl::matmul>(engine_, attributes, a, b, c);
    Plan plan = {dnnl::matmul(described), dnnl::memory(a, engine_, nullptr),
                 dnnl::memory(b, engine_, nullptr), dnnl::memory(c, engine_, nullptr),
                 dnnl::memory(bias, engine_, nullptr)};
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  std::mutex mutex_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Plan> plans_;
  std::string description_, fp32_description_;
};

class OneDnnSgemm : public MatmulEngine {
 public:
  OneDnnSgemm() : description_(onednn_description() + ", sgemm alone") {}

  void run(Context& ctx, const MatmulCall& call) override {
    TRIREME_CHECK(call.dtype == DType::kF32 && call.c_dtype == DType::kF32,
                  "sgemm multiplies fp32 only");
    if (ctx.dry) return;
    const std::lock_guard lock(mutex_);
    onednn::use_threads(ctx.threads);
    const dnnl_status_t status = dnnl_sgemm(
        call.transpose_a ? 'T' : 'N', call.transpose_b ? 'T' : 'N', call.m, call.n, call.k, 1.0f,
        static_cast<const float*>(call.a), call.transpose_a ? call.m : call.k,
        static_cast<const float*>(call.b), call.transpose_b ? call.k : call.n,
        call.accumulate ? 1.0f : 0.0f, static_cast<float*>(call.c), call.n);
    if (status != dnnl_success) throw_failed(call, fmt::format("status {}", int{status}));
  }

  std::string_view description(DType) const override { return description_; }

 private:
  std::mutex mutex_;
  std::string description_;
};

}  // namespace

std::unique_ptr<MatmulEngine> make_onednn_primitives() {
  return std::make_unique<OneDnnPrimitives>();
}

std::unique_ptr<MatmulEngine> make_onednn_sgemm() {
  return std::make_unique<OneDnnSgemm>();
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::string onednn_description() {
  return fmt::format("{} ({})", onednn_version(), isa_name());
}

bool onednn_has_native_bf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace trireme::ops
