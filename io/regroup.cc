#include "regroup.h"

#include <algorithm>
#include <cstring>

#include "tensor_slab.h"

namespace trireme {
namespace {

constexpr std::int64_t kShareUnit = 1024;  // elements: shares begin at pages of the file

// A run that lies in one rank's share.
struct Piece {
  int share = 0;
  Run run;
};

// The pieces of a slice in its row-major order: the same on every rank that asks.
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

Tensor as_words(std::vector<char>& bytes) {
  return Tensor::wrap(bytes.data(), {static_cast<std::int64_t>(bytes.size() / 4)}, DType::kI32);
}

}  // namespace

TensorSlice regroup(Communicator& comm, const PlannedTensor& tensor,
                    std::span<const TensorSlice> mine, std::vector<char>& memory) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::int64_t elements = tensor.elements();
  std::int64_t share = (elements + comm.size() - 1) / comm.size();
  share = (share + kShareUnit - 1) / kShareUnit * kShareUnit;
  const std::int64_t begin = std::min(elements, share * comm.rank());
  const std::int64_t end = std::min(elements, begin + share);

  std::vector<std::vector<char>> outgoing(ranks), incoming(ranks);
  for (const TensorSlice& slice : mine) {
    const char* values = static_cast<const char*>(slice.local.raw());
    for_each_piece(slice, share, [&](const Piece& piece) {
      const char* from = values + piece.run.memory * size;
      std::vector<char>& to = outgoing[static_cast<std::size_t>(piece.share)];
      to.insert(to.end(), from, from + piece.run.count * size);
    });
  }
  // Every rank knows every part, so nobody needs to be told what arrives.
  for (const OwnedPart& part : tensor.parts) {
    std::vector<char>& from = incoming[static_cast<std::size_t>(part.rank)];
    std::size_t bytes = from.size();
    for_each_piece(part.slice, share, [&](const Piece& piece) {
      if (piece.share == comm.rank()) bytes += static_cast<std::size_t>(piece.run.count * size);
    });
    from.resize(bytes);
  }
  const auto self = static_cast<std::size_t>(comm.rank());
  std::swap(incoming[self], outgoing[self]);
  std::vector<Transfer> transfers;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    if (peer == self) continue;
    const int rank = static_cast<int>(peer);
    if (!outgoing[peer].empty()) {
      transfers.push_back({Transfer::Direction::kSend, rank, as_words(outgoing[peer])});
    }
    if (!incoming[peer].empty()) {
      transfers.push_back({Transfer::Direction::kReceive, rank, as_words(incoming[peer])});
    }
  }
  if (!transfers.empty()) comm.exchange(Stream(), std::move(transfers)).wait_host();

  memory.resize(static_cast<std::size_t>((end - begin) * size));
  std::vector<std::size_t> taken(ranks, 0);
  for (const OwnedPart& part : tensor.parts) {
    const auto peer = static_cast<std::size_t>(part.rank);
    for_each_piece(part.slice, share, [&](const Piece& piece) {
      if (piece.share != comm.rank()) return;
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
