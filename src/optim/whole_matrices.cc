#include "optim/whole_matrices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ops/embedding.h"
#include "trireme/tensor/copy.h"

namespace trireme::optim {
namespace {

// The ranks that hold parts of a stage's matrices, or copies of them.
constexpr Axes kTeam = kAllAxes.without(Axis::kPipeline);

std::int64_t columns_of(const Shape& shape) {
  return shape.elements() / std::max<std::int64_t>(shape[0], 1);
}

// The owner of each matrix. The costliest goes first, each to the rank with the least to do so far.
std::vector<int> deal(const std::vector<WholeMatrix>& matrices, int ranks) {
  const auto cost = [&](std::size_t i) {
    return matrices[i].work->cost(matrices[i].rows.size(), matrices[i].columns());
  };
  std::vector<std::size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), cost);
  struct Hand {
    double cost = 0.0;
    std::int64_t elements = 0;
    std::vector<std::size_t> matrices;
  };
  std::vector<Hand> hands(static_cast<std::size_t>(ranks));
  for (const std::size_t i : order) {
    Hand& least = *std::ranges::min_element(hands, {}, &Hand::cost);
    least.cost += cost(i);
    least.elements += matrices[i].elements();
    least.matrices.push_back(i);
  }
  // A dry run of the first rank then tells the most that any needs.
  std::ranges::stable_sort(hands, std::greater<>(), &Hand::elements);
  std::vector<int> owners(matrices.size());
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::size_t i : hands[static_cast<std::size_t>(rank)].matrices) owners[i] = rank;
  }
  return owners;
}

}  // namespace

nn::Placement as_matrix(const nn::Placement& placement) {
  if (placement.global.rank() == 2) return placement;
  TRIREME_CHECK(placement.local == placement.global, "a split parameter is a matrix");
  return nn::Placement::whole({placement.global[0], columns_of(placement.global)});
}

std::int64_t WholeMatrix::columns() const {
  return columns_of(parameter->placement().global);
}

// What a rank holds of a matrix: a run of its parameter's local memory.
struct WholeMatrices::Message {
  nn::Placement placement;  // of the parameter there, as a matrix
  FlatRange elements;       // of the local memory
  bool sent = false;        // to the owner: by one of those that have copies, if it has none

  // Whether the run lies in the matrix as it does in memory.
  bool runs_on() const { return placement.local[1] == placement.global[1]; }
  // If it does, its place in the matrix.
  FlatRange within(const WholeMatrix& matrix) const {
    const std::int64_t shift = (placement.offset[0] - matrix.rows.begin) * matrix.columns();
    return {elements.begin + shift, elements.end + shift};
  }
  // Copies the elements between the whole matrix and `run`, which has them as they lie in memory.
  void put(ops::Context& ctx, const WholeMatrix& matrix, const Tensor& run,
           const Tensor& whole) const {
    copy_slabs(ctx, matrix, run, whole, true);
  }
  void take(ops::Context& ctx, const WholeMatrix& matrix, const Tensor& whole,
            const Tensor& run) const {
    copy_slabs(ctx, matrix, run, whole, false);
  }

 private:
  void copy_slabs(ops::Context& ctx, const WholeMatrix& matrix, const Tensor& run,
                  const Tensor& whole, bool put) const;
};

