#include "io/checkpoints/regroup.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/rounding.h"

#include "io/checkpoints/tensor_slab.h"

namespace trireme {
namespace {

constexpr std::int64_t kShareUnit = 1024;  // elements; so shares begin at pages of the file

// A run that is within one rank's share.
struct Piece {
  int share = 0;
  Run run;
};

// Visits the pieces of a slice in row-major order. Every rank gets the same pieces.
template <class F>
void for_each_piece(const TensorSlice& slice, std::int64_t share, const F& visit) {
  for (const hdf5::Box& box : boxes_of(slice)) {
    if (box.elements() == 0) continue;
    for_each_run(slice, box, [&](Run run) {
      while (run.count > 0) {
        const std::int64_t owner = run.global / share;
        const std::int64_t count = std::min(run.count, (owner + 1) * share - run.global);
        visit(Piece{static_cast<int>(owner), {run.global, run.memory, count}});
        run = {run.global + count, run.memory + count, run.count - count};
      }
    });
  }
}

std::vector<int> owners_of(const ScatteredTensor& scattered) {
  std::vector<int> owners;  // the parts are in rank order
  for (const OwnedPart& part : scattered.parts) {
    if (owners.empty() || owners.back() != part.rank) owners.push_back(part.rank);
  }
  return owners;
}

std::size_t place_of(int rank, const std::vector<int>& owners) {
  return static_cast<std::size_t>(std::ranges::lower_bound(owners, rank) - owners.begin());
}

Tensor as_words(std::vector<char>& bytes) {
  return Tensor::wrap(bytes.data(), {static_cast<std::int64_t>(bytes.size() / 4)}, DType::kI32);
}

// Each owner of a part of a tensor gets an equal share of all elements.
class Regrouping {
 public:
  using Buffers = std::vector<std::vector<char>>;  // by owner

  Regrouping(const ScatteredTensor& scattered, int rank)
      : scattered_(scattered),
        size_(static_cast<std::int64_t>(size_of(scattered.tensor.dtype))),
        owners_(owners_of(scattered)),
        share_(
            rounded_up(quotient_up(scattered.tensor.elements(), std::ssize(owners_)), kShareUnit)),
        self_(place_of(rank, owners_)) {}

  // This rank's place among the owners, and its share.
  std::size_t self() const { return self_; }
  FlatRange range() const {
    const std::int64_t elements = scattered_.tensor.elements();
    const std::int64_t begin = std::min(elements, share_ * static_cast<std::int64_t>(self_));
    return {begin, std::min(elements, begin + share_)};
  }

  // Returns the values of this rank's slices that each owner gets.
  Buffers outgoing(std::span<const TensorSlice> mine) const {
    Buffers outgoing(owners_.size());
    for (const TensorSlice& slice : mine) {
      const char* values = static_cast<const char*>(slice.local.raw());
      for_each_piece(slice, share_, [&](const Piece& piece) {
        const char* from = values + piece.run.memory * size_;
        std::vector<char>& to = outgoing[static_cast<std::size_t>(piece.share)];
        to.insert(to.end(), from, from + piece.run.count * size_);
      });
    }
    return outgoing;
  }

  // Returns memory for what each owner sends to this rank. Every owner knows every part.
  Buffers room_for_incoming() const {
    Buffers incoming(owners_.size());
    for (const OwnedPart& part : scattered_.parts) {
      std::vector<char>& from = incoming[place_of(part.rank, owners_)];
      std::size_t bytes = from.size();
      for_each_piece(part.slice, share_, [&](const Piece& piece) {
        if (is_mine(piece)) bytes += bytes_of(piece);
      });
      from.resize(bytes);
    }
    return incoming;
  }

  std::vector<Transfer> transfers(Buffers& outgoing, Buffers& incoming) const {
    std::vector<Transfer> transfers;
    const auto add = [&](Transfer::Direction direction, std::size_t peer, Buffers& buffers) {
      if (buffers[peer].empty()) return;
      transfers.push_back({direction, owners_[peer], as_words(buffers[peer])});
    };
    for (std::size_t peer = 0; peer < owners_.size(); ++peer) {
      if (peer == self_) continue;
      add(Transfer::Direction::kSend, peer, outgoing);
      add(Transfer::Direction::kReceive, peer, incoming);
    }
    return transfers;
  }

  // Puts what the owners have sent to its places in this rank's share.
  void put_together(const Buffers& incoming, std::vector<char>& memory) const {
    const auto [begin, end] = range();
    memory.resize(static_cast<std::size_t>((end - begin) * size_));
    std::vector<std::size_t> taken(owners_.size(), 0);
    for (const OwnedPart& part : scattered_.parts) {
      const std::size_t peer = place_of(part.rank, owners_);
      for_each_piece(part.slice, share_, [&, begin = begin](const Piece& piece) {
        if (!is_mine(piece)) return;
        std::memcpy(memory.data() + (piece.run.global - begin) * size_,
                    incoming[peer].data() + taken[peer], bytes_of(piece));
        taken[peer] += bytes_of(piece);
      });
    }
  }

 private:
  bool is_mine(const Piece& piece) const { return piece.share == static_cast<int>(self_); }
  std::size_t bytes_of(const Piece& piece) const {
    return static_cast<std::size_t>(piece.run.count * size_);
  }

  const ScatteredTensor& scattered_;
  std::int64_t size_;  // of an element
  std::vector<int> owners_;
  std::int64_t share_;  // elements
  std::size_t self_;
};

}  // namespace

TensorSlice regroup(Communicator& comm, const ScatteredTensor& scattered,
                    std::span<const TensorSlice> mine, std::vector<char>& memory) {
  const PlannedTensor& tensor = scattered.tensor;
  const Regrouping regrouping(scattered, comm.rank());
  std::vector<std::vector<char>> outgoing = regrouping.outgoing(mine);
  std::vector<std::vector<char>> incoming = regrouping.room_for_incoming();
  std::swap(incoming[regrouping.self()], outgoing[regrouping.self()]);
  std::vector<Transfer> transfers = regrouping.transfers(outgoing, incoming);
  if (!transfers.empty()) comm.exchange(Stream(), std::move(transfers)).wait_host();
  regrouping.put_together(incoming, memory);

  const auto [begin, end] = regrouping.range();
  TensorSlice slice;
  slice.name = tensor.name;
  slice.global = slice.extent = tensor.shape;
  slice.start.assign(static_cast<std::size_t>(tensor.shape.rank()), 0);
  slice.range = FlatRange{begin, end};
  slice.local = Tensor::wrap(memory.data(), {end - begin}, tensor.dtype);
  return slice;
}

}  // namespace trireme
