#include <cmath>

#include "trireme/ops/head_norm.h"

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// The channels of a group in a row of qkv, and what is done with them.
struct Group {
  std::int64_t begin, channels;
  const float* factor;  // (channels)
  double width;         // of the mean
  float share;          // HeadNorm::key_share, or 1
};

struct Factors {
  Tensor query, key;  // fp32
};

Factors factors_of(Context& ctx, const HeadNorm& norm) {
  return {as_fp32(ctx, norm.query), as_fp32(ctx, norm.key)};
}

Group group_of(const HeadNorm& norm, const Factors& factors, std::int64_t number) {
  const std::int64_t size = norm.shape.head_size, heads = norm.shape.heads;
  const bool query = norm.whole ? number == 0 : number < heads;
  Group group = {.begin = number * size,
                 .channels = size,
                 .factor = (query ? factors.query : factors.key).data<float>(),
                 .width = static_cast<double>(query ? norm.query_width : norm.key_width),
                 .share = query ? 1.0f : norm.key_share};
  if (norm.whole) {
    group.begin = number * heads * size;
    group.channels = (query ? heads : norm.shape.kv_heads) * size;
  }
  return group;
}

float rstd_of(const HeadNorm& norm, const Group& group, float squares) {
  return static_cast<float>(1.0 /
                            std::sqrt(static_cast<double>(squares) / group.width + norm.epsilon));
}

// Calls body(row, group, number) for every group of every row, on all threads.
template <class Body>
void for_groups(const Context& ctx, const HeadNorm& norm, const Factors& factors,
                const Body& body) {
  parallel_ranges(ctx, norm.rows(), row_grain(norm.channels()),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t row = first; row < last; ++row) {
                      for (std::int64_t g = 0; g < norm.groups(); ++g) {
                        body(row, group_of(norm, factors, g), row * norm.groups() + g);
                      }
                    }
                  });
}

// Reads the channels of groups of packed rows, in fp32.
class GroupReader {
 public:
  GroupReader(Context& ctx, const HeadNorm& norm, const Tensor& x)
      : x_(x), row_(norm.shape.row()), stage_(ctx, norm.channels()) {}
  const float* operator()(std::int64_t row, const Group& group) const {
    return read_fp32(x_, row * row_ + group.begin, group.channels, stage_.mine());
  }

 private:
  const Tensor& x_;
  std::int64_t row_;
  ThreadRows stage_;
};

// Copies the values of all rows, unless they are there already.
void copy_values(Context& ctx, const HeadNorm& norm, const Tensor& from, const Tensor& to) {
  if (from.raw() == to.raw()) return;
  const std::int64_t begin = norm.channels(), row = norm.shape.row(), n = row - begin;
  const ThreadRows in(ctx, n), out(ctx, n);
  parallel_ranges(ctx, norm.rows(), row_grain(n), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t at = r * row + begin;
      float* place = write_place(to, at, out.mine());
      const float* values = read_fp32(from, at, n, in.mine());
      std::copy_n(values, n, place);
      write_back(to, at, n, place);
    }
  });
}

}  // namespace

void head_squares(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares) {
  const Factors factors = factors_of(ctx, norm);
  const GroupReader read(ctx, norm, qkv);
  for_groups(ctx, norm, factors, [&](std::int64_t row, const Group& group, std::int64_t number) {
    const float* x = read(row, group);
    squares.data<float>()[number] = group.share * kernels().attention.dot(x, x, group.channels);
  });
}

void head_norm(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares,
               const Tensor& y) {
  const Factors factors = factors_of(ctx, norm);
  const GroupReader read(ctx, norm, qkv);
  const ThreadRows out(ctx, norm.channels());
  for_groups(ctx, norm, factors, [&](std::int64_t row, const Group& group, std::int64_t number) {
    const std::int64_t at = row * norm.shape.row() + group.begin;
    float* to = write_place(y, at, out.mine());
    kernels().norm.scale_by(read(row, group), group.factor,
                            rstd_of(norm, group, squares.data<float>()[number]), to,
                            group.channels);
    write_back(y, at, group.channels, to);
  });
  copy_values(ctx, norm, qkv, y);
}

void head_norm_dots(Context& ctx, const HeadNorm& norm, const Tensor& dy, const Tensor& qkv,
                    const Tensor& dots) {
  const Factors factors = factors_of(ctx, norm);
  const GroupReader read(ctx, norm, qkv), read_dy(ctx, norm, dy);
  for_groups(ctx, norm, factors, [&](std::int64_t row, const Group& group, std::int64_t number) {
    dots.data<float>()[number] = kernels().norm.sum_of_products(read_dy(row, group), group.factor,
                                                                read(row, group), group.channels);
  });
}

void head_norm_backward_input(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                              const Tensor& qkv, const Tensor& squares, const Tensor& dots,
                              const Tensor& dqkv) {
  const Factors factors = factors_of(ctx, norm);
  const GroupReader read(ctx, norm, qkv), read_dy(ctx, norm, dy);
  const ThreadRows out(ctx, norm.channels());
  for_groups(ctx, norm, factors, [&](std::int64_t row, const Group& group, std::int64_t number) {
    const std::int64_t at = row * norm.shape.row() + group.begin;
    const float rstd = rstd_of(norm, group, squares.data<float>()[number]);
    const double mean = static_cast<double>(dots.data<float>()[number]) / group.width;
    const auto pull = static_cast<float>(mean * rstd * rstd * rstd * group.share);
    float* to = write_place(dqkv, at, out.mine());
    kernels().norm.rms_gradient(read_dy(row, group), group.factor, read(row, group), rstd, pull, to,
                                group.channels);
    write_back(dqkv, at, group.channels, to);
  });
  copy_values(ctx, norm, dy, dqkv);
}

void head_norm_backward_weight(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                               const Tensor& qkv, const Tensor& squares, const Tensor& dquery,
                               const Tensor& dkey) {
  const Factors factors = factors_of(ctx, norm);
  const GroupReader read(ctx, norm, qkv), read_dy(ctx, norm, dy);
  const std::int64_t queries = norm.query.weight.elements(), keys = norm.key.weight.elements();
  const std::int64_t columns = queries + keys, rows = norm.rows();
  const std::int64_t grain = rows_per_part(rows), count = (rows + grain - 1) / grain;
  const Tensor parts = ctx.allocate({count, columns}, DType::kF32, MemoryUse::kWorkspace);
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t last) {
    float* part = parts.data<float>() + first / grain * columns;
    std::fill_n(part, columns, 0.0f);
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t g = 0; g < norm.groups(); ++g) {
        const Group group = group_of(norm, factors, g);
        const bool query = group.factor == factors.query.data<float>();
        const float rstd = rstd_of(norm, group, squares.data<float>()[row * norm.groups() + g]);
        kernels().norm.rms_norm_backward_weight(read_dy(row, group), read(row, group), rstd,
                                                query ? part : part + queries, group.channels);
      }
    }
  });
  const Tensor sums = ctx.allocate({columns}, DType::kF32, MemoryUse::kWorkspace);
  on_this_thread(ctx, [&] { std::fill_n(sums.data<float>(), columns, 0.0f); });
  add_parts(ctx, parts.data<float>(), count, columns, sums.data<float>());
  on_this_thread(ctx, [&] {
    const auto add_to = [&](const Tensor& gradient, std::int64_t begin) {
      if (!gradient.defined()) return;
      kernels().elementwise.add(gradient.data<float>(), sums.data<float>() + begin,
                                gradient.data<float>(), gradient.elements());
    };
    add_to(dquery, 0);
    add_to(dkey, queries);
  });
}

}  // namespace trireme::ops::cpu