void WholeMatrices::Message::copy_slabs(ops::Context& ctx, const WholeMatrix& matrix,
                                        const Tensor& run, const Tensor& whole, bool put) const {
  const std::int64_t columns = matrix.columns();
  for (const nn::Slab& slab : nn::slabs_of(placement, elements)) {
    const std::int64_t rows = slab.extent[0], count = slab.extent[1], stride = slab.local[1];
    const std::int64_t row = slab.start[0] - matrix.rows.begin, column = slab.start[1];
    const std::int64_t at = slab.at - elements.begin;
    if (rows == 1) {
      const Tensor inside =
          whole.flat_range(row * columns + column, row * columns + column + count);
      const Tensor outside = run.flat_range(at, at + count);
      put ? copy(outside, inside, ctx.stream) : copy(inside, outside, ctx.stream);
      continue;
    }
    // Pieces of rows are rows of shorter ones.
    const std::int64_t piece = std::gcd(std::gcd(columns, stride), std::gcd(count, column));
    const auto pieces = [&](const Tensor& x) { return x.reshape({x.elements() / piece, piece}); };
    const Tensor inside = pieces(whole.rows(row, row + rows));
    const Tensor outside = pieces(run.flat_range(at, at + rows * stride));
    ops::SampleRows copied{.batch = rows,
                           .count = count / piece,
                           .x_length = stride / piece,
                           .y_length = columns / piece,
                           .y_first = column / piece};
    if (put) {
      ops::copy_rows(ctx, copied, outside, inside);
    } else {
      std::swap(copied.x_length, copied.y_length);
      std::swap(copied.x_first, copied.y_first);
      ops::copy_rows(ctx, copied, inside, outside);
    }
  }
}

// A matrix on its owner, and the messages by member of the team.
struct WholeMatrices::Gathered {
  Tensor whole;  // (rows, columns)
  std::vector<Message> messages;
};

WholeMatrices::WholeMatrices(const ProcessGrid& grid, std::vector<WholeMatrix> matrices)
    : grid_(grid.shape()),
      place_(grid.index(kAllAxes)),
      team_(grid_.group(place_, kTeam)),
      comm_(grid.make({"matrices", kTeam, Purpose::kState})),
      matrices_(std::move(matrices)),
      owners_(deal(matrices_, static_cast<int>(team_.size()))) {}

WholeMatrices::Message WholeMatrices::message_of(const WholeMatrix& matrix, int place,
                                                 int owner) const {
  const nn::Parameter& parameter = *matrix.parameter;
  const nn::Placement& here = parameter.placement();
  const int copies = grid_[Axis::kTensor] / here.parts;  // of a slice, on neighbouring ranks
  const auto slice_at = [&](int of) { return grid_.index(of, Axis::kTensor) / copies; };
  const auto equal_along = [&](Axis axis) {
    return grid_.index(place, axis) == grid_.index(owner, axis);
  };
  const bool owner_has_it = equal_along(Axis::kShard) && slice_at(place) == slice_at(owner);
  Message message;
  message.placement = as_matrix(here.slice(slice_at(place)));
  message.sent = equal_along(Axis::kReplicate) && !owner_has_it &&
                 grid_.index(place, Axis::kTensor) % copies == 0;
  const nn::Placement& slice = message.placement;
  const nn::Sharding& sharding = parameter.group().sharding();
  const FlatRange shard = sharding.range_of(grid_.index(place, Axis::kShard));
  const std::int64_t begin = parameter.offset_in_group(), first = slice.offset[0];
  const auto row = [&](std::int64_t global) {
    return std::clamp<std::int64_t>(global - first, 0, slice.extent[0]) * slice.local[1];
  };
  message.elements = intersection({row(matrix.rows.begin), row(matrix.rows.end)},
                                  {shard.begin - begin, shard.end - begin});
  return message;
}

Tensor WholeMatrices::held_by_this_rank(const WholeMatrix& matrix, const Held& held) const {
  const auto found = held.find(matrix.parameter);
  const FlatRange mine = message_of(matrix, place_, place_).elements;
  if (found == held.end() || mine.empty()) return {};
  const nn::FlatGroup& group = matrix.parameter->group();
  const auto part =
      std::ranges::find(group.parts(), matrix.parameter, &nn::FlatGroup::Part::parameter);
  return found->second.flat_range(mine.begin - part->elements.begin,
                                  mine.end - part->elements.begin);
}

