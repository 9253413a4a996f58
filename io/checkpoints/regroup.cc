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

}  // namespace

TensorSlice regroup(Communicator& comm, const ScatteredTensor& scattered,
                    std::span<const TensorSlice> mine, std::vector<char>& memory) {
  const PlannedTensor& tensor = scattered.tensor;
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::vector<int> owners = owners_of(scattered);
  const std::int64_t elements = tensor.elements(), count = std::ssize(owners);
  const std::int64_t share = rounded_up(quotient_up(elements, count), kShareUnit);
  const std::size_t self = place_of(comm.rank(), owners);
  const std::int64_t begin = std::min(elements, share * static_cast<std::int64_t>(self));
  const std::int64_t end = std::min(elements, begin + share);
  const auto is_mine = [&](const Piece& piece) { return piece.share == static_cast<int>(self); };

  std::vector<std::vector<char>> outgoing(owners.size()), incoming(owners.size());
  for (const TensorSlice& slice : mine) {
    const char* values = static_cast<const char*>(slice.local.raw());
    for_each_piece(slice, share, [&](const Piece& piece) {
      const char* from = values + piece.run.memory * size;
      std::vector<char>& to = outgoing[static_cast<std::size_t>(piece.share)];
      to.insert(to.end(), from, from + piece.run.count * size);
    });
  }
  // Every owner knows every part, so it can compute what it will receive.
  for (const OwnedPart& part : scattered.parts) {
    std::vector<char>& from = incoming[place_of(part.rank, owners)];
    std::size_t bytes = from.size();
    for_each_piece(part.slice, share, [&](const Piece& piece) {
      if (is_mine(piece)) bytes += static_cast<std::size_t>(piece.run.count * size);
    });
    from.resize(bytes);
  }
  std::swap(incoming[self], outgoing[self]);
  std::vector<Transfer> transfers;
  for (std::size_t peer = 0; peer < owners.size(); ++peer) {
    if (peer == self) continue;
    if (!outgoing[peer].empty()) {
      transfers.push_back({Transfer::Direction::kSend, owners[peer], as_words(outgoing[peer])});
    }
    if (!incoming[peer].empty()) {
      transfers.push_back({Transfer::Direction::kReceive, owners[peer], as_words(incoming[peer])});
    }
  }
  if (!transfers.empty()) comm.exchange(Stream(), std::move(transfers)).wait_host();

  memory.resize(static_cast<std::size_t>((end - begin) * size));
  std::vector<std::size_t> taken(owners.size(), 0);
  for (const OwnedPart& part : scattered.parts) {
    const std::size_t peer = place_of(part.rank, owners);
    for_each_piece(part.slice, share, [&](const Piece& piece) {
      if (!is_mine(piece)) return;
      const auto bytes = static_cast<std::size_t>(piece.run.count * size);
      std::memcpy(memory.data() + (piece.run.global - begin) * size,
                  incoming[peer].data() + taken[peer], bytes);
      taken[peer] += bytes;
    });
  }
  TensorSlice slice;
  slice.name = tensor.name;
  slice.global = slice.extent = tensor.shape;
  slice.start.assign(static_cast<std::size_t>(tensor.shape.rank()), 0);
  slice.range = FlatRange{begin, end};
  slice.local = Tensor::wrap(memory.data(), {end - begin}, tensor.dtype);
  return slice;
}

}  // namespace trireme
