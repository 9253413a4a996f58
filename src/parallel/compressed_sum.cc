#include "trireme/parallel/compressed_sum.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/parallel/tree_sum.h"

namespace trireme::parallel {
namespace {

// Every rank owns as many blocks, though the last ones may have fewer, or none.
std::vector<CompressedSum::Piece> equal_pieces(const ops::Packing& packing) {
  std::vector<CompressedSum::Piece> pieces;
  const std::int64_t each = packing.part_elements();
  for (int owner = 0; owner < packing.parts; ++owner) {
    const FlatRange part = intersection({each * owner, each * (owner + 1)}, {0, packing.elements});
    if (!part.empty()) pieces.push_back({part, owner});
  }
  return pieces;
}

}  // namespace

std::size_t CompressedSum::Shape::message_bytes() const {
  if (ranks == 1) return 0;
  const int parts = ranks + (gatherers > 1 ? gatherers : 0);
  return static_cast<std::size_t>(quantizes() ? parts * part_bytes : 4 * elements);
}

std::size_t CompressedSum::Shape::kept_bytes() const {
  if (!quantizes()) return 0;
  return static_cast<std::size_t>(4 * (elements + part_elements));
}

std::int64_t CompressedSum::Shape::adding_elements() const {
  return part_elements * (1 + TreeSum::tensors(ranks));
}

std::size_t CompressedSum::Shape::working_bytes() const {
  if (!quantizes()) return 0;
  return static_cast<std::size_t>(2 * ranks * part_bytes + 4 * adding_elements());
}

CompressedSum::CompressedSum(ops::Context& ctx, Communicator& comm, std::int64_t elements, int bits,
                             bool feedback)
    : comm_(comm), gatherers_(&comm), shape_{bits, elements, comm.size(), comm.size()} {
  TRIREME_CHECK(bits == 32 || bits == 16 || bits == 8 || bits == 4 || bits == 2,
                fmt::format("a sum over ranks in {} bits", bits));
  if (!shape_.quantizes()) return;
  form_parts(equal_pieces({bits, elements, comm.size()}));
  if (feedback) keep(ctx);
}

CompressedSum::CompressedSum(ops::Context& ctx, Communicator& comm, Communicator* gatherers,
                             std::int64_t elements, int bits, const std::vector<Piece>& pieces)
    : comm_(comm),
      gatherers_(gatherers),
      shape_{bits, elements, comm.size(), gatherers == nullptr ? 1 : gatherers->size()} {
  TRIREME_CHECK(shape_.quantizes(), "a sum that has pieces is quantized");
  form_parts(pieces);
  keep(ctx);
}

void CompressedSum::form_parts(const std::vector<Piece>& pieces) {
  parts_.resize(static_cast<std::size_t>(shape_.ranks));
  for (const Piece& piece : pieces) {
    Part& part = parts_[static_cast<std::size_t>(piece.owner)];
    Place place{.elements = piece.elements};
    if (!part.empty()) {
      place.at = part.back().at + part.back().size();
      place.bytes = part.back().bytes + packing(part.back()).bytes();
    }
    part.push_back(place);
    shape_.part_elements = std::max(shape_.part_elements, place.at + place.size());
    shape_.part_bytes = std::max(shape_.part_bytes, place.bytes + packing(place).bytes());
  }
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto wants = [&](int member) {
      return gatherers_->world_rank(member) == comm_.world_rank(rank);
    };
    bool wanted = gatherers_ == nullptr && rank == comm_.rank();
    for (int i = 0; gatherers_ != nullptr && i < gatherers_->size(); ++i) {
      wanted = wanted || wants(i);
    }
    if (wanted) gathered_.push_back(rank);
  }
}

void CompressedSum::keep(ops::Context& ctx) {
  kept_of_term_ = ctx.allocate({shape_.elements}, DType::kF32, MemoryUse::kOptimizer);
  kept_of_part_ = ctx.allocate({shape_.part_elements}, DType::kF32, MemoryUse::kOptimizer);
  ops::fill(ctx, kept_of_term_, 0.0f);
  ops::fill(ctx, kept_of_part_, 0.0f);
}

Tensor CompressedSum::travelling(ops::Context& ctx) const {
  return ctx.allocate({shape_.ranks * shape_.part_bytes}, DType::kU8, MemoryUse::kCommunication);
}

