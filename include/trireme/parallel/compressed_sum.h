// A sum over ranks whose terms and result travel in few bits.
#pragma once

#include <vector>

#include "trireme/base/box.h"
#include "trireme/comm/communicator.h"
#include "trireme/ops/quantize.h"

namespace trireme::parallel {

// Each rank's term is quantized and its parts go to their owners (all_to_all). An owner adds up the
// terms of its part along T(ranks) (trireme/comm/sum_tree.h) in fp32, in the order of ranks, and
// quantizes the result, and all who want a part gather it. What a rank's codes lose, of its term
// and of the part that it owns, is added before it quantizes the next time. So k sums of terms that
// stay differ from k times their sum by what is kept at the end alone, which does not grow with k.
//
// The sum has the same bits on every rank, from run to run, and on every device; they do not depend
// on the algorithms of the communicator, nor on who owns what, where the blocks are the same. With
// 32 bits nothing is quantized: the sum is that of Communicator::all_reduce. One rank changes
// nothing. Where a term of a block of 256 elements is not finite (see ops::quantize), the sum of
// the whole block is not, and what is kept stays finite.
class CompressedSum {
 public:
  // Elements that are quantized by themselves, in blocks from the first one on, and added up by one
  // rank.
  struct Piece {
    FlatRange elements;
    int owner = 0;
    bool operator==(const Piece&) const = default;
  };

  struct Shape {
    int bits = 32;  // 32 (fp32), 16 (bf16), 8, 4 or 2
    std::int64_t elements = 0;
    int ranks = 1;
    int gatherers = 1;                               // ranks that gather parts together
    std::int64_t part_elements = 0, part_bytes = 0;  // of the largest part

    bool quantizes() const { return bits < 32 && ranks > 1 && elements > 0; }
    // Bytes of a rank's messages in one sum as a flight recorder and a DryRank count them: the
    // terms, and the parts of the result, each with the rank's own.
    std::size_t message_bytes() const;
    // Memory that is held all the time: what the codes lost. Nothing without feedback.
    std::size_t kept_bytes() const;
    // fp32 numbers of memory in which a part is added up.
    std::int64_t adding_elements() const;
    // Memory that is held besides from start to finish, at most.
    std::size_t working_bytes() const;
  };

  // Equal parts, one for each rank. `elements` and `bits` are the same on all ranks of `comm`,
  // which outlives the sum. Nothing is kept yet. Without `feedback` what codes lose is lost. Throws
  // InternalError for other bits.
  CompressedSum(ops::Context& ctx, Communicator& comm, std::int64_t elements, int bits,
                bool feedback = true);
  // In fewer than 32 bits. `pieces` are the same on all ranks of `comm`, of several; elements that
  // no piece has are left as they are. A rank wants the pieces of the owners that share `gatherers`
  // with it, which are all ranks of `comm` or some of them, in its order; null: its own alone. The
  // rest of x is undefined after finish.
  CompressedSum(ops::Context& ctx, Communicator& comm, Communicator* gatherers,
                std::int64_t elements, int bits, const std::vector<Piece>& pieces);

  const Shape& shape() const { return shape_; }
  // Sums that are turned one after the other may add up in the same memory: (adding_elements())
  // fp32 at least. Otherwise each turn allocates it.
  void add_up_in(const Tensor& memory) { adding_ = memory; }

  // Collective: start, turn and finish of several sums over one communicator come in the same order
  // on all ranks. Takes weight * x as this rank's term. x (elements) fp32 is the sum's until
  // finish. Without `feeds_back` nothing that was kept is added to this sum, and it stays.
  void start(ops::Context& ctx, const Tensor& x, float weight = 1.0f, bool feeds_back = true);
  // Whether what travels is here, so that turn or finish waits for nothing.
  bool arrived() const { return work_.done(); }
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
  // Forgets a sum that was started, on all ranks.
  void give_up();

  // What the next sum adds to this rank's term: (elements) fp32. Checkpoints read it, and may write
  // it, between sums. Undefined where nothing is quantized, or without feedback.
  const Tensor& kept_of_term() const { return kept_of_term_; }
  // The same for the part of the result that this rank owns: the elements of owned(), one range
  // after the other. The owners' parts together are all elements.
  Tensor kept_of_result() const;
  std::vector<FlatRange> owned() const;

 private:
  enum class State { kIdle, kTermsTravel, kResultTravels };
  // A piece in the part of its owner.
  struct Place {
    FlatRange elements;      // of x
    std::int64_t at = 0;     // of the first one among the part's
    std::int64_t bytes = 0;  // where its codes begin

    std::int64_t size() const { return elements.size(); }
  };
  using Part = std::vector<Place>;

  void form_parts(const std::vector<Piece>& pieces);
  void keep(ops::Context& ctx);
  ops::Packing packing(const Place& place) const { return {shape_.bits, place.size(), 1}; }
  const Part& own() const { return parts_[static_cast<std::size_t>(comm_.rank())]; }
  Tensor travelling(ops::Context& ctx) const;
  Tensor slot(const Tensor& parts, int number) const;
  Tensor codes_of(const Tensor& part, const Place& place) const;
  void add_up(ops::Context& ctx, const Tensor& slot);

  Communicator& comm_;
  Communicator* gatherers_ = nullptr;
  Shape shape_;
  std::vector<Part> parts_;    // by owner
  std::vector<int> gathered_;  // the owners whose parts this rank wants, in the order of gatherers
  Tensor kept_of_term_, kept_of_part_;  // kept_of_part_: (part_elements), zero beyond the own ones
  Tensor adding_;

  State state_ = State::kIdle;
  bool feeds_back_ = true;
  Work work_;        // under way
  Tensor x_;         // the caller's
  Tensor sent_;      // the codes of the term, then those of the result
  Tensor received_;  // the codes of all terms of the own part
};

}  // namespace trireme::parallel
