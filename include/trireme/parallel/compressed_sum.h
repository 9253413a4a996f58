// A sum over ranks whose terms and result travel in few bits.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/ops/quantize.h"

namespace trireme::parallel {

// Each rank's term is quantized and its parts go to their owners (all_to_all). An owner adds up the
// terms of its part along T(ranks) (trireme/comm/sum_tree.h) in fp32, in the order of ranks, and
// quantizes the result, and all gather the parts. What a rank's codes lose, of its term and of the
// part that it owns, is added before it quantizes the next time. So k sums of terms that stay
// differ from k times their sum by what is kept at the end alone, which does not grow with k.
//
// The sum has the same bits on every rank, from run to run, and on every device; they do not depend
// on the algorithms of the communicator. With 32 bits nothing is quantized: the sum is that of
// Communicator::all_reduce. One rank changes nothing. Where a term of a block of 256 elements is
// not finite (see ops::quantize), the sum of the whole block is not, and what is kept stays finite.
class CompressedSum {
 public:
  struct Shape {
    int bits = 32;  // 32 (fp32), 16 (bf16), 8, 4 or 2
    std::int64_t elements = 0;
    int ranks = 1;

    bool quantizes() const { return bits < 32 && ranks > 1 && elements > 0; }
    ops::Packing packing() const { return {bits, elements, ranks}; }
    // Bytes of a rank's messages in one sum as a flight recorder and a DryRank count them: the
    // terms, and the parts of the result, each with the rank's own.
    std::size_t message_bytes() const;
    // Memory that is held all the time: what the codes lost. Nothing without feedback.
    std::size_t kept_bytes() const;
    // Memory that is held besides from start to finish, at most.
    std::size_t working_bytes() const;
  };

  // `elements` and `bits` are the same on all ranks of `comm`, which outlives the sum. Nothing is
  // kept yet. Without `feedback` what codes lose is lost. Throws InternalError for other bits.
  CompressedSum(ops::Context& ctx, Communicator& comm, std::int64_t elements, int bits,
                bool feedback = true);

  const Shape& shape() const { return shape_; }

  // Collective: start, turn and finish of several sums over one communicator come in the same order
  // on all ranks. Takes weight * x as this rank's term. x (elements) fp32 is the sum's until
  // finish.
  void start(ops::Context& ctx, const Tensor& x, float weight = 1.0f);
  // Adds up this rank's part and sends it. The terms travel before, the result afterwards: so a
  // caller that computes meanwhile calls it about half way.
  void turn(ops::Context& ctx);
  // Turns, unless that is done, and sets x to the sum. When these calls come changes no bit: a
  // checkpoint may finish a sum early, and write it with what is kept.
  void finish(ops::Context& ctx);
  // Start and finish.
  void add(ops::Context& ctx, const Tensor& x, float weight = 1.0f) {
    start(ctx, x, weight);
    finish(ctx);
  }

  // What the next sum adds to this rank's term: (elements) fp32. Checkpoints read it, and may write
  // it, between sums. Undefined where nothing is quantized, or without feedback.
  const Tensor& kept_of_term() const { return kept_of_term_; }
  // The same for the part of the result that this rank owns: the elements from first_owned() on,
  // perhaps none. The owners' parts in the order of ranks are all elements.
  Tensor kept_of_result() const;
  std::int64_t first_owned() const;

 private:
  enum class State { kIdle, kTermsTravel, kResultTravels };

  Tensor packed(ops::Context& ctx) const;
  Tensor part_of(const Tensor& packed, int rank) const;

  Communicator& comm_;
  Shape shape_;
  Tensor kept_of_term_, kept_of_part_;  // kept_of_part_: (part_elements), zero beyond the elements

  State state_ = State::kIdle;
  Work work_;        // under way
  Tensor x_;         // the caller's
  Tensor sent_;      // the codes of the term, then those of the result
  Tensor received_;  // the codes of all terms of the own part
};

}  // namespace trireme::parallel
