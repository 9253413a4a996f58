#include "trireme/ops/arithmetic.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/ops/libraries.h"

namespace trireme::ops {
namespace {

bool takes_fp32_products_by_shape(const Context& ctx, const Arithmetic& model) {
  return !ctx.cuda && matmul_description(ctx, DType::kF32).starts_with("oneDNN") &&
         !(model.compute == DType::kBF16 && has_native_bf16(ctx));
}

bool has_many_classes(const Context& ctx, const Arithmetic& model) {
  return ctx.gpu_memory == 0 && model.classes > 65536;
}

bool has_loss_on_gpu(const Context& ctx, const Arithmetic& model) {
  return ctx.gpu_memory > 0 && model.classes > 0;
}

bool is_on_gpu(const Context& ctx, const Arithmetic& /*model*/) {
  return ctx.device.kind != DeviceKind::kCpu;
}

bool has_batch_norms_on_gpu(const Context& ctx, const Arithmetic& model) {
  return ctx.gpu_memory > 0 && model.batch_norms;
}

constexpr ArithmeticChange kChanges[] = {
    {2, "products in fp32 on CPUs with AVX-512 go by sgemm or own kernels where these are faster",
     takes_fp32_products_by_shape},
    {3, "losses on CPUs take 128 rows at a time where a rank has more than 65,536 classes",
     has_many_classes},
    {4,
     "losses over a vocabulary on GPUs take up to 16,384 rows at a time, and one kernel where a "
     "row is longer than shared memory",
     has_loss_on_gpu},
    {5,
     "on GPUs the sums of norms' gradients have another order, and without tensor ranks attention "
     "and MLPs add the biases of their outputs within products",
     is_on_gpu},
    {6,
     "batch norms on GPUs, and the weights' gradients of depthwise convolutions, add up in another "
     "order",
     has_batch_norms_on_gpu},
    {7,
     "on GPUs without tensor ranks the residual is added within the last product of MLPs, and of "
     "attention where no norm follows",
     is_on_gpu},
    {8,
     "on GPUs the moments of what depthwise convolutions of 3 x 3 make, and the sums of the "
     "gradients of norms before them, add up in another order",
     has_batch_norms_on_gpu},
    {9, "on GPUs the gradients of biases add up in another order", is_on_gpu},
};

}  // namespace

std::span<const ArithmeticChange> arithmetic_changes() {
  return kChanges;
}

int arithmetic_now() {
  return arithmetic_changes().back().number;
}

std::string arithmetic_since(int number, const Context& ctx, const Arithmetic& model) {
  std::vector<std::string_view> since;
  for (const ArithmeticChange& change : kChanges) {
    if (change.number > number && change.touches(ctx, model)) since.push_back(change.what);
  }
  return fmt::format("{}", fmt::join(since, "; "));
}

}  // namespace trireme::ops