std::vector<WholeMatrices::Gathered> WholeMatrices::gather(ops::Context& ctx,
                                                           const Held& held) const {
  std::vector<Gathered> gathered(matrices_.size());
  std::vector<Transfer> transfers;
  struct Received {
    std::size_t matrix, member;
    Tensor run;
  };
  std::vector<Received> to_put;
  const int me = comm_->rank();
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const WholeMatrix& matrix = matrices_[i];
    const Tensor mine = held_by_this_rank(matrix, held);
    if (owners_[i] != me) {
      const int owner = team_[static_cast<std::size_t>(owners_[i])];
      if (mine.defined() && message_of(matrix, place_, owner).sent) {
        transfers.push_back({Transfer::Direction::kSend, owners_[i], mine});
      }
      continue;
    }
    Gathered& one = gathered[i];
    for (const int place : team_) one.messages.push_back(message_of(matrix, place, place_));
    if (mine.defined() && mine.elements() == matrix.elements()) {  // all of it is here
      one.whole = mine.reshape({matrix.rows.size(), matrix.columns()});
      continue;
    }
    one.whole = ctx.allocate({matrix.rows.size(), matrix.columns()}, matrix.work->type(),
                             MemoryUse::kWorkspace);
    for (std::size_t member = 0; member < team_.size(); ++member) {
      const Message& message = one.messages[member];
      if (message.elements.empty()) continue;
      if (static_cast<int>(member) == me) {
        to_put.push_back({i, member, mine});
      } else if (message.sent) {
        const FlatRange within = message.within(matrix);
        const Tensor run = message.runs_on()
                               ? one.whole.flat_range(within.begin, within.end)
                               : ctx.allocate({message.elements.size()}, matrix.work->type(),
                                              MemoryUse::kWorkspace);
        transfers.push_back({Transfer::Direction::kReceive, static_cast<int>(member), run});
        if (!message.runs_on()) to_put.push_back({i, member, run});
      }
    }
  }
  if (!transfers.empty()) comm_->exchange(ctx.stream, std::move(transfers)).wait_on(ctx.stream);
  for (const Received& one : to_put) {
    const Gathered& matrix = gathered[one.matrix];
    matrix.messages[one.member].put(ctx, matrices_[one.matrix], one.run, matrix.whole);
  }
  return gathered;
}

void WholeMatrices::send_back(ops::Context& ctx, const std::vector<Gathered>& gathered,
                              const Held& held) const {
  std::vector<Transfer> transfers;
  const int me = comm_->rank();
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const WholeMatrix& matrix = matrices_[i];
    const Tensor mine = held_by_this_rank(matrix, held);
    if (owners_[i] != me) {
      if (!mine.defined()) continue;
      transfers.push_back({Transfer::Direction::kReceive, owners_[i], mine});
      continue;
    }
    const Gathered& one = gathered[i];
    for (std::size_t member = 0; member < team_.size(); ++member) {
      const Message& message = one.messages[member];
      if (message.elements.empty()) continue;
      if (static_cast<int>(member) == me) {
        if (mine.raw() != one.whole.raw()) message.take(ctx, matrix, one.whole, mine);
        continue;
      }
      Tensor run;
      if (message.runs_on()) {
        const FlatRange within = message.within(matrix);
        run = one.whole.flat_range(within.begin, within.end);
      } else {
        run = ctx.allocate({message.elements.size()}, matrix.work->type(), MemoryUse::kWorkspace);
        message.take(ctx, matrix, one.whole, run);
      }
      transfers.push_back({Transfer::Direction::kSend, static_cast<int>(member), run});
    }
  }
  if (!transfers.empty()) comm_->exchange(ctx.stream, std::move(transfers)).wait_on(ctx.stream);
}

void WholeMatrices::run(ops::Context& ctx, const Held& held) const {
  const std::vector<Gathered> gathered = gather(ctx, held);
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    if (owners_[i] == comm_->rank()) matrices_[i].work->whole(ctx, gathered[i].whole);
  }
  send_back(ctx, gathered, held);
}

void WholeMatrices::connect(ops::Context& ctx, const Held& held) const {
  send_back(ctx, gather(ctx, held), held);
}

}  // namespace trireme::optim
