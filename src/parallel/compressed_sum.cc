#include "trireme/parallel/compressed_sum.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/parallel/tree_sum.h"

namespace trireme::parallel {

std::size_t CompressedSum::Shape::message_bytes() const {
  if (ranks == 1) return 0;
  return static_cast<std::size_t>(quantizes() ? 2 * packing().bytes() : 4 * elements);
}

std::size_t CompressedSum::Shape::kept_bytes() const {
  if (!quantizes()) return 0;
  return static_cast<std::size_t>(4 * (elements + packing().part_elements()));
}

std::size_t CompressedSum::Shape::working_bytes() const {
  if (!quantizes()) return 0;
  const std::int64_t sums = 1 + TreeSum::tensors(ranks);
  return static_cast<std::size_t>(2 * packing().bytes() + 4 * packing().part_elements() * sums);
}

CompressedSum::CompressedSum(ops::Context& ctx, Communicator& comm, std::int64_t elements, int bits,
                             bool feedback)
    : comm_(comm), shape_{bits, elements, comm.size()} {
  TRIREME_CHECK(bits == 32 || bits == 16 || bits == 8 || bits == 4 || bits == 2,
                fmt::format("a sum over ranks in {} bits", bits));
  if (!feedback || !shape_.quantizes()) return;
  kept_of_term_ = ctx.allocate({elements}, DType::kF32, MemoryUse::kOptimizer);
  kept_of_part_ =
      ctx.allocate({shape_.packing().part_elements()}, DType::kF32, MemoryUse::kOptimizer);
  ops::fill(ctx, kept_of_term_, 0.0f);
  ops::fill(ctx, kept_of_part_, 0.0f);
}

Tensor CompressedSum::packed(ops::Context& ctx) const {
  return ctx.allocate({shape_.packing().bytes()}, DType::kU8, MemoryUse::kCommunication);
}

Tensor CompressedSum::part_of(const Tensor& packed, int rank) const {
  const std::int64_t bytes = shape_.packing().part_bytes();
  return packed.flat_range(rank * bytes, (rank + 1) * bytes);
}

void CompressedSum::start(ops::Context& ctx, const Tensor& x, float weight) {
  TRIREME_CHECK(state_ == State::kIdle, "a compressed sum starts before the last one is finished");
  TRIREME_CHECK(x.dtype() == DType::kF32 && x.elements() == shape_.elements,
                fmt::format("a compressed sum of {} elements got {} of {}", shape_.elements,
                            x.shape().to_string(), name_of(x.dtype())));
  state_ = State::kTermsTravel;
  if (shape_.elements == 0) return;
  x_ = x.reshape({shape_.elements});
  if (weight != 1.0f) ops::scale(ctx, x_, weight);
  if (!shape_.quantizes()) {
    work_ = comm_.all_reduce(ctx.stream, x_, ReduceOp::kSum);
    return;
  }
  sent_ = packed(ctx);
  received_ = packed(ctx);
  ops::quantize(ctx, shape_.packing(), x_, kept_of_term_, sent_);
  work_ = comm_.all_to_all(ctx.stream, sent_, received_);
}

void CompressedSum::turn(ops::Context& ctx) {
  TRIREME_CHECK(state_ == State::kTermsTravel, "a compressed sum turns where no terms travel");
  state_ = State::kResultTravels;
  if (!shape_.quantizes()) return;
  std::exchange(work_, {}).wait_on(ctx.stream);
  const ops::Packing part = shape_.packing().part();
  const Tensor term = ctx.allocate({part.elements}, DType::kF32, MemoryUse::kGradients);
  TreeSum sum(ctx, part.elements, shape_.ranks);
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    ops::dequantize(ctx, part, part_of(received_, rank), term);
    sum.add(ctx, term);
  }
  received_ = {};
  const Tensor own = part_of(sent_, comm_.rank());
  ops::quantize(ctx, part, term, kept_of_part_, own);
  work_ = comm_.all_gather(ctx.stream, own, sent_);
}

void CompressedSum::finish(ops::Context& ctx) {
  TRIREME_CHECK(state_ != State::kIdle, "a compressed sum is finished before it is started");
  if (state_ == State::kTermsTravel) turn(ctx);
  state_ = State::kIdle;
  std::exchange(work_, {}).wait_on(ctx.stream);
  const Tensor result = std::exchange(sent_, {}), x = std::exchange(x_, {});
  if (shape_.quantizes()) ops::dequantize(ctx, shape_.packing(), result, x);
}

std::int64_t CompressedSum::first_owned() const {
  return std::min(shape_.elements, comm_.rank() * shape_.packing().part_elements());
}

Tensor CompressedSum::kept_of_result() const {
  if (!kept_of_part_.defined()) return {};
  const std::int64_t owned = std::min(shape_.elements - first_owned(), kept_of_part_.elements());
  return kept_of_part_.flat_range(0, owned);
}

}  // namespace trireme::parallel
