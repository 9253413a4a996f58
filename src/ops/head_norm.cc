#include "trireme/ops/head_norm.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

std::int64_t channels_of_group(const HeadNorm& norm, std::int64_t heads) {
  return norm.whole ? heads * norm.shape.head_size : norm.shape.head_size;
}

void check_packed(std::string_view op, const HeadNorm& norm, std::string_view name,
                  const Tensor& x) {
  check_floating(op, name, x);
  check_shape(op, name, x, {norm.rows(), norm.shape.row()});
}

void check_norm(std::string_view op, const HeadNorm& norm, const Tensor& qkv,
                const Tensor& of_groups) {
  check_packed(op, norm, "qkv", qkv);
  check_fp32(op, "sums", of_groups, {norm.rows(), norm.groups()});
  check_shape(op, "query factor", norm.query.weight, {channels_of_group(norm, norm.shape.heads)});
  check_shape(op, "key factor", norm.key.weight, {channels_of_group(norm, norm.shape.kv_heads)});
  TRIREME_CHECK(
      norm.query_width > 0 && norm.key_width > 0,
      fmt::format("{}: means of {} and {} channels", op, norm.query_width, norm.key_width));
}

}  // namespace

void head_squares(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares) {
  check_norm("head_squares", norm, qkv, squares);
  dispatch(TRIREME_OP(head_squares), ctx, norm, qkv, squares);
}

void head_norm(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares,
               const Tensor& y) {
  check_norm("head_norm", norm, qkv, squares);
  check_packed("head_norm", norm, "y", y);
  dispatch(TRIREME_OP(head_norm), ctx, norm, qkv, squares, y);
}

void head_norm_dots(Context& ctx, const HeadNorm& norm, const Tensor& dy, const Tensor& qkv,
                    const Tensor& dots) {
  check_norm("head_norm_dots", norm, qkv, dots);
  check_packed("head_norm_dots", norm, "dy", dy);
  dispatch(TRIREME_OP(head_norm_dots), ctx, norm, dy, qkv, dots);
}

void head_norm_backward_input(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                              const Tensor& qkv, const Tensor& squares, const Tensor& dots,
                              const Tensor& dqkv) {
  constexpr std::string_view kOp = "head_norm_backward_input";
  check_norm(kOp, norm, qkv, squares);
  check_fp32(kOp, "dots", dots, squares.shape());
  check_packed(kOp, norm, "dy", dy);
  check_packed(kOp, norm, "dqkv", dqkv);
  dispatch(TRIREME_OP(head_norm_backward_input), ctx, norm, dy, qkv, squares, dots, dqkv);
}

void head_norm_backward_weight(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                               const Tensor& qkv, const Tensor& squares, const Tensor& dquery,
                               const Tensor& dkey) {
  constexpr std::string_view kOp = "head_norm_backward_weight";
  check_norm(kOp, norm, qkv, squares);
  check_packed(kOp, norm, "dy", dy);
  if (dquery.defined()) check_fp32(kOp, "dquery", dquery, norm.query.weight.shape());
  if (dkey.defined()) check_fp32(kOp, "dkey", dkey, norm.key.weight.shape());
  if (on_dry_gpu(ctx)) {
    const Tensor parts = gpu::parts_of_row_sums(ctx, 1, norm.rows(), norm.channels());
    const Tensor sums = gpu::sums_of_columns(ctx, norm.channels());
  }
  dispatch(TRIREME_OP(head_norm_backward_weight), ctx, norm, dy, qkv, squares, dquery, dkey);
}

}  // namespace trireme::ops