Tensor CompressedSum::slot(const Tensor& parts, int number) const {
  return parts.flat_range(number * shape_.part_bytes, (number + 1) * shape_.part_bytes);
}

Tensor CompressedSum::codes_of(const Tensor& part, const Place& place) const {
  return part.flat_range(place.bytes, place.bytes + packing(place).bytes());
}

void CompressedSum::start(ops::Context& ctx, const Tensor& x, float weight, bool feeds_back) {
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
  feeds_back_ = feeds_back && kept_of_term_.defined();
  sent_ = travelling(ctx);
  received_ = travelling(ctx);
  for (int owner = 0; owner < shape_.ranks; ++owner) {
    const Tensor part = slot(sent_, owner);
    std::int64_t end = 0;
    for (const Place& place : parts_[static_cast<std::size_t>(owner)]) {
      const auto [begin_of, end_of] = place.elements;
      ops::quantize(ctx, packing(place), x_.flat_range(begin_of, end_of),
                    feeds_back_ ? kept_of_term_.flat_range(begin_of, end_of) : Tensor(),
                    codes_of(part, place));
      end = place.bytes + packing(place).bytes();
    }
    if (end < part.elements()) ops::fill(ctx, part.flat_range(end, part.elements()), 0.0f);
  }
  work_ = comm_.all_to_all(ctx.stream, sent_, received_);
}

void CompressedSum::turn(ops::Context& ctx) {
  TRIREME_CHECK(state_ == State::kTermsTravel, "a compressed sum turns where no terms travel");
  state_ = State::kResultTravels;
  if (!shape_.quantizes()) return;
  std::exchange(work_, {}).wait_on(ctx.stream);
  const Tensor mine = slot(sent_, gatherers_ == nullptr ? 0 : gatherers_->rank());
  add_up(ctx, mine);
  if (shape_.gatherers == 1) return;
  work_ = gatherers_->all_gather(ctx.stream, mine,
                                 sent_.flat_range(0, shape_.gatherers * shape_.part_bytes));
}

// Writes the codes of the own part of the result.
void CompressedSum::add_up(ops::Context& ctx, const Tensor& codes) {
  const Tensor memory = adding_.defined() ? adding_
                                          : ctx.allocate({shape_.adding_elements()}, DType::kF32,
                                                         MemoryUse::kGradients);
  if (own().empty()) return;
  const std::int64_t elements = own().back().at + own().back().size();
  const Tensor term = memory.flat_range(0, elements);
  TreeSum sum(memory.flat_range(elements, memory.elements()), elements, shape_.ranks);
  const auto in_part = [](const Tensor& part, const Place& place) {
    return part.flat_range(place.at, place.at + place.size());
  };
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    for (const Place& place : own()) {
      ops::dequantize(ctx, packing(place), codes_of(slot(received_, rank), place),
                      in_part(term, place));
    }
    sum.add(ctx, term);
  }
  for (const Place& place : own()) {
    ops::quantize(ctx, packing(place), in_part(term, place),
                  feeds_back_ ? in_part(kept_of_part_, place) : Tensor(), codes_of(codes, place));
  }
}

void CompressedSum::finish(ops::Context& ctx) {
  TRIREME_CHECK(state_ != State::kIdle, "a compressed sum is finished before it is started");
  if (state_ == State::kTermsTravel) turn(ctx);
  std::exchange(work_, {}).wait_on(ctx.stream);
  if (shape_.quantizes()) {
    for (std::size_t i = 0; i < gathered_.size(); ++i) {
      const Tensor part = slot(sent_, static_cast<int>(i));
      for (const Place& place : parts_[static_cast<std::size_t>(gathered_[i])]) {
        ops::dequantize(ctx, packing(place), codes_of(part, place),
                        x_.flat_range(place.elements.begin, place.elements.end));
      }
    }
  }
  give_up();
}

void CompressedSum::give_up() {
  state_ = State::kIdle;
  work_ = {};
  x_ = sent_ = received_ = {};
}

std::vector<FlatRange> CompressedSum::owned() const {
  std::vector<FlatRange> owned;
  if (parts_.empty()) return owned;
  for (const Place& place : own()) owned.push_back(place.elements);
  return owned;
}

Tensor CompressedSum::kept_of_result() const {
  if (!kept_of_part_.defined()) return {};
  const std::int64_t owned = own().empty() ? 0 : own().back().at + own().back().size();
  return kept_of_part_.flat_range(0, owned);
}

}  // namespace trireme::parallel
