// Collectives by recursive halving and doubling on the terms of T(size): a rank sends about as many
// bytes as in an exchange with all others, in log2(size) messages. Neighbouring terms exchange the
// most bytes, so ranks that follow the network's order load its upper links least.
//
// The data lie in the order of positions: the position of a term is its number with the bits
// reversed. In round i of the halving, two terms whose numbers differ in bit i have the partial
// results of the same range of positions. The lower term keeps the lower half of it, and each gives
// the other half away. After the last round a term has the result at its own position. The doubling
// is the same in reverse.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/comm/sum_tree.h"

#include "comm/collectives/collectives.h"
#include "comm/collectives/pair_sum.h"
#include "comm/collectives/segmented_task.h"

namespace trireme {
namespace {

struct HalvingPlan {
  struct Round {
    int peer;
    bool is_left;      // this rank's partial result is that of the lower block
    Range keep, give;  // positions
  };

  HalvingPlan(int rank, const SumTree& sums) : tree(sums), pairs(rank, sums) {
    Range here{0, static_cast<std::size_t>(tree.terms())};
    for (const DoublingPlan::Round& round : pairs.rounds) {
      const std::size_t middle = (here.begin + here.end) / 2;
      const Range lower{here.begin, middle}, upper{middle, here.end};
      here = round.is_left ? lower : upper;
      rounds.push_back({round.peer, round.is_left, here, round.is_left ? upper : lower});
    }
  }

  // The term at a position.
  int term_at(std::size_t at) const {
    int term = 0;
    for (int bit = 1; bit < tree.terms(); bit *= 2, at /= 2) {
      term = 2 * term + static_cast<int>(at % 2);
    }
    return term;
  }

  SumTree tree;
  DoublingPlan pairs;
  std::vector<Round> rounds;
};

// A task whose stages are listed before it starts, segment by segment. Two segments are under way:
// while one is reduced, the other is on the wire.
class ListedTask : public SegmentedTask {
 protected:
  using SegmentedTask::SegmentedTask;
  using Stage = std::function<void()>;  // processes what has arrived and posts messages

  // All ranks list as many stages, each with the same meaning for all of them.
  void begin_segment() { stages_.emplace_back(); }
  void then(Stage stage) { stages_.back().push_back(std::move(stage)); }
  void skip(std::size_t stages) {
    stages_.back().insert(stages_.back().end(), stages, [] {});
  }
  std::size_t last_segment() const { return stages_.size() - 1; }
  // The length of a segment in elements of so many bytes.
  std::size_t length_of(std::size_t bytes) const {
    return std::max<std::size_t>(transport().segment_bytes() / 2 / bytes, 1);
  }

 private:
  Pipeline plan() final {
    if (stages_.empty()) return {};
    Pipeline result{.segments = stages_.size(), .stages = static_cast<int>(stages_[0].size())};
    result.skew = result.span() / 2 + 1;
    return result;
  }
  void run(std::size_t segment, int stage) final {
    stages_[segment][static_cast<std::size_t>(stage)]();
  }

  std::vector<std::vector<Stage>> stages_;  // by segment
};

// A range of a task's buffer, and the elements of it that lie at each position.
struct Layout {
  using Bounds = std::vector<std::size_t>;  // of positions, in elements; the first is 0

  std::size_t segment;
  std::size_t begin;                     // in the buffer, in elements
  std::shared_ptr<const Bounds> bounds;  // shared by all phases that use it

  std::size_t count() const { return bounds->back(); }
  Range elements(Range positions) const {
    return {(*bounds)[positions.begin], (*bounds)[positions.end]};
  }
};

class HalvingTask : public ListedTask {
 protected:
  HalvingTask(TransportPtr transport, DType dtype, ReduceOp op)
      : ListedTask(std::move(transport)),
        plan_(rank(), SumTree(size(), this->transport().blocks().get())),
        op_(op),
        dtype_(dtype),
        pairs_(this->transport(), plan_.pairs, op, dtype) {}

  bool has_term() const { return plan_.pairs.has_term; }
  bool has_partner() const { return plan_.pairs.has_partner(); }
  std::size_t element() const { return size_of(dtype_); }
  std::byte* at(const Layout& layout, std::size_t index) const {
    const Buffer& packed = memory(layout).packed;
    return (packed ? packed.get() : buffer_ + layout.begin * element()) + index * element();
  }
  // The buffer, in the tensor's type, of segments that are not packed.
  void use(std::byte* buffer) { buffer_ = buffer; }
  // A segment's layout is in workspace from now on.
  void pack(const Layout& layout) {
    memory(layout).packed = transport().workspace(layout.count() * element());
  }
  // The last stage of a segment.
  void release(const Layout& layout) { memory(layout) = {}; }

  // Brings the result at this term's position into the layout. A rank that does not stand for its
  // pair only gives its contribution away.
  void reduce(const Layout& layout) {
    then([=, this] { pairs_.join(memory(layout).term, at(layout, 0), layout.count()); });
    if (!has_term()) return skip(levels() + 1);
    then([=, this] {
      // Contributions go out as they are if all of them do.
      if (plan_.tree.pairs() > 0) pairs_.begin(memory(layout).term, at(layout, 0), layout.count());
      exchange(layout, 0);
    });
    for (std::size_t i = 0; i < plan_.rounds.size(); ++i) {
      then([=, this] {
        take_in(layout, i);
        exchange(layout, i + 1);
      });
    }
  }

