#include "trireme/ops/context.h"

#include <fmt/format.h>

#include "ops/cpu/kernels.h"
#include "ops/matmul_engine.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace trireme::ops {

Context make_cpu_context(int threads) {
  TRIREME_CHECK(threads >= 1, fmt::format("{} threads were asked for", threads));
  cpu::kernels();  // chosen here, so that a wrong choice is said before any thread runs one
  Context ctx;
#ifdef _OPENMP
  omp_set_num_threads(threads);
  ctx.threads = threads;
#endif
  ctx.allocator = make_caching_allocator(ctx.device);
  ctx.matmul = make_cpu_matmul_engine();
  ctx.step_state = std::make_shared<StepState>();
  return ctx;
}

std::string_view matmul_description(const Context& ctx, DType dtype) {
  return ctx.matmul->description(dtype);
}

std::string_view instruction_set(const Context&) {
  return cpu::kernels().name;
}

}  // namespace trireme::ops