  // Brings what is at each term's position to all terms.
  void gather(const Layout& layout) {
    if (!has_term()) return skip(levels());
    for (auto round = plan_.rounds.rbegin(); round != plan_.rounds.rend(); ++round) {
      then([=, this] {
        const Range theirs = layout.elements(round->give), ours = layout.elements(round->keep);
        transport().receive(at(layout, theirs.begin), theirs.size() * element(), round->peer);
        transport().send(at(layout, ours.begin), ours.size() * element(), round->peer);
      });
    }
  }

  // Hands a range of elements from the rank that stands for a pair to the other.
  void hand_over(const Layout& layout, Range range) {
    if (!has_partner()) return skip(1);
    then([=, this] {
      if (has_term()) {
        transport().send(at(layout, range.begin), range.size() * element(), plan_.pairs.partner);
      } else {
        transport().receive(at(layout, range.begin), range.size() * element(), plan_.pairs.partner);
      }
    });
  }

  const HalvingPlan plan_;

 private:
  // What a segment has under way.
  struct Memory {
    Buffer packed;  // its layout; none where that is in the tensor
    PairSum::Term term;
  };

  Memory& memory(const Layout& layout) const {
    if (memory_.size() <= layout.segment) memory_.resize(layout.segment + 1);
    return memory_[layout.segment];
  }
  std::size_t levels() const {
    return static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(plan_.tree.terms())));
  }
  std::byte* partial(const Layout& layout, std::size_t index) const {
    return memory(layout).term.partial_at(at(layout, 0)) + index * pairs_.partial_width();
  }
  bool sends_contributions(std::size_t round) const {
    return round == 0 && plan_.tree.pairs() == 0;
  }
  void exchange(const Layout& layout, std::size_t index) {
    if (index == plan_.rounds.size()) return;
    const HalvingPlan::Round& round = plan_.rounds[index];
    const bool raw = sends_contributions(index);
    const std::size_t width = raw ? element() : pairs_.partial_width();
    const Range keep = layout.elements(round.keep), give = layout.elements(round.give);
    transport().receive(memory(layout).term.received.get(), keep.size() * width, round.peer);
    transport().send(raw ? at(layout, give.begin) : partial(layout, give.begin),
                     give.size() * width, round.peer);
  }
  void take_in(const Layout& layout, std::size_t index) {
    const HalvingPlan::Round& round = plan_.rounds[index];
    const bool raw = sends_contributions(index);
    const bool last = index + 1 == plan_.rounds.size();
    const Range keep = layout.elements(round.keep);
    if (keep.size() == 0) return;
    const std::byte* own = raw ? at(layout, keep.begin) : partial(layout, keep.begin);
    const std::byte* other = memory(layout).term.received.get();
    const std::array<const std::byte*, 2> sources{round.is_left ? own : other,
                                                  round.is_left ? other : own};
    const DType type = pairs_.partial_type();
    transport().reduce(op_, raw ? dtype_ : type, sources, last ? dtype_ : type,
                       last ? at(layout, keep.begin) : partial(layout, keep.begin), keep.size());
  }

  std::byte* buffer_ = nullptr;
  ReduceOp op_;
  DType dtype_;
  PairSum pairs_;
  mutable std::vector<Memory> memory_;  // by segment
};

class HalvingAllReduce final : public HalvingTask {
 public:
  HalvingAllReduce(TransportPtr transport, Tensor data, ReduceOp op)
      : HalvingTask(std::move(transport), data.dtype(), op), data_(std::move(data)) {
    const auto count = static_cast<std::size_t>(data_.elements());
    const std::size_t step = length_of(element());
    use(bytes_of(data_));
    for (std::size_t begin = 0; begin < count; begin += step) {
      const std::size_t length = std::min(step, count - begin);
      Layout::Bounds bounds;
      for (int at = 0; at < plan_.tree.terms(); ++at) {
        bounds.push_back(part_of({0, length}, at, plan_.tree.terms()).begin);
      }
      bounds.push_back(length);
      begin_segment();
      const Layout segment{last_segment(), begin,
                           std::make_shared<const Layout::Bounds>(std::move(bounds))};
      reduce(segment);
      gather(segment);
      hand_over(segment, {0, length});
      then([=, this] { release(segment); });
    }
  }

 private:
  Tensor data_;
};

// A part per rank, which passes through workspace in the order of positions.
class HalvingParts : public HalvingTask {
 protected:
  // `whole` holds a part for each rank.
  HalvingParts(TransportPtr transport, const Tensor& whole, ReduceOp op)
      : HalvingTask(std::move(transport), whole.dtype(), op),
        part_(static_cast<std::size_t>(whole.elements()) / static_cast<std::size_t>(size())),
        step_(length_of(element() * static_cast<std::size_t>(size()))) {}

  // Calls body(slice, layout) for each slice of all parts that workspace can hold.
  template <class Body>
  void for_each_slice(Body body) {
    for (std::size_t begin = 0; begin < part_; begin += step_) {
      const Range slice{begin, std::min(part_, begin + step_)};
      Layout::Bounds bounds{0};
      for (int at = 0; at < plan_.tree.terms(); ++at) {
        bounds.push_back(bounds.back() + slice.size() * ranks_at(at));
      }
      begin_segment();
      body(slice,
           Layout{last_segment(), 0, std::make_shared<const Layout::Bounds>(std::move(bounds))});
    }
  }
  // Calls visit(rank, index of its first element in the layout).
  template <class Visit>
  void for_each_part(Range slice, const Layout& layout, Visit visit) const {
    for (int at = 0; at < plan_.tree.terms(); ++at) {
      const auto position = static_cast<std::size_t>(at);
      const int first = plan_.tree.first_rank_of(plan_.term_at(position));
      for (std::size_t i = 0; i < ranks_at(at); ++i) {
        visit(first + static_cast<int>(i), (*layout.bounds)[position] + i * slice.size());
      }
    }
  }
  // The elements of the part of rank `of`.
  Range part_of_rank(int of, Range slice, const Layout& layout) const {
    Range range;
    for_each_part(slice, layout, [&](int peer, std::size_t index) {
      if (peer == of) range = {index, index + slice.size()};
    });
    return range;
  }
  Range own(Range slice, const Layout& layout) const { return part_of_rank(rank(), slice, layout); }
  // The range of the rank of a pair that does not stand for the pair.
  Range handed_over(Range slice, const Layout& layout) const {
    return part_of_rank(has_term() ? plan_.pairs.partner : rank(), slice, layout);
  }
  std::byte* element_of(const Tensor& tensor, int part, Range slice) const {
    return bytes_of(tensor) + (static_cast<std::size_t>(part) * part_ + slice.begin) * element();
  }

 private:
  std::size_t ranks_at(int position) const {
    return plan_.term_at(static_cast<std::size_t>(position)) < plan_.tree.pairs() ? 2 : 1;
  }

  std::size_t part_, step_;  // in elements
};

class HalvingReduceScatter final : public HalvingParts {
 public:
  HalvingReduceScatter(TransportPtr transport, Tensor input, Tensor output, ReduceOp op)
      : HalvingParts(std::move(transport), input, op),
        input_(std::move(input)),
        output_(std::move(output)) {
    for_each_slice([&](Range slice, const Layout& layout) {
      then([=, this] {
        pack(layout);
        for_each_part(slice, layout, [&](int peer, std::size_t index) {
          this->transport().copy(at(layout, index), element_of(input_, peer, slice),
                                 slice.size() * element());
        });
      });
      reduce(layout);
      hand_over(layout, handed_over(slice, layout));
      then([=, this] {
        this->transport().copy(element_of(output_, 0, slice), at(layout, own(slice, layout).begin),
                               slice.size() * element());
        release(layout);
      });
    });
  }

 private:
  Tensor input_, output_;
};

class HalvingAllGather final : public HalvingParts {
 public:
  HalvingAllGather(TransportPtr transport, Tensor input, Tensor output)
      : HalvingParts(std::move(transport), output, ReduceOp::kSum),
        input_(std::move(input)),
        output_(std::move(output)) {
    for_each_slice([&](Range slice, const Layout& layout) {
      const Range mine = own(slice, layout), theirs = handed_over(slice, layout);
      const int partner = plan_.pairs.partner;
      then([=, this] {
        pack(layout);
        this->transport().copy(at(layout, mine.begin), element_of(input_, 0, slice),
                               slice.size() * element());
        if (!has_partner()) return;
        if (has_term()) {
          this->transport().receive(at(layout, theirs.begin), slice.size() * element(), partner);
        } else {
          this->transport().send(at(layout, mine.begin), slice.size() * element(), partner);
        }
      });
      gather(layout);
      hand_over(layout, {0, layout.count()});
      then([=, this] {
        for_each_part(slice, layout, [&](int peer, std::size_t index) {
          this->transport().copy(element_of(output_, peer, slice), at(layout, index),
                                 slice.size() * element());
        });
        release(layout);
      });
    });
  }

 private:
  Tensor input_, output_;
};

}  // namespace

std::unique_ptr<Task> make_halving_all_reduce(TransportPtr transport, Tensor data, ReduceOp op) {
  return std::make_unique<HalvingAllReduce>(std::move(transport), std::move(data), op);
}

std::unique_ptr<Task> make_halving_reduce_scatter(TransportPtr transport, Tensor input,
                                                  Tensor output, ReduceOp op) {
  return std::make_unique<HalvingReduceScatter>(std::move(transport), std::move(input),
                                                std::move(output), op);
}

std::unique_ptr<Task> make_halving_all_gather(TransportPtr transport, Tensor input, Tensor output) {
  return std::make_unique<HalvingAllGather>(std::move(transport), std::move(input),
                                            std::move(output));
}

}  // namespace trireme
